//! The one place where a saga decides. Pure, and total: whatever comes in whatever status has an outcome.
//!
//! Every input is first matched with the one thing that it is about (an operation that was asked, a
//! timer that is set), then it changes how that step stands, and then the saga goes on as far as the
//! steps allow. What matches nothing changes nothing, and is recorded. The table of all outcomes is
//! made from this code: `docs/saga-transitions.md`.

use super::{
    Answered, Decision, Direction, Idle, Input, Instance, OperationId, Reply, Saga, Status, StepState, What,
    exchange::{Exchange, Heard},
    turn::{At, Turn},
};
use crate::{
    Class, planted,
    retry::{Next, Policy},
};
use std::cmp::Ordering;

impl<S> Saga<S> {
    /// Decides what follows from an input, and changes the instance accordingly.
    ///
    /// The changed instance and everything in the decision belong in one transaction; where that does
    /// not commit, nothing has happened, and the input comes again.
    pub fn advance(&self, instance: &mut Instance<S>, input: Input) -> Decision {
        let mut turn = Turn::new(self, instance);
        if self.fits(turn.it).is_err() && !planted::is("saga-version-ignored") {
            turn.ignore(Idle::NotOurs);
            return turn.out;
        }
        match input {
            Input::Started => turn.started(),
            Input::Reply(reply) => turn.reply(reply),
            Input::Deadline(name) => turn.deadline(&name),
            Input::GivenUp { operation, reason } => turn.given_up(&operation, reason),
            Input::Act(act, deed) => turn.act(act, deed),
        }
        turn.out
    }
}

/// What an answer is about, or why it is about nothing.
type Found = Result<(At, Direction), (Option<At>, Idle)>;

impl<'a, S> Turn<'a, S> {
    /// Once in its life: an instance that has ended stays as a tombstone against a late second start.
    fn started(&mut self) {
        if planted::is("saga-tombstone-forgotten") && self.it.status.is_final() {
            (self.it.status, self.it.heading) = (Status::Running, Direction::Do);
            self.it.legs.clear();
        }
        if self.it.status != Status::Running || !self.it.legs.is_empty() {
            return self.note(None, Idle::StartedAlready, "started");
        }
        self.log_saga(What::Started, None);
        self.proceed();
    }

    fn reply(&mut self, reply: Reply) {
        self.envelope = reply.envelope;
        match self.locate(&reply) {
            Err((at, why)) => self.note(at.map(|at| (at, reply.operation.direction)), why, &reply.kind),
            Ok((at, direction)) => self.answered(at, direction, &reply),
        }
    }

    /// By the operation that it answers, never by its type: the type does not tell which attempt, which
    /// part, or which saga.
    fn locate(&self, reply: &Reply) -> Found {
        if planted::is("saga-reply-by-type") {
            let pending = |at: &At| self.it.legs[*at].state.is_pending();
            let mut legs = (0..self.it.legs.len()).filter(pending).map(|at| (at, self.it.legs[at].direction()));
            let fits = |(at, direction): &(At, Direction)| {
                self.exchange(*at, *direction).is_some_and(|e| e.types.answers().any(|t| t.name == reply.kind))
            };
            return legs.find(fits).ok_or((None, Idle::NotAsked));
        }
        self.asked(&reply.operation)
    }

    /// The leg that waits for this operation's answer.
    fn asked(&self, operation: &OperationId) -> Found {
        let at = self.it.legs.iter().position(|leg| leg.id == operation.leg);
        let Some(at) = at.filter(|_| operation.saga == self.it.id) else { return Err((None, Idle::NotAsked)) };
        let no = |why| Err((Some(at), why));
        let Some(asking) = self.it.legs[at].asking(operation.direction).filter(|asking| asking.asks > 0) else {
            return Err((None, Idle::NotAsked));
        };
        match operation.attempt.cmp(&asking.attempt) {
            Ordering::Greater => no(Idle::NotAsked),
            Ordering::Less => no(Idle::EarlierAttempt),
            Ordering::Equal if asking.answer.is_some() && !planted::is("saga-duplicate-counted") => {
                no(Idle::AnsweredAlready)
            }
            Ordering::Equal if self.it.status.is_final() => no(Idle::Ended),
            Ordering::Equal => Ok((at, operation.direction)),
        }
    }

    fn answered(&mut self, at: At, direction: Direction, reply: &Reply) {
        let Some(exchange) = self.exchange(at, direction) else {
            return self.note(Some((at, direction)), Idle::NotAsked, &reply.kind);
        };
        let part = self.it.legs[at].id.part().to_owned();
        match exchange.hear(&mut self.it.state, &part, &reply.kind, &reply.payload) {
            Heard::Other => self.note(Some((at, direction)), Idle::NoAnswer, &reply.kind),
            Heard::Unreadable(why) if self.awaits(at, direction) => {
                self.log_leg(What::Unreadable, at, direction, Some(why.clone()));
                self.lost(at, direction, format!("the answer cannot be read: {why}"));
            }
            Heard::Unreadable(_) => self.note(Some((at, direction)), Idle::Unreadable, &reply.kind),
            Heard::Done => {
                self.definite(at, direction, Answered::Done, None);
                self.was_done(at, direction);
            }
            Heard::Refused(reason) => {
                self.definite(at, direction, Answered::Refused, Some(reason.clone()));
                self.was_refused(at, direction, reason);
            }
        }
    }

    /// Writes down a definite answer; its timer is needed no more.
    fn definite(&mut self, at: At, direction: Direction, answer: Answered, reason: Option<String>) {
        let what = match answer {
            Answered::Done => What::Done,
            Answered::Refused => What::Refused,
        };
        self.cancel_timer(at, direction);
        let asking = self.asking(at, direction);
        asking.answer = Some(answer);
        asking.sent = if direction == Direction::Undo { asking.sent.take() } else { None };
        self.log_leg(what, at, direction, reason);
    }

    fn was_done(&mut self, at: At, direction: Direction) {
        match (direction, &self.it.legs[at].state) {
            (Direction::Do, state) if !state.is_undo() => self.set(at, StepState::Done),
            (Direction::Do, _) => {} // late: it is being undone already, and the state knows more now
            (Direction::Undo, _) => self.set(at, StepState::Undone),
        }
        self.proceed();
    }

    fn was_refused(&mut self, at: At, direction: Direction, reason: String) {
        match (direction, &self.it.legs[at].state) {
            (Direction::Do, state) if !state.is_undo() => self.set(at, StepState::Refused { reason }),
            (Direction::Do, _) => {} // late: undoing what was not done is harmless
            (Direction::Undo, StepState::UndoFailed { .. }) => self.set(at, StepState::UndoFailed { reason }),
            (Direction::Undo, _) => self.undo_refused(at, reason),
        }
        self.proceed();
    }

    /// A compensation that is refused is tried again for a while: there is nothing better to do.
    fn undo_refused(&mut self, at: At, reason: String) {
        let policy = self.policy(at, Direction::Undo).filter(|_| !planted::is("saga-undo-not-retried"));
        match policy.is_some_and(|policy| self.rest(at, Direction::Undo, Class::Transient, &policy)) {
            true => self.set(at, StepState::UndoResting { reason }),
            false => self.failed(at, reason),
        }
    }

    fn failed(&mut self, at: At, reason: String) {
        self.log_leg(What::Failed, at, Direction::Undo, Some(reason.clone()));
        self.set(at, StepState::UndoFailed { reason });
    }

    fn deadline(&mut self, name: &str) {
        let set = (0..self.it.legs.len()).find_map(|at| {
            let is = |direction| self.it.legs[at].asking(direction).is_some_and(|a| a.timer.as_deref() == Some(name));
            [Direction::Do, Direction::Undo].into_iter().find(|d| is(*d)).map(|direction| (at, direction))
        });
        let Some((at, direction)) = set.or_else(|| self.planted_stale(name)) else {
            return self.note(None, Idle::NotSet, name);
        };
        if !planted::is("saga-timer-fires-twice") {
            self.asking(at, direction).timer = None;
        }
        match self.it.legs[at].state {
            StepState::Resting | StepState::UndoResting { .. } => self.ask_again(at, direction),
            _ => self.silent(at, direction),
        }
        self.proceed();
    }

    /// With the protection taken out: a timer that is not set counts for the step that it names.
    fn planted_stale(&self, name: &str) -> Option<(At, Direction)> {
        let names = |at: &At| name.ends_with(&format!(":{}", self.it.legs[*at].id));
        let stale = planted::is("saga-stale-deadline").then(|| (0..self.it.legs.len()).find(names)).flatten();
        stale.map(|at| (at, self.it.legs[at].direction()))
    }

    /// Asks again: the same operation in the same bytes, unless there was a definite answer.
    pub fn ask_again(&mut self, at: At, direction: Direction) {
        let asking = self.asking(at, direction);
        if asking.answer.take().is_some() || planted::is("saga-attempt-grows-on-unknown") {
            asking.attempt += 1;
            asking.sent = None;
        }
        self.ask(at, direction);
    }

    /// No answer in time says nothing about what was done.
    fn silent(&mut self, at: At, direction: Direction) {
        let Some(policy) = self.policy(at, direction) else { return };
        self.asking(at, direction).waited_ms += policy.deadline.as_millis() as u64;
        let reason = format!("no answer within {:?}", policy.deadline);
        self.log_leg(What::Silent, at, direction, Some(reason.clone()));
        if self.rest(at, direction, Class::Unknown, &policy) {
            let state = match direction {
                Direction::Do => StepState::Resting,
                Direction::Undo => StepState::UndoResting { reason },
            };
            return self.set(at, state);
        }
        let asks = self.asking(at, direction).asks;
        let reason = format!("no answer within {:?}, asked {asks} times", policy.deadline);
        self.unanswered(at, direction, reason);
    }

    /// Counts a failure; sets the timer for the next time, unless it is to be given up.
    fn rest(&mut self, at: At, direction: Direction, class: Class, policy: &Policy) -> bool {
        let dice = dice(&self.it.operation(&self.it.legs[at], direction), self.asking(at, direction).failures);
        let asking = self.asking(at, direction);
        asking.failures += 1;
        let Next::Again(wait) = policy.next(class, asking.failures, asking.waited(), None, dice) else {
            return false;
        };
        asking.waited_ms += wait.as_millis() as u64;
        self.set_timer(at, direction, "again", wait);
        true
    }

    fn given_up(&mut self, operation: &OperationId, reason: String) {
        match self.asked(operation) {
            Ok((at, direction)) if self.awaits(at, direction) => self.lost(at, direction, reason),
            Ok((at, direction)) => self.note(Some((at, direction)), Idle::NotAwaited, &reason),
            Err((at, why)) => self.note(at.map(|at| (at, operation.direction)), why, &reason),
        }
    }

    /// No answer will come that can be used.
    fn lost(&mut self, at: At, direction: Direction, reason: String) {
        self.cancel_timer(at, direction);
        self.unanswered(at, direction, reason);
        self.proceed();
    }

    fn unanswered(&mut self, at: At, direction: Direction, reason: String) {
        match direction {
            Direction::Do => {
                self.log_leg(What::Unknown, at, direction, Some(reason.clone()));
                self.set(at, StepState::Unknown { reason });
            }
            Direction::Undo => self.failed(at, reason),
        }
    }

    /// Whether an answer in this direction is what the leg waits for.
    fn awaits(&self, at: At, direction: Direction) -> bool {
        let leg = &self.it.legs[at];
        leg.state.is_pending() && leg.direction() == direction
    }

    /// The command that is under way, or was last.
    pub fn exchange(&self, at: At, direction: Direction) -> Option<&'a Exchange<S>> {
        let (_, step) = self.step(at)?;
        match direction {
            Direction::Do => Some(&step.forward),
            Direction::Undo => {
                let sent = self.it.legs[at].undoing.as_ref()?.sent.as_ref()?;
                step.undo_by_kind(&sent.kind).map(|undo| &undo.exchange)
            }
        }
    }

    /// Records an input that changes nothing.
    fn note(&mut self, leg: Option<(At, Direction)>, why: Idle, what: &str) {
        self.ignore(why);
        let reason = Some(format!("{what}: {why}"));
        match leg {
            Some((at, direction)) => self.log_leg(What::Ignored, at, direction, reason),
            None => self.log_saga(What::Ignored, reason),
        }
    }
}

/// Spreads waits by what is waited for, always alike, so that a decision can be made again.
fn dice(operation: &OperationId, failures: u32) -> f64 {
    let text = format!("{operation}:{failures}");
    let mut hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}
