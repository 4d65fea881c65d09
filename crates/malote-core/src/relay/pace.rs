//! How fast to go after things went wrong.
//!
//! When a destination comes back after an outage, everything that waited for it goes out at once,
//! from everybody, and it falls over again. So a lane that was in doubt starts with a small batch
//! that grows with what is stored ([`Pace`]), and what is sent again is sent at a bounded rate
//! ([`Budget`]). A relay has one leader, so neither grows with the number of replicas.

use std::time::Duration;

/// Rows that are sent first after a doubt.
const FIRST: usize = 16;

/// How many rows of a lane may be under way: all of its share, or less after a doubt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    now: usize,
    share: usize,
}

impl Pace {
    pub(super) fn full(share: usize) -> Self {
        Self { now: share, share }
    }

    /// The share follows the size of the rows.
    pub(super) fn resize(&mut self, share: usize) {
        if self.now == self.share {
            self.now = share;
        }
        self.share = share;
        self.now = self.now.min(share);
    }

    /// Something is in doubt: begin anew, small.
    pub(super) fn shrink(&mut self) {
        self.now = FIRST.min(self.share);
    }

    /// So many rows were stored: as many more may be under way.
    pub(super) fn grow(&mut self, stored: usize) {
        self.now = self.now.saturating_add(stored).min(self.share);
    }

    pub(super) fn rows(&self) -> usize {
        self.now
    }
}

/// Rows that may be sent again, at so many a second; a tenth of that in one go.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    per_second: f64,
    saved: f64,
    /// When `saved` was right, on a clock that the caller chose.
    at: Duration,
}

impl Budget {
    /// Begins with nothing saved at `now`. At least one row a second is allowed.
    pub fn new(per_second: u32, now: Duration) -> Self {
        Self { per_second: f64::from(per_second.max(1)), saved: 0.0, at: now }
    }

    /// How many rows may be sent again now.
    pub fn allows(&mut self, now: Duration) -> usize {
        let since = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.saved = (self.saved + since * self.per_second).min((self.per_second / 10.0).max(1.0));
        self.saved.max(0.0) as usize
    }

    /// So many were.
    pub fn spend(&mut self, rows: usize) {
        self.saved -= rows as f64;
    }

    /// When it will allow a useful number of rows, if nothing is spent until then.
    pub fn next(&self) -> Duration {
        let wanted = (self.per_second / 40.0).max(1.0);
        self.at + Duration::from_secs_f64(((wanted - self.saved) / self.per_second).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_begins_small_and_doubles() {
        let mut window = Pace::full(1_000);
        window.shrink();
        let mut sizes = Vec::new();
        while window.rows() < 1_000 {
            sizes.push(window.rows());
            window.grow(window.rows());
        }
        assert_eq!(sizes, [16, 32, 64, 128, 256, 512]);
    }

    #[test]
    fn a_window_follows_its_share() {
        let mut window = Pace::full(100);
        window.resize(200);
        assert_eq!(window.rows(), 200);
        window.shrink();
        window.resize(8);
        assert_eq!(window.rows(), 8);
    }

    proptest! {
        #[test]
        fn a_budget_is_kept_in_every_second(
            rate in 1u32..5_000,
            takes in proptest::collection::vec((0u64..300, 0usize..1_000), 1..200),
        ) {
            let (mut now, mut budget) = (Duration::ZERO, Budget::new(rate, Duration::ZERO));
            let mut spent: Vec<(Duration, usize)> = Vec::new();
            for (pause, want) in takes {
                now += Duration::from_millis(pause);
                let rows = want.min(budget.allows(now));
                budget.spend(rows);
                spent.push((now, rows));
            }
            for (from, _) in &spent {
                let second = spent.iter().filter(|(at, _)| at >= from && *at < *from + Duration::from_secs(1));
                let rows: usize = second.map(|(_, rows)| rows).sum();
                prop_assert!(rows as f64 <= f64::from(rate) * 1.1 + 1.0, "{rows} rows in the second from {from:?}");
            }
        }

        #[test]
        fn a_budget_allows_something_when_it_said_it_would(rate in 1u32..5_000, spend in 0usize..10_000) {
            let mut budget = Budget::new(rate, Duration::from_secs(1));
            budget.allows(Duration::from_secs(2));
            budget.spend(spend);
            let next = budget.next() + Duration::from_micros(1);
            prop_assert!(budget.allows(next.max(Duration::from_secs(2))) >= 1);
        }
    }
}
