//! What holds after every single input, whatever it was.

use super::world::{Kept, World};
use malote_core::saga::{
    Answered, Decision, Deed, Direction, Idle, Input, Leg, LegId, Send, Status, StepKind, StepOutline, StepState,
    Verdict,
};
use std::collections::BTreeSet;

type Law = Result<(), String>;

/// `known` is how many sends there were before, `unchanged` whether the instance is byte for byte as it was.
pub(super) fn after<S: Kept>(world: &World<'_, S>, known: usize, decision: &Decision, unchanged: bool) -> Law {
    what_is_denied_changes_nothing(decision, unchanged)?;
    every_wait_has_its_own_timer(world)?;
    the_status_tells_the_truth(world)?;
    for (at, send) in world.sends.iter().enumerate().skip(known) {
        asked_anew_only_after_a_definite_answer(world, at, send)?;
        match send.address.operation.direction {
            Direction::Do => only_what_the_state_calls_for(world, send)?,
            Direction::Undo => undone_in_order(world, send)?,
        }
    }
    Ok(())
}

/// What people are told they may do is what they may do, and nothing else.
pub(super) fn what_may_be_done(possible: &[Deed], input: &Input, decision: &Decision) -> Law {
    let Input::Act(_, deed) = input else { return Ok(()) };
    let told = possible.iter().any(|may| match (may, deed) {
        (Deed::Retry { .. }, Deed::Retry { step: None }) => true,
        (Deed::Skip { step, .. }, Deed::Skip { step: other, .. }) => step == other,
        (Deed::Compensate, Deed::TurnBack) => true,
        (may, deed) => may == deed,
    });
    match (told, &decision.verdict) {
        // an answer may be missing, or none; to turn back is to compensate as long as nothing is asked of people
        (true, Verdict::Denied(why)) if !matches!(deed, Deed::Skip { .. } | Deed::TurnBack) => {
            broken("an act that is offered is possible", format!("{deed:?} was denied: {why}"))
        }
        (false, Verdict::Acted) => broken("an act that is possible is offered", format!("{deed:?}")),
        _ => Ok(()),
    }
}

fn broken(law: &str, what: impl std::fmt::Display) -> Law {
    Err(format!("law broken: {law}: {what}"))
}

fn what_is_denied_changes_nothing(decision: &Decision, unchanged: bool) -> Law {
    let silent = match &decision.verdict {
        Verdict::Acted => return Ok(()),
        Verdict::Ignored(why) => *why == Idle::NotOurs,
        Verdict::Denied(_) => true,
    };
    let nothing = decision.sends.is_empty() && decision.timers.is_empty() && decision.ended.is_none();
    match nothing && (!silent || (unchanged && decision.log.is_empty())) {
        true => Ok(()),
        false => broken("what is ignored or denied changes nothing", format!("{:?}", decision.verdict)),
    }
}

/// Nothing waits in silence, and no timer outlives what it was set for.
fn every_wait_has_its_own_timer<S: Kept>(world: &World<'_, S>) -> Law {
    let askings = world.instance.legs.iter().flat_map(|leg| std::iter::once(&leg.doing).chain(&leg.undoing));
    let of_legs: BTreeSet<&String> = askings.filter_map(|asking| asking.timer.as_ref()).collect();
    let set: BTreeSet<&String> = world.timers.keys().collect();
    if of_legs != set {
        return broken("a timer is set exactly while its step waits", format!("{set:?} are set, {of_legs:?} wait"));
    }
    let local = |leg: &Leg| {
        let last = world.sends.iter().rev().find(|send| send.address.operation.leg == leg.id);
        last.is_some_and(|send| send.local)
    };
    let waits = |leg: &&Leg| leg.asking(leg.direction()).is_some_and(|asking| asking.timer.is_some());
    if world.instance.status.is_final() {
        return match set.is_empty() {
            true => Ok(()),
            false => broken("a saga that has ended waits for nothing", format!("{set:?}")),
        };
    }
    match world.instance.pending().find(|leg| !waits(leg) && !local(leg)) {
        Some(leg) => broken("every wait has a deadline", &leg.id),
        None => Ok(()),
    }
}

fn the_status_tells_the_truth<S: Kept>(world: &World<'_, S>) -> Law {
    let it = &world.instance;
    let (pending, open) = (it.pending().count(), it.open().count());
    let begun = !world.log.is_empty();
    let complete =
        it.legs.iter().all(|leg| matches!(leg.state, StepState::Done | StepState::Skipped | StepState::LeftOut));
    let undoable = it.legs.iter().find(|leg| owes_undoing(world, leg));
    match it.status {
        Status::Running | Status::Compensating if begun && !it.legs.is_empty() && pending == 0 => {
            broken("what is under way waits for something", it.status.as_str())
        }
        Status::Running if it.heading == Direction::Undo => broken("a saga that turned back does not run", ""),
        Status::Completed if !complete => broken("completed means that every step is done", ""),
        Status::Compensated if open > 0 => broken("compensated means that nothing is left to undo", "a step is open"),
        Status::Compensated if undoable.is_some() => broken(
            "compensated means that nothing is left to undo",
            undoable.map_or(String::new(), |leg| leg.id.to_string()),
        ),
        Status::Stuck if open == 0 => broken("what is stuck says over which step", ""),
        _ => Ok(()),
    }
}

/// Asking again is the same operation in the same bytes; a further attempt follows a definite answer.
fn asked_anew_only_after_a_definite_answer<S: Kept>(world: &World<'_, S>, at: usize, send: &Send) -> Law {
    let operation = &send.address.operation;
    let earlier = &world.sends[..at];
    if let Some(first) = earlier.iter().find(|other| other.address.operation == *operation)
        && first.message != send.message
    {
        return broken("the same operation is asked in the same bytes", operation);
    }
    let last = earlier.iter().rev().find(|other| {
        other.address.operation.leg == operation.leg && other.address.operation.direction == operation.direction
    });
    let Some(last) = last.map(|last| &last.address.operation).filter(|last| *last != operation) else { return Ok(()) };
    match last.attempt + 1 == operation.attempt && world.history.definite(last) == Some(Answered::Refused) {
        true => Ok(()),
        false => broken("the attempt grows only after a definite answer", operation),
    }
}

fn only_what_the_state_calls_for<S: Kept>(world: &World<'_, S>, send: &Send) -> Law {
    let operation = &send.address.operation;
    let first = world.sends.iter().filter(|other| other.address.operation.leg == operation.leg).count() == 1;
    if first && !world.saga.called_for(&operation.leg.step, &world.instance.state).contains(&operation.leg) {
        return broken("a step that the state does not call for is left out", &operation.leg);
    }
    Ok(())
}

fn undone_in_order<S: Kept>(world: &World<'_, S>, send: &Send) -> Law {
    let leg = &send.address.operation.leg;
    let mut asked = world
        .sends
        .iter()
        .filter(|s| s.address.operation.direction == Direction::Do && s.address.operation.leg == *leg);
    let Some(last) = asked.next_back() else { return broken("nothing is undone that was not asked", leg) };
    let turned = &last.address.operation;
    if world.history.was_refused(turned) {
        return broken("nothing is undone that was refused", leg);
    }
    if !world.instance.on_request && passed_the_pivot(world) {
        return broken("after the pivot the saga goes forward only", leg);
    }
    let undone =
        |other: &&Send| other.address.operation.leg == *leg && other.address.operation.direction == Direction::Undo;
    if world.sends.iter().filter(undone).count() > 1 {
        return Ok(()); // asked again; its place in the order was the first time's
    }
    let stage = |id: &LegId| step(world, id).map_or(0, |step| step.stage);
    let later = world.instance.legs.iter().filter(|other| stage(&other.id) > stage(leg));
    match later.into_iter().find(|other| other.state.is_pending() || owes_undoing(world, other)) {
        Some(other) => broken("what was done last is undone first", format!("{leg} is undone before {}", other.id)),
        None => Ok(()),
    }
}

/// Whether the pivot was asked, and not definitely refused.
fn passed_the_pivot<S: Kept>(world: &World<'_, S>) -> bool {
    let pivot = world.outline.steps.iter().find(|step| step.kind == StepKind::Pivot);
    let leg = pivot.and_then(|pivot| world.instance.leg(&LegId::of(&pivot.name)));
    leg.is_some_and(|leg| !matches!(leg.state, StepState::Refused { .. }))
}

/// Whether it may have been done, has a compensation, and was not even asked to be undone.
fn owes_undoing<S: Kept>(world: &World<'_, S>, leg: &Leg) -> bool {
    let maybe_done = matches!(leg.state, StepState::Done | StepState::Skipped | StepState::Unknown { .. });
    let undos = step(world, &leg.id).map_or(&[][..], |step| &step.undone_by);
    maybe_done && undos.iter().any(|undo| !undo.on_request || world.instance.on_request)
}

pub(super) fn step<'w, S: Kept>(world: &'w World<'_, S>, id: &LegId) -> Option<&'w StepOutline> {
    world.outline.steps.iter().find(|step| step.name == id.step)
}
