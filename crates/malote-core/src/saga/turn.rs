//! One turn: the instance, the input's circumstances, and the decision as it grows.

use super::{
    Address, Answered, Asking, Decision, Direction, Entry, Idle, Instance, Leg, Saga, Send, StepState, Timer, Verdict,
    What, step::StepDef,
};
use crate::{inspect::Act, retry::Policy};
use std::time::Duration;
use uuid::Uuid;

/// A leg by its place; legs are only ever added.
pub(super) type At = usize;

pub(super) struct Turn<'a, S> {
    pub saga: &'a Saga<S>,
    pub it: &'a mut Instance<S>,
    pub out: Decision,
    /// The envelope that brought the input.
    pub envelope: Option<Uuid>,
    /// The person who acts.
    pub by: Option<Act>,
}

impl<'a, S> Turn<'a, S> {
    pub fn new(saga: &'a Saga<S>, it: &'a mut Instance<S>) -> Self {
        let out = Decision { verdict: Verdict::Acted, sends: vec![], timers: vec![], log: vec![], ended: None };
        Self { saga, it, out, envelope: None, by: None }
    }

    /// The step of a leg, with its place in the order.
    pub fn step(&self, at: At) -> Option<(usize, &'a StepDef<S>)> {
        self.saga.find(&self.it.legs[at].id.step)
    }

    /// The legs of a stage.
    pub fn legs_of(&self, stage: usize) -> Vec<At> {
        (0..self.it.legs.len()).filter(|at| self.step(*at).is_some_and(|(its, _)| its == stage)).collect()
    }

    pub fn asking(&mut self, at: At, direction: Direction) -> &mut Asking {
        let leg = &mut self.it.legs[at];
        match direction {
            Direction::Do => &mut leg.doing,
            Direction::Undo => leg.undoing.get_or_insert_default(),
        }
    }

    pub fn set(&mut self, at: At, state: StepState) {
        self.it.legs[at].state = state;
    }

    /// How silence and refusal are met in a direction; none for what is done in the same transaction.
    pub fn policy(&self, at: At, direction: Direction) -> Option<Policy> {
        let (stage, step) = self.step(at)?;
        match direction {
            Direction::Do => step.forward.policy(self.saga.usual_policy(stage)),
            Direction::Undo => {
                let kind = &self.it.legs[at].undoing.as_ref()?.sent.as_ref()?.kind;
                step.undo_by_kind(kind)?.exchange.policy(Policy::default())
            }
        }
    }

    /// Makes the command if none is under way, sends it, and sets its timer.
    pub fn ask(&mut self, at: At, direction: Direction) {
        if let Err(reason) = self.write_command(at, direction) {
            return self.cannot_ask(at, direction, reason);
        }
        let operation = self.it.operation(&self.it.legs[at], direction);
        let undoes = (direction == Direction::Undo).then(|| self.it.operation(&self.it.legs[at], Direction::Do));
        let address = Address { definition: self.it.definition.clone(), version: self.it.version, operation, undoes };
        let policy = self.policy(at, direction);
        let asking = self.asking(at, direction);
        asking.asks += 1;
        let send = asking.sent.as_ref().map(|sent| Send::new(address, sent, policy.is_none()));
        self.out.sends.extend(send);
        let state = match direction {
            Direction::Do => StepState::Asked,
            Direction::Undo => StepState::Undoing,
        };
        self.set(at, state);
        self.log_leg(What::Asked, at, direction, None);
        if let Some(policy) = policy {
            self.set_timer(at, direction, "deadline", policy.deadline);
        }
    }

    /// The same bytes for the same operation: a command is made anew only for a new attempt.
    fn write_command(&mut self, at: At, direction: Direction) -> Result<(), String> {
        if self.asking(at, direction).sent.is_some() {
            return Ok(());
        }
        let (_, step) = self.step(at).ok_or("the step is not in the definition")?;
        let exchange = match direction {
            Direction::Do => &step.forward,
            Direction::Undo => {
                let undo = step.undo(&self.it.state, self.it.on_request);
                &undo.ok_or("no compensation applies")?.exchange
            }
        };
        let sent = exchange
            .command(&self.it.state, self.it.legs[at].id.part())
            .map_err(|unfit| format!("the command could not be made: {unfit}"))?;
        self.asking(at, direction).sent = Some(sent);
        Ok(())
    }

    /// Nothing was sent, so nothing was done: that is as definite as a refusal.
    fn cannot_ask(&mut self, at: At, direction: Direction, reason: String) {
        self.log_leg(What::Unfit, at, direction, Some(reason.clone()));
        self.asking(at, direction).answer = Some(Answered::Refused);
        self.set(
            at,
            match direction {
                Direction::Do => StepState::Refused { reason },
                Direction::Undo => StepState::UndoFailed { reason },
            },
        );
    }

    pub fn set_timer(&mut self, at: At, direction: Direction, purpose: &str, after: Duration) {
        let leg = self.it.legs[at].id.to_string();
        let asking = self.asking(at, direction);
        let name = format!("{}:{}:{purpose}:{leg}", direction.as_str(), asking.asks);
        asking.timer = Some(name.clone());
        self.out.timers.push(Timer::Set { name, after });
    }

    /// Takes back this timer, and no other.
    pub fn cancel_timer(&mut self, at: At, direction: Direction) {
        if crate::planted::is("saga-timers-by-saga") && self.asking(at, direction).timer.is_some() {
            return self.cancel_all();
        }
        if let Some(name) = self.asking(at, direction).timer.take()
            && !crate::planted::is("saga-deadline-kept")
        {
            self.out.timers.push(Timer::Cancel { name });
        }
    }

    pub fn cancel_all(&mut self) {
        for leg in &mut self.it.legs {
            let askings = std::iter::once(&mut leg.doing).chain(&mut leg.undoing);
            let names = askings.filter_map(|asking| asking.timer.take());
            self.out.timers.extend(names.map(|name| Timer::Cancel { name }));
        }
    }

    pub fn log(&mut self, what: What, leg: Option<&Leg>, direction: Option<Direction>, reason: Option<String>) {
        self.it.entries += 1;
        let attempt = direction.and_then(|d| leg?.asking(d)).map(|asking| asking.attempt);
        let envelope = (what != What::Asked).then_some(self.envelope).flatten();
        self.out.log.push(Entry {
            n: self.it.entries,
            what,
            leg: leg.map(|leg| leg.id.clone()),
            direction,
            attempt,
            envelope,
            reason,
            actor: self.by.as_ref().map(|act| act.actor.clone()),
        });
    }

    pub fn log_leg(&mut self, what: What, at: At, direction: Direction, reason: Option<String>) {
        let leg = self.it.legs[at].clone();
        self.log(what, Some(&leg), Some(direction), reason);
    }

    pub fn log_saga(&mut self, what: What, reason: Option<String>) {
        self.log(what, None, None, reason);
    }

    /// Nothing changes, and that is recorded.
    pub fn ignore(&mut self, why: Idle) {
        self.out.verdict = Verdict::Ignored(why);
    }

    /// A person's act that is not possible.
    pub fn deny(&mut self, why: impl Into<String>) {
        self.out.verdict = Verdict::Denied(why.into());
    }
}
