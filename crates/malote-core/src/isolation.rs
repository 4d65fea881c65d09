//! How a batch is tried: together first, then one by one, so that a bad message costs its own failure
//! only.
//!
//! ```text
//!   together ──ok──▶ done
//!      │ any failure: rolled back
//!      ▼
//!   one by one, in order: each is handled, parked, or given up
//!      │ the store is away: nobody can be handled or parked
//!      ▼
//!   the rest again, after a delay that grows
//! ```

use crate::{Class, retry::Backoff};
use std::time::Duration;

/// How often a batch, or a member alone, is run again at once when it meets another transaction.
pub const CONFLICTS: u32 = 5;

/// Decides for one batch. Members are named by their place in it.
#[derive(Debug)]
pub struct Isolation {
    /// The first member that is not dealt with; those before it are.
    next: usize,
    members: usize,
    together: bool,
    conflicts: u32,
    stalls: u32,
}

/// What to do next with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run all of them in one transaction.
    Together,
    /// Run this one in a transaction of its own.
    Alone(usize),
    /// Nothing is left.
    Done,
}

impl Isolation {
    /// For a batch of so many members.
    pub fn of(members: usize) -> Self {
        Self { next: 0, members, together: true, conflicts: 0, stalls: 0 }
    }

    /// For members that are to be run one by one from the first on.
    pub fn one_by_one(members: usize) -> Self {
        Self { together: false, ..Self::of(members) }
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        match (self.next < self.members, self.together) {
            (false, _) => Next::Done,
            (true, true) => Next::Together,
            (true, false) => Next::Alone(self.next),
        }
    }

    /// The joint attempt committed.
    pub fn committed(&mut self) {
        self.next = self.members;
    }

    /// The joint attempt failed. A conflict is run again as it was, a few times; anything else one by one.
    pub fn failed(&mut self, class: Class) {
        self.conflicts += 1;
        self.together = class == Class::Conflict && self.conflicts < CONFLICTS;
    }

    /// The member that ran alone is dealt with: handled, parked or given up.
    pub fn dealt_with(&mut self) {
        self.next += 1;
        self.stalls = 0;
    }

    /// The store is away: nothing could be done with the member. Returns how long to wait, with `dice`
    /// uniform in 0..1.
    pub fn stalled(&mut self, backoff: &Backoff, dice: f64) -> Duration {
        self.stalls += 1;
        backoff.wait(self.stalls, dice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_looked_for_one_by_one_in_order() {
        let mut batch = Isolation::of(3);
        assert_eq!(batch.next(), Next::Together);
        batch.failed(Class::Transient);
        for member in 0..3 {
            assert_eq!(batch.next(), Next::Alone(member));
            let wait = batch.stalled(&Backoff::default(), 0.5);
            assert!(wait > Duration::ZERO);
            assert_eq!(batch.next(), Next::Alone(member));
            batch.dealt_with();
        }
        assert_eq!(batch.next(), Next::Done);
    }

    #[test]
    fn a_conflict_is_run_again_together_but_not_for_ever() {
        let mut batch = Isolation::of(2);
        for _ in 1..CONFLICTS {
            batch.failed(Class::Conflict);
            assert_eq!(batch.next(), Next::Together);
        }
        batch.failed(Class::Conflict);
        assert_eq!(batch.next(), Next::Alone(0));
    }
}
