//! The history is a path: intents come before outcomes, each operation has one answer, nothing is missing.

use malote_core::saga::{Answered, Direction, Entry, LegId, OperationId, Send, What};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// What the entries so far say.
#[derive(Default)]
pub(super) struct History {
    entries: u64,
    asked: BTreeSet<OperationId>,
    answered: BTreeMap<OperationId, Answered>,
    /// Legs whose last definite answer, before anything was asked to undo them, was a refusal.
    refused: BTreeSet<LegId>,
}

impl History {
    /// Reads further entries of an instance, with the sends that belong to them.
    pub fn read(&mut self, saga: Uuid, entries: &[Entry], sends: &[Send]) -> Result<(), String> {
        let mut sends = sends.iter();
        for entry in entries {
            self.entries += 1;
            if entry.n != self.entries {
                return broken("entries are numbered without gaps", entry);
            }
            let Some(operation) = entry.operation(saga) else { continue };
            match entry.what {
                What::Asked if sends.next().map(|send| &send.address.operation) != Some(&operation) => {
                    return broken("every intent in the history is sent", entry);
                }
                What::Asked => drop(self.asked.insert(operation)),
                What::Done | What::Refused | What::Silent | What::Unreadable => self.outcome(entry, operation)?,
                _ => {}
            }
        }
        match sends.next() {
            None => Ok(()),
            Some(send) => Err(format!("law broken: what is sent is in the history: {}", send.address.operation)),
        }
    }

    fn outcome(&mut self, entry: &Entry, operation: OperationId) -> Result<(), String> {
        if !self.asked.contains(&operation) {
            return broken("an outcome follows its intent", entry);
        }
        let answer = match entry.what {
            What::Done => Answered::Done,
            What::Refused => Answered::Refused,
            _ => return Ok(()),
        };
        if operation.direction == Direction::Do && !self.undo_asked(&operation.leg) {
            match answer {
                Answered::Refused => drop(self.refused.insert(operation.leg.clone())),
                Answered::Done => drop(self.refused.remove(&operation.leg)),
            }
        }
        match self.answered.insert(operation, answer) {
            None => Ok(()),
            Some(_) => broken("an operation is answered once", entry),
        }
    }

    fn undo_asked(&self, leg: &LegId) -> bool {
        self.asked.iter().any(|operation| operation.direction == Direction::Undo && operation.leg == *leg)
    }

    /// The definite answer to an operation.
    pub fn definite(&self, operation: &OperationId) -> Option<Answered> {
        self.answered.get(operation).copied()
    }

    /// Whether there was definitely nothing to undo when the undoing of a leg was asked; a refusal that
    /// comes later is too late for that, and does no harm.
    pub fn was_refused(&self, operation: &OperationId) -> bool {
        self.definite(operation) == Some(Answered::Refused) && self.refused.contains(&operation.leg)
    }
}

fn broken(law: &str, entry: &Entry) -> Result<(), String> {
    Err(format!("law broken: {law}: entry {}", entry.n))
}
