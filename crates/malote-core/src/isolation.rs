//! How a batch is tried: together first; after a failure with its members kept apart by savepoints of one
//! transaction, so that a bad message costs its own failure and its neighbours one or two more runs.
//!
//! ```text
//!   a b c d e f g h     together: d fails, ROLLBACK
//!   a b c|d|e f g h     apart: d is undone and parked or given up, the others stand, COMMIT
//! ```
//!
//! Where a COMMIT fails and nobody can tell over which member (a constraint that is checked late), each
//! half is tried. A conflict with another transaction is nobody's fault: run again as it was, a few times.

use crate::retry::Backoff;
use std::{ops::Range, time::Duration};

/// How often the same run is tried again at once when it meets another transaction.
pub const CONFLICTS: u32 = 5;

/// Decides for one batch. Members are named by their place in it.
#[derive(Debug)]
pub struct Isolation {
    /// What is left, in order; the next one last.
    left: Vec<Range<usize>>,
    /// Whether members are kept apart.
    apart: bool,
    conflicts: u32,
    stalls: u32,
}

/// What to do next with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run these in one transaction.
    Together(Range<usize>),
    /// Run these in one transaction, so that one that fails takes none of the others along.
    Apart(Range<usize>),
    /// Nothing is left.
    Done,
}

impl Isolation {
    /// For a batch of so many members.
    pub fn of(members: usize) -> Self {
        let all = 0..members;
        Self { left: if all.is_empty() { Vec::new() } else { vec![all] }, apart: false, conflicts: 0, stalls: 0 }
    }

    /// For members that are to be run one by one.
    pub fn one_by_one(members: usize) -> Self {
        let left = (0..members).rev().map(|member| member..member + 1).collect();
        Self { left, apart: true, conflicts: 0, stalls: 0 }
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        match self.left.last() {
            None => Next::Done,
            Some(run) if self.apart || run.len() == 1 => Next::Apart(run.clone()),
            Some(run) => Next::Together(run.clone()),
        }
    }

    /// The present run is dealt with.
    pub fn dealt_with(&mut self) {
        self.left.pop();
        (self.conflicts, self.stalls) = (0, 0);
    }

    /// The present run failed. Together: it is run apart. Apart: its halves are; of a single member
    /// nothing more can be told, and it is left as it is (false).
    pub fn failed(&mut self) -> bool {
        self.conflicts = 0;
        let halve = self.apart || self.left.last().is_some_and(|run| run.len() == 1);
        self.apart = true;
        match self.left.last().cloned() {
            Some(run) if halve && run.len() > 1 => {
                let middle = run.start + run.len() / 2;
                self.left.pop();
                self.left.extend([middle..run.end, run.start..middle]);
                true
            }
            _ => !halve,
        }
    }

    /// The present run met another transaction. It is tried again as it was, and after a few times in
    /// other ways; for a single member says whether it is to be tried again.
    pub fn conflicted(&mut self) -> bool {
        self.conflicts += 1;
        self.conflicts < CONFLICTS || self.failed()
    }

    /// The store is away: the present run is tried again. Returns how long to wait before, with `dice`
    /// uniform in 0..1.
    pub fn stalled(&mut self, backoff: &Backoff, dice: f64) -> Duration {
        self.stalls += 1;
        backoff.wait(self.stalls, dice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn after_a_failure_members_are_kept_apart() {
        let mut batch = Isolation::of(8);
        assert_eq!(batch.next(), Next::Together(0..8));
        assert!(batch.failed());
        assert_eq!(batch.next(), Next::Apart(0..8));
        assert!(batch.stalled(&Backoff::default(), 0.5) > Duration::ZERO);
        assert_eq!(batch.next(), Next::Apart(0..8));
        batch.dealt_with();
        assert_eq!(batch.next(), Next::Done);
    }

    #[test]
    fn a_conflict_is_run_again_as_it_was_but_not_for_ever() {
        let mut batch = Isolation::of(4);
        for _ in 1..CONFLICTS {
            assert!(batch.conflicted());
            assert_eq!(batch.next(), Next::Together(0..4));
        }
        assert!(batch.conflicted());
        assert_eq!(batch.next(), Next::Apart(0..4));
        let mut alone = Isolation::one_by_one(1);
        assert_eq!((0..CONFLICTS).filter(|_| alone.conflicted()).count(), 4);
    }

    proptest! {
        /// Whatever fails late, each member is dealt with once, in order, and the bad ones alone.
        #[test]
        fn every_member_is_dealt_with_once_in_order(bad in proptest::collection::vec(any::<bool>(), 0..60)) {
            let (mut batch, mut dealt, mut runs) = (Isolation::of(bad.len()), Vec::new(), 0);
            loop {
                runs += 1;
                prop_assert!(runs < 10 * (bad.len() + 1));
                match batch.next() {
                    Next::Done => break,
                    Next::Together(run) | Next::Apart(run) => {
                        if run.clone().any(|member| bad[member]) && batch.failed() {
                            continue;
                        }
                        dealt.extend(run);
                        batch.dealt_with();
                    }
                }
            }
            prop_assert_eq!(dealt, (0..bad.len()).collect::<Vec<_>>());
        }
    }
}
