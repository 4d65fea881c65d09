//! What a person may do, and why not where they may not. Nothing is changed by an act that is denied.

use super::{
    Answered, Deed, Direction, Status, StepState, What,
    exchange::Heard,
    turn::{At, Turn},
};
use crate::inspect::Act;

impl<S> Turn<'_, S> {
    pub(super) fn act(&mut self, act: Act, deed: Deed) {
        if act.reason.trim().is_empty() || act.actor.trim().is_empty() {
            return self.deny("an act needs somebody who does it, and a reason");
        }
        let status = self.it.status;
        if status.is_final() && !(status == Status::Completed && deed == Deed::Compensate) {
            return self.deny(format!("the saga has ended: it is {}", status.as_str()));
        }
        self.by = Some(act);
        match deed {
            Deed::Retry { step } => self.retry(step.as_deref()),
            Deed::Skip { step, answer } => self.skip(&step, answer.as_deref().map(str::as_bytes)),
            Deed::Compensate => self.compensate(true),
            Deed::TurnBack => self.compensate(crate::planted::is("saga-turns-back-past-pivot")),
            Deed::Abandon => self.abandon(),
        }
    }

    /// The steps that wait, or keep the saga from going on; of this name, where one is given.
    fn choose(&mut self, name: Option<&str>) -> Vec<At> {
        let heading = self.it.heading;
        let can: Vec<At> = (0..self.it.legs.len())
            .filter(|at| self.it.legs[*at].state.is_pending() || self.it.legs[*at].is_open(heading))
            .collect();
        let chosen: Vec<At> =
            can.iter().copied().filter(|at| name.is_none_or(|n| self.it.legs[*at].id.to_string() == n)).collect();
        if chosen.is_empty() {
            let names: Vec<String> = can.iter().map(|at| format!("{:?}", self.it.legs[*at].id.to_string())).collect();
            self.deny(match (name, names.is_empty()) {
                (_, true) => "no step waits or stands still".to_owned(),
                (name, false) => {
                    format!(
                        "{:?} neither waits nor stands still: choose {}",
                        name.unwrap_or_default(),
                        names.join(" or ")
                    )
                }
            });
        }
        chosen
    }

    fn reason(&self) -> Option<String> {
        self.by.as_ref().map(|act| act.reason.clone())
    }

    fn retry(&mut self, name: Option<&str>) {
        let chosen = self.choose(name);
        if chosen.is_empty() {
            return;
        }
        for at in chosen {
            let direction = self.it.legs[at].direction();
            self.cancel_timer(at, direction);
            let asking = self.asking(at, direction);
            (asking.failures, asking.waited_ms) = (0, 0);
            self.log_leg(What::Retried, at, direction, self.reason());
            self.ask_again(at, direction);
        }
        self.proceed();
    }

    fn skip(&mut self, name: &str, answer: Option<&[u8]>) {
        let Some(at) = self.choose(Some(name)).first().copied() else { return };
        let direction = self.it.legs[at].direction();
        if let Err(why) = self.take_answer(at, direction, answer) {
            return self.deny(why);
        }
        self.cancel_timer(at, direction);
        self.asking(at, direction).answer = Some(Answered::Done);
        self.log_leg(What::Skipped, at, direction, self.reason());
        let state = match direction {
            Direction::Do => StepState::Skipped,
            Direction::Undo => StepState::Undone,
        };
        self.set(at, state);
        self.proceed();
    }

    fn take_answer(&mut self, at: At, direction: Direction, answer: Option<&[u8]>) -> Result<(), String> {
        let Some((_, step)) = self.step(at) else { return Err("the step is not in the definition".into()) };
        let sent = self.it.legs[at].asking(direction).and_then(|asking| asking.sent.as_ref());
        let exchange = match direction {
            Direction::Do => Some(&step.forward),
            Direction::Undo => sent.and_then(|sent| step.undo_by_kind(&sent.kind)).map(|undo| &undo.exchange),
        };
        let (Some(exchange), Some(answer)) = (exchange, answer) else {
            return match direction {
                Direction::Undo => Ok(()),
                Direction::Do => {
                    Err(format!("later steps lean on the answer: give it, as JSON of {}", step.forward.types.done.name))
                }
            };
        };
        let part = self.it.legs[at].id.part().to_owned();
        match exchange.hear(&mut self.it.state, &part, &exchange.types.done.name, answer) {
            Heard::Done => Ok(()),
            Heard::Unreadable(why) => Err(format!("the answer cannot be taken: {why}")),
            Heard::Refused(_) | Heard::Other => Err("the answer is not one that says it is done".into()),
        }
    }

    fn compensate(&mut self, past_the_pivot: bool) {
        if self.it.heading == Direction::Undo {
            return self.deny("it is being undone already: retry or skip what is open, or abandon it");
        }
        if !self.may_turn_back() {
            if !past_the_pivot {
                return self.deny("past the pivot, from where it goes forward only");
            }
            let lacking = self.cannot_be_undone();
            if !lacking.is_empty() {
                let names = lacking.join(", ");
                return self
                    .deny(format!("past the pivot, and nothing says how to undo {names}: retry, skip or abandon"));
            }
            self.it.on_request = true;
        }
        let reason = self.by.as_ref().map(|act| format!("{} asked for it: {}", act.actor, act.reason));
        self.turn_back(reason.unwrap_or_default());
    }

    /// Steps that may have been done and have no compensation, not even on request.
    fn cannot_be_undone(&self) -> Vec<String> {
        let undone = |at: &At| {
            let leg = &self.it.legs[*at];
            matches!(leg.state, StepState::Refused { .. } | StepState::LeftOut)
                || self
                    .step(*at)
                    .is_some_and(|(_, step)| step.nothing_to_undo || step.undo(&self.it.state, true).is_some())
        };
        let legs = (0..self.it.legs.len()).filter(|at| !undone(at));
        legs.map(|at| self.it.legs[at].id.to_string()).collect()
    }

    fn abandon(&mut self) {
        self.cancel_all();
        self.it.reason = self.reason();
        self.end(Status::Abandoned, What::Abandoned);
    }
}
