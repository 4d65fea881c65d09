//! Which acts a person may do to an instance now, told from the outline alone: for whoever looks at a store
//! without the service's code. What is done is decided by [`Saga::advance`](super::Saga::advance).

use super::{Deed, Direction, Instance, Leg, Outline, Status, StepKind, StepState};

impl Outline {
    /// The acts that would not be denied. A [`Deed::Skip`] that goes forward needs an answer, which is not in
    /// it; see [`answer_of`](Self::answer_of).
    pub fn possible<S>(&self, it: &Instance<S>) -> Vec<Deed> {
        let mut deeds = Vec::new();
        let steps: Vec<String> = it.waiting().iter().map(ToString::to_string).collect();
        if !it.status.is_final() {
            if steps.len() > 1 {
                deeds.push(Deed::Retry { step: None });
            }
            deeds.extend(steps.iter().map(|step| Deed::Retry { step: Some(step.clone()) }));
            deeds.extend(steps.iter().map(|step| Deed::Skip { step: step.clone(), answer: None }));
        }
        if self.may_compensate(it) {
            deeds.push(Deed::Compensate);
        }
        if !it.status.is_final() {
            deeds.push(Deed::Abandon);
        }
        deeds
    }

    /// The type of the answer that a [`Deed::Skip`] of this step has to give; none where it needs none.
    pub fn answer_of<S>(&self, it: &Instance<S>, step: &str) -> Option<&str> {
        let leg = it.legs.iter().find(|leg| leg.id.to_string() == step)?;
        let outline = self.steps.iter().find(|outline| outline.name == leg.id.step)?;
        (leg.direction() == Direction::Do).then_some(&outline.asks.done.name)
    }

    fn may_compensate<S>(&self, it: &Instance<S>) -> bool {
        let ended = it.status.is_final() && it.status != Status::Completed;
        !ended && it.heading == Direction::Do && (self.may_turn_back(it) || it.legs.iter().all(|leg| self.undoes(leg)))
    }

    /// As the saga's own question of this name.
    fn may_turn_back<S>(&self, it: &Instance<S>) -> bool {
        let pivot = self.steps.iter().find(|step| step.kind == StepKind::Pivot).map(|step| step.stage);
        let stage = |leg: &Leg| self.steps.iter().find(|step| step.name == leg.id.step).map(|step| step.stage);
        let (Some(pivot), Some(reached)) = (pivot, it.legs.iter().filter_map(stage).max()) else { return true };
        let refused = |leg: &Leg| matches!(leg.state, StepState::Refused { .. });
        reached < pivot || (reached == pivot && it.legs.iter().filter(|leg| stage(leg) == Some(pivot)).all(refused))
    }

    /// Whether something undoes a leg, at least when a person asks, or there is nothing to undo.
    fn undoes(&self, leg: &Leg) -> bool {
        let step = self.steps.iter().find(|step| step.name == leg.id.step);
        matches!(leg.state, StepState::Refused { .. } | StepState::LeftOut)
            || step.is_some_and(|step| step.nothing_to_undo || !step.undone_by.is_empty())
    }
}
