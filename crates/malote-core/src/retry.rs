//! When to try again: exponential delay with full jitter, bounded.

use std::time::Duration;

/// How long to wait between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the first wait.
    pub first: Duration,
    /// Upper bound of any wait.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), most: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The wait before attempt `attempt + 1`, where `attempt` counts from 1 and `dice` is uniform in 0..1.
    ///
    /// Full jitter: anything between a floor and the bound, which doubles with each attempt, so that
    /// those who failed together do not come back together. The floor keeps a failure from being
    /// retried in a hot loop.
    pub fn wait(&self, attempt: u32, dice: f64) -> Duration {
        let bound =
            self.first.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX)).min(self.most);
        let floor = self.first.min(bound) / 10;
        floor + bound.saturating_sub(floor).mul_f64(dice.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_stay_bounded_and_are_never_nothing() {
        let backoff = Backoff::default();
        let mut last = Duration::ZERO;
        for attempt in 1..200 {
            let bound = backoff.wait(attempt, 1.0);
            assert!(bound >= last && bound <= backoff.most);
            assert!(backoff.wait(attempt, 0.0) > Duration::ZERO);
            last = bound;
        }
        assert_eq!(last, backoff.most);
    }
}
