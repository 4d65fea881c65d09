//! What comes next, by how the steps stand: the same question after every input.
//!
//! ```text
//!   heading do                                     heading undo
//!   ──────────                                     ────────────
//!   a step refused or unknown                      a step is being undone ──▶ wait
//!     before the pivot, or the pivot refused       the last stage with something to undo ──▶ undo it
//!         ──▶ turn back                            nothing left
//!     otherwise ──▶ stuck                            all undone ──▶ compensated
//!   a step pending ──▶ wait                          some failed ──▶ stuck
//!   all done ──▶ next stage, or completed
//! ```

use super::{Asking, Direction, Leg, LegId, Status, StepState, What, turn::Turn};
impl<S> Turn<'_, S> {
    /// Goes on as far as it goes without another input.
    pub fn proceed(&mut self) {
        match self.it.heading {
            Direction::Do => self.forward(),
            Direction::Undo => self.unwind(),
        }
    }

    fn forward(&mut self) {
        while let Some(stage) = self.reached() {
            let legs = self.legs_of(stage);
            let failed = legs.iter().copied().find(|at| self.it.legs[*at].is_open(Direction::Do));
            if let Some(failed) = failed {
                let leg = &self.it.legs[failed];
                let reason = format!("{}: {}", leg.id, leg.state.reason().unwrap_or_default());
                return match self.may_turn_back() {
                    true => self.turn_back(reason),
                    false => self.stuck(reason),
                };
            }
            if legs.iter().any(|at| self.it.legs[*at].state.is_pending()) {
                return self.goes(Status::Running);
            }
            if stage + 1 >= self.saga.stages.len() {
                return self.end(Status::Completed, What::Completed);
            }
            self.enter(stage + 1);
        }
        match self.saga.stages.is_empty() {
            true => self.end(Status::Completed, What::Completed),
            false => {
                self.enter(0);
                self.forward();
            }
        }
    }

    /// The last stage of which a step was reached.
    pub fn reached(&self) -> Option<usize> {
        (0..self.it.legs.len()).filter_map(|at| self.step(at)).map(|(stage, _)| stage).max()
    }

    /// Asks for every step of a stage that the state calls for.
    fn enter(&mut self, stage: usize) {
        let saga = self.saga;
        let first = self.it.legs.len();
        for step in &saga.stages[stage] {
            let called = match crate::planted::is("saga-branch-not-left-out") && step.parts.is_none() {
                true => vec![LegId::of(&step.name)],
                false => step.called_for(&self.it.state),
            };
            if called.is_empty() {
                self.reach(LegId::of(&step.name), StepState::LeftOut);
            }
            for leg in called {
                self.reach(leg, StepState::Asked);
            }
        }
        for at in first..self.it.legs.len() {
            match self.it.legs[at].state {
                StepState::LeftOut => self.log_leg(What::LeftOut, at, Direction::Do, None),
                _ => self.ask(at, Direction::Do),
            }
        }
    }

    fn reach(&mut self, id: LegId, state: StepState) {
        let doing = Asking { attempt: 1, ..Asking::default() };
        self.it.legs.push(Leg { id, state, doing, undoing: None });
    }

    /// Whether the saga may still undo what it did by itself: up to the pivot, and when the pivot itself
    /// has definitely not been done.
    pub fn may_turn_back(&self) -> bool {
        let (Some(pivot), Some(reached)) = (self.saga.pivot(), self.reached()) else { return true };
        let refused =
            || self.legs_of(pivot).iter().all(|at| matches!(self.it.legs[*at].state, StepState::Refused { .. }));
        reached < pivot
            || (reached == pivot && (refused() || crate::planted::is("saga-pivot-silence-unwinds")))
            || (reached > pivot && crate::planted::is("saga-unwinds-after-pivot"))
    }

    /// Turns the saga back. Whatever has not answered yet may have been done, and is undone, too.
    pub fn turn_back(&mut self, reason: String) {
        self.it.heading = Direction::Undo;
        self.it.reason = Some(reason.clone());
        self.log_saga(What::TurnedBack, Some(reason));
        for at in 0..self.it.legs.len() {
            if self.it.legs[at].state.is_pending() {
                self.cancel_timer(at, Direction::Do);
                let reason = "the saga turned back before it answered".to_owned();
                self.log_leg(What::Unknown, at, Direction::Do, Some(reason.clone()));
                self.set(at, StepState::Unknown { reason });
            }
        }
        self.unwind();
    }

    /// Undoes stage by stage, the last one first. A compensation that has failed for good does not keep
    /// the earlier ones from being made: what can be put right is put right, and the rest is shown.
    fn unwind(&mut self) {
        let mut stages: Vec<usize> = (0..self.saga.stages.len()).rev().collect();
        if crate::planted::is("saga-undo-order") {
            stages.reverse();
        }
        for stage in stages {
            let legs = self.legs_of(stage);
            for at in &legs {
                if self.is_to_be_undone(*at) {
                    self.asking(*at, Direction::Undo).attempt = 1;
                    self.ask(*at, Direction::Undo);
                }
            }
            if legs.iter().any(|at| self.it.legs[*at].state.is_pending()) {
                return self.goes(Status::Compensating);
            }
            if crate::planted::is("saga-undo-failure-stops") && self.it.open().next().is_some() {
                break;
            }
        }
        let open: Vec<String> = self.it.open().map(|leg| leg.id.to_string()).collect();
        match open.is_empty() || crate::planted::is("saga-undo-failure-hidden") {
            true => self.end(Status::Compensated, What::Compensated),
            false => self.stuck(format!("not undone: {}", open.join(", "))),
        }
    }

    /// Only what was asked for and not definitely refused is undone.
    fn is_to_be_undone(&self, at: usize) -> bool {
        let leg = &self.it.legs[at];
        let asked = match leg.state {
            StepState::Done | StepState::Skipped => true,
            StepState::Unknown { .. } => !crate::planted::is("saga-late-success-ignored"),
            StepState::Refused { .. } => crate::planted::is("saga-refused-undone"),
            _ => false,
        };
        asked && self.step(at).is_some_and(|(_, step)| step.undo(&self.it.state, self.it.on_request).is_some())
    }

    fn goes(&mut self, status: Status) {
        if self.it.heading == Direction::Do {
            self.it.reason = None;
        }
        self.it.status = status;
    }

    /// Going back, the reason stays the one for turning back; what is open is seen by the steps.
    fn stuck(&mut self, reason: String) {
        if self.it.status != Status::Stuck {
            self.log_saga(What::Stuck, Some(reason.clone()));
        }
        if self.it.heading == Direction::Do {
            self.it.reason = Some(reason);
        }
        self.it.status = Status::Stuck;
    }

    /// Reaches a final status.
    pub fn end(&mut self, status: Status, what: What) {
        self.it.status = status;
        self.out.ended = Some(status);
        if status == Status::Completed {
            self.it.reason = None;
        }
        self.log_saga(what, self.it.reason.clone());
    }
}
