//! How each step of a saga stands: those that were reached, and those still to come.

use crate::out::{self, Cell, Color, plain, time};
use chrono::{DateTime, Utc};
use malote::saga::{Direction, Leg, Outline, Status, StepKind, StepOutline, StepState, Stored};
use serde::Serialize;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A step, or one part of it.
#[derive(Serialize)]
pub struct StepNow {
    /// Its name.
    step: String,
    /// What it is in the saga; none where no process has told the definition.
    kind: Option<StepKind>,
    /// How it stands.
    state: String,
    /// What it asks, or what was asked to undo it.
    command: Option<String>,
    /// How often that was asked.
    asked: u32,
    /// Its timer: an answer is awaited until then, or it is asked again then.
    due_at: Option<DateTime<Utc>>,
    /// What the timer is for: `deadline`, or `again`.
    due: Option<&'static str>,
    /// Why it stands so.
    reason: Option<String>,
}

/// The ids of the timers that are set, for the store.
pub fn timers(saga: &Stored) -> Vec<Uuid> {
    let askings = saga.legs.iter().flat_map(|leg| std::iter::once(&leg.doing).chain(&leg.undoing));
    askings.filter_map(|asking| asking.timer.as_ref()).map(|name| malote_core::saga::timer_id(saga.id, name)).collect()
}

/// Every step, in order.
pub fn of(saga: &Stored, outline: Option<&Outline>, due: &BTreeMap<Uuid, DateTime<Utc>>) -> Vec<StepNow> {
    let Some(outline) = outline else {
        return saga.legs.iter().map(|leg| reached(saga, leg, None, due)).collect();
    };
    let mut all = Vec::new();
    for step in &outline.steps {
        let legs = saga.legs.iter().filter(|leg| leg.id.step == step.name);
        let legs: Vec<_> = legs.map(|leg| reached(saga, leg, Some(step), due)).collect();
        if legs.is_empty() {
            all.push(to_come(saga, step));
        }
        all.extend(legs);
    }
    all
}

fn to_come(saga: &Stored, step: &StepOutline) -> StepNow {
    let goes_on = saga.heading == Direction::Do && !saga.status.is_final();
    StepNow {
        step: step.name.clone(),
        kind: Some(step.kind),
        state: if goes_on { "to come" } else { "not reached" }.into(),
        command: Some(step.asks.command.name.clone()),
        asked: 0,
        due_at: None,
        due: None,
        reason: None,
    }
}

fn reached(saga: &Stored, leg: &Leg, step: Option<&StepOutline>, due: &BTreeMap<Uuid, DateTime<Utc>>) -> StepNow {
    let direction = leg.direction();
    let asking = leg.asking(direction);
    let timer = asking.and_then(|asking| asking.timer.as_ref());
    let rests = matches!(leg.state, StepState::Resting | StepState::UndoResting { .. });
    let sent = asking.and_then(|asking| asking.sent.as_ref()).map(|sent| sent.kind.clone());
    let mut state = leg.state.as_str().to_owned();
    if is_to_be_undone(saga, leg, step) {
        state += ", to be undone";
    }
    StepNow {
        step: leg.id.to_string(),
        kind: step.map(|step| step.kind),
        state,
        command: sent.or_else(|| step.map(|step| step.asks.command.name.clone())),
        asked: asking.map_or(0, |asking| asking.asks),
        due_at: timer.and_then(|name| due.get(&malote_core::saga::timer_id(saga.id, name)).copied()),
        due: timer.map(|_| if rests { "again" } else { "deadline" }),
        reason: leg.state.reason().map(str::to_owned),
    }
}

/// Whether a saga that turned back has still to come to this step.
fn is_to_be_undone(saga: &Stored, leg: &Leg, step: Option<&StepOutline>) -> bool {
    let done = matches!(leg.state, StepState::Done | StepState::Skipped | StepState::Unknown { .. });
    let undone = |step: &StepOutline| step.undone_by.iter().any(|undo| saga.on_request || !undo.on_request);
    saga.status == Status::Compensating && done && step.is_some_and(undone)
}

/// For people.
pub fn table(steps: &[StepNow]) -> String {
    let rows = steps.iter().map(|step| {
        let state = Cell::new(&step.state);
        let next = match (step.due, step.due_at) {
            (None, _) => "-".to_owned(),
            // it has fired, and whoever handles it comes next
            (Some(_), None) => "now".to_owned(),
            (Some("again"), Some(at)) => format!("again at {}", time(at)),
            (Some(_), Some(at)) => format!("until {}", time(at)),
        };
        vec![
            out::text(&step.step),
            out::maybe(step.kind.map(StepKind::as_str)),
            if step.reason.is_some() { state.fg(Color::Red) } else { state },
            out::maybe(step.command.as_deref()),
            Cell::new(step.asked),
            Cell::new(next),
            // cut, it would be of no help
            Cell::new(step.reason.as_deref().map_or_else(|| "-".into(), plain)),
        ]
    });
    out::table(&["step", "kind", "state", "command", "asked", "waits", "reason"], rows)
}
