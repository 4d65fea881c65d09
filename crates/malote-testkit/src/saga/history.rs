//! The history is a path: intents come before outcomes, each operation has one answer, nothing is missing.

use super::world::{Kept, World};
use malote_core::saga::{Answered, Entry, OperationId, What};
use std::collections::BTreeSet;

pub(super) fn check<S: Kept>(world: &World<'_, S>) -> Result<(), String> {
    let broken = |law: &str, entry: &Entry| Err(format!("law broken: {law}: entry {}", entry.n));
    let mut asked = BTreeSet::new();
    let mut answered = BTreeSet::new();
    let mut sent = 0;
    for (at, entry) in world.log.iter().enumerate() {
        if entry.n != at as u64 + 1 {
            return broken("entries are numbered without gaps", entry);
        }
        let operation = entry.operation(world.instance.id);
        match (entry.what, operation) {
            (What::Asked, Some(operation)) => {
                if world.sends.get(sent).map(|send| &send.address.operation) != Some(&operation) {
                    return broken("every intent in the history is sent, and nothing else is", entry);
                }
                sent += 1;
                asked.insert(operation);
            }
            (What::Done | What::Refused | What::Silent | What::Unreadable, Some(operation)) => {
                if !asked.contains(&operation) {
                    return broken("an outcome follows its intent", entry);
                }
                let definite = matches!(entry.what, What::Done | What::Refused);
                if definite && !answered.insert(operation) {
                    return broken("an operation is answered once", entry);
                }
            }
            _ => {}
        }
    }
    match sent == world.sends.len() {
        true => Ok(()),
        false => Err("law broken: every intent in the history is sent, and nothing else is".into()),
    }
}

/// The definite answer to an operation, as the history has it.
pub(super) fn definite<S: Kept>(world: &World<'_, S>, operation: &OperationId) -> Option<Answered> {
    world.log.iter().rev().find_map(|entry| {
        let answer = match entry.what {
            What::Done => Answered::Done,
            What::Refused => Answered::Refused,
            _ => return None,
        };
        (entry.operation(world.instance.id).as_ref() == Some(operation)).then_some(answer)
    })
}

/// Whether a refusal came before the first attempt to undo: what comes later is undone for nothing, and
/// that is harmless.
pub(super) fn refused_before_undo<S: Kept>(world: &World<'_, S>, operation: &OperationId) -> bool {
    let of_leg = |entry: &&Entry| entry.leg.as_ref() == Some(&operation.leg);
    let first = world.log.iter().filter(of_leg).find(|entry| {
        entry.what == What::Refused && entry.direction == Some(malote_core::saga::Direction::Do)
            || entry.what == What::Asked && entry.direction == Some(malote_core::saga::Direction::Undo)
    });
    first.is_some_and(|entry| entry.what == What::Refused)
}
