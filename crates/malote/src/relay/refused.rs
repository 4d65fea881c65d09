//! Rows of an adopted table that the transport refused, and when each may be claimed again.
//!
//! A refused row stays unpublished, and is the oldest: claimed again at once, a batch full of such rows
//! would be all that is ever claimed. So each waits, longer every time, and after the last attempt for
//! as long as this relay runs. Nothing is stored: the table is somebody else's.

use malote_core::{planted, retry::Backoff};
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// Rows that are remembered at most. One that is refused beyond that is claimed again at once.
const MOST: usize = 10_000;

/// What is remembered of the rows, by the table's own ids.
pub(super) struct Refused {
    rows: HashMap<String, Row>,
    backoff: Backoff,
    attempts: u32,
}

struct Row {
    attempts: u32,
    /// When it may be claimed again; never when none.
    again: Option<Instant>,
}

/// What follows from a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is tried again after this long.
    After(Duration),
    /// It was tried as often as it may be.
    GivenUp,
}

impl Refused {
    pub(super) fn new(backoff: Backoff, attempts: u32) -> Self {
        Self { rows: HashMap::new(), backoff, attempts }
    }

    /// Takes note of a refusal; `dice` is uniform in 0..1.
    pub(super) fn note(&mut self, id: &str, now: Instant, dice: f64) -> Next {
        if self.rows.len() >= MOST && !self.rows.contains_key(id) {
            return Next::After(Duration::ZERO);
        }
        let row = self.rows.entry(id.to_owned()).or_insert(Row { attempts: 0, again: None });
        row.attempts += 1;
        let wait = self.backoff.wait(row.attempts, dice);
        let last = row.attempts >= self.attempts && !planted::is("claim-refused-for-ever");
        row.again = (!last).then(|| now + wait);
        if last { Next::GivenUp } else { Next::After(wait) }
    }

    /// Forgets a row that was published after all.
    pub(super) fn forget(&mut self, id: &str) {
        self.rows.remove(id);
    }

    /// The rows that are not to be claimed now.
    pub(super) fn waiting(&self, now: Instant) -> Vec<String> {
        if planted::is("claim-refused-first") {
            return Vec::new();
        }
        let waits = |row: &Row| row.again.is_none_or(|again| again > now);
        self.rows.iter().filter(|(_, row)| waits(row)).map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_refused_row_waits_longer_each_time_and_is_given_up_at_last() {
        let mut refused = Refused::new(Backoff { first: SECOND, most: 60 * SECOND }, 4);
        let mut now = Instant::now();
        for wait in [1, 2, 4] {
            assert_eq!(refused.note("a", now, 1.0), Next::After(wait * SECOND));
            assert_eq!(refused.waiting(now), ["a"]);
            now += wait * SECOND;
            assert!(refused.waiting(now).is_empty(), "its time has come");
        }
        assert_eq!(refused.note("a", now, 1.0), Next::GivenUp);
        assert_eq!(refused.waiting(now + 10_000 * SECOND), ["a"]);
        refused.forget("a");
        assert!(refused.waiting(now).is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut refused = Refused::new(Backoff::default(), 3);
        let now = Instant::now();
        for n in 0..MOST + 5 {
            refused.note(&n.to_string(), now, 0.5);
        }
        assert_eq!(refused.waiting(now).len(), MOST);
    }
}
