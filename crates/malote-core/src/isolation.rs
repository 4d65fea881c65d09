//! How a batch is tried: together first; after a failure around the member that failed, so that a bad
//! message costs its own failure and its neighbours one more run.
//!
//! ```text
//!   a b c d e f g h   together: d fails, ROLLBACK
//!   a b c             together
//!         d           alone: handled, parked, or given up
//!           e f g h   together
//! ```
//!
//! Where nobody can tell which member it was (a constraint that is checked at COMMIT), each half is
//! tried. A conflict with another transaction is nobody's fault: run again as it was, a few times.

use crate::retry::Backoff;
use std::{ops::Range, time::Duration};

/// How often the same run is tried again at once when it meets another transaction.
pub const CONFLICTS: u32 = 5;

/// Decides for one batch. Members are named by their place in it.
#[derive(Debug)]
pub struct Isolation {
    /// What is left, in order; the next one last.
    left: Vec<Range<usize>>,
    conflicts: u32,
    stalls: u32,
}

/// What to do next with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run these in one transaction.
    Together(Range<usize>),
    /// Run this one in a transaction of its own.
    Alone(usize),
    /// Nothing is left.
    Done,
}

impl Isolation {
    /// For a batch of so many members.
    pub fn of(members: usize) -> Self {
        let all = 0..members;
        Self { left: if all.is_empty() { Vec::new() } else { vec![all] }, conflicts: 0, stalls: 0 }
    }

    /// For members that are to be run one by one.
    pub fn one_by_one(members: usize) -> Self {
        Self { left: (0..members).rev().map(|member| member..member + 1).collect(), conflicts: 0, stalls: 0 }
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        match self.left.last() {
            None => Next::Done,
            Some(run) if run.len() == 1 => Next::Alone(run.start),
            Some(run) => Next::Together(run.clone()),
        }
    }

    /// The present run is dealt with: its transaction committed, or its one member was parked or given up.
    pub fn dealt_with(&mut self) {
        self.left.pop();
        (self.conflicts, self.stalls) = (0, 0);
    }

    /// The present run failed over one of its members, or over one that nobody can name.
    pub fn failed(&mut self, over: Option<usize>) {
        let Some(run) = self.left.pop() else { return };
        self.conflicts = 0;
        let parts = match over.filter(|member| run.contains(member)) {
            Some(member) => [run.start..member, member..member + 1, member + 1..run.end],
            None => {
                let middle = run.start + run.len() / 2;
                [run.start..middle, middle..run.end, run.end..run.end]
            }
        };
        self.left.extend(parts.into_iter().rev().filter(|part| !part.is_empty()));
    }

    /// The present run met another transaction. It is tried again as it was, and after a few times in
    /// smaller parts; for a single member says whether it is to be tried again.
    pub fn conflicted(&mut self) -> bool {
        self.conflicts += 1;
        let again = self.conflicts < CONFLICTS;
        if !again && self.left.last().is_some_and(|run| run.len() > 1) {
            self.failed(None);
            return true;
        }
        again
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
    fn a_failure_is_taken_out_of_the_middle() {
        let mut batch = Isolation::of(8);
        assert_eq!(batch.next(), Next::Together(0..8));
        batch.failed(Some(3));
        assert_eq!(batch.next(), Next::Together(0..3));
        batch.dealt_with();
        assert_eq!(batch.next(), Next::Alone(3));
        assert!(batch.stalled(&Backoff::default(), 0.5) > Duration::ZERO);
        assert_eq!(batch.next(), Next::Alone(3));
        batch.dealt_with();
        assert_eq!(batch.next(), Next::Together(4..8));
    }

    #[test]
    fn a_conflict_is_run_again_as_it_was_but_not_for_ever() {
        let mut batch = Isolation::of(4);
        for _ in 1..CONFLICTS {
            assert!(batch.conflicted());
            assert_eq!(batch.next(), Next::Together(0..4));
        }
        assert!(batch.conflicted());
        assert_eq!(batch.next(), Next::Together(0..2));
        let mut alone = Isolation::one_by_one(1);
        assert_eq!((0..CONFLICTS).filter(|_| alone.conflicted()).count(), 4);
    }

    proptest! {
        /// Whatever fails, each member is dealt with once, in order, and the bad ones alone.
        #[test]
        fn every_member_is_dealt_with_once_in_order(
            bad in proptest::collection::vec(any::<bool>(), 0..60),
            named in any::<bool>(),
        ) {
            let (mut batch, mut dealt) = (Isolation::of(bad.len()), Vec::new());
            let mut runs = 0;
            loop {
                runs += 1;
                prop_assert!(runs < 10 * (bad.len() + 1));
                match batch.next() {
                    Next::Done => break,
                    Next::Alone(member) => {
                        dealt.push(member);
                        batch.dealt_with();
                    }
                    Next::Together(run) => match run.clone().find(|member| bad[*member]) {
                        Some(over) => batch.failed(named.then_some(over)),
                        None => {
                            dealt.extend(run);
                            batch.dealt_with();
                        }
                    },
                }
            }
            prop_assert_eq!(dealt, (0..bad.len()).collect::<Vec<_>>());
        }
    }
}
