//! How a batch is tried: together first, then one by one, so that a bad message costs its own retry
//! only and the keys of the others go on.
//!
//! ```text
//!   together ──ok──▶ done
//!      │ any failure: rolled back
//!      ▼
//!   one by one, in order ──ok──▶ done
//!      │ a failure holds its key: later messages of that key wait behind it
//!      ▼
//!   the held ones again, after a delay that grows
//! ```

use crate::{Class, retry::Backoff};
use std::{collections::HashSet, time::Duration};

/// Decides for one batch. Members are named by their place in it.
#[derive(Debug)]
pub struct Isolation {
    keys: Vec<String>,
    left: Vec<usize>,
    attempts: Vec<u32>,
    together: bool,
}

/// What to do next with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run these in one transaction.
    Together(Vec<usize>),
    /// Run each of these in a transaction of its own, and tell how it went before the next.
    Alone(Vec<usize>),
    /// Nothing is left.
    Done,
}

/// How a member that ran alone came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Handled, or set aside: out of the batch.
    Over,
    /// To be tried again.
    Again,
}

impl Isolation {
    /// For a batch whose members have these ordering keys (topic and key).
    pub fn of(keys: Vec<String>) -> Self {
        let left = (0..keys.len()).collect();
        Self { attempts: vec![0; keys.len()], keys, left, together: true }
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        match (self.left.is_empty(), self.together) {
            (true, _) => Next::Done,
            (false, true) => Next::Together(self.left.clone()),
            (false, false) => Next::Alone(self.left.clone()),
        }
    }

    /// The joint attempt committed.
    pub fn committed(&mut self) {
        self.left.clear();
    }

    /// The joint attempt failed. A conflict is run again as it was; anything else one by one.
    pub fn failed(&mut self, class: Class) {
        self.together = class == Class::Conflict && self.attempts.iter().all(|a| *a < 3);
        self.attempts.iter_mut().for_each(|a| *a += u32::from(self.together));
        if !self.together {
            self.attempts.fill(0);
        }
    }

    /// A round of running alone is over: `verdicts` says how each came out that did run. Members
    /// behind a held one of their key must not have run; see [`Isolation::is_held`].
    pub fn round(&mut self, verdicts: &[(usize, Verdict)]) {
        for (member, verdict) in verdicts {
            match verdict {
                Verdict::Over => self.left.retain(|m| m != member),
                Verdict::Again => self.attempts[*member] += 1,
            }
        }
    }

    /// Whether a member must wait because an earlier one of its key is held in this round.
    pub fn is_held(&self, member: usize, held: &HashSet<usize>) -> bool {
        !crate::planted::is("key-not-held") && held.iter().any(|h| *h < member && self.keys[*h] == self.keys[member])
    }

    /// How long to wait before the next round, and with `dice` uniform in 0..1.
    pub fn wait(&self, backoff: &Backoff, dice: f64) -> Duration {
        let fewest = self.left.iter().map(|m| self.attempts[*m]).filter(|a| *a > 0).min().unwrap_or(0);
        if fewest == 0 { Duration::ZERO } else { backoff.wait(fewest, dice) }
    }

    /// How often a member has failed alone.
    pub fn attempts(&self, member: usize) -> u32 {
        self.attempts[member]
    }

    /// Which members are still to be handled.
    pub fn left(&self) -> &[usize] {
        &self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_message_holds_its_own_key_only() {
        let mut batch = Isolation::of(["a", "b", "a", "c"].map(String::from).to_vec());
        assert_eq!(batch.next(), Next::Together(vec![0, 1, 2, 3]));
        batch.failed(Class::Transient);
        assert_eq!(batch.next(), Next::Alone(vec![0, 1, 2, 3]));
        let held = HashSet::from([0]);
        assert!(batch.is_held(2, &held) && !batch.is_held(3, &held));
        batch.round(&[(0, Verdict::Again), (1, Verdict::Over), (3, Verdict::Over)]);
        assert_eq!(batch.next(), Next::Alone(vec![0, 2]));
        assert!(batch.wait(&Backoff::default(), 0.5) > Duration::ZERO);
        batch.round(&[(0, Verdict::Over), (2, Verdict::Over)]);
        assert_eq!(batch.next(), Next::Done);
    }

    #[test]
    fn a_conflict_is_run_again_together_but_not_for_ever() {
        let mut batch = Isolation::of(vec!["a".into(), "b".into()]);
        for _ in 0..3 {
            batch.failed(Class::Conflict);
            assert!(matches!(batch.next(), Next::Together(_)));
        }
        batch.failed(Class::Conflict);
        assert!(matches!(batch.next(), Next::Alone(_)));
    }
}
