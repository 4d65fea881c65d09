//! When to try again: exponential delay with full jitter, bounded in number and in time.

use crate::Class;
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

/// How a message that fails is tried again, and when it is given up.
///
/// The defaults make up to 20 attempts within a day, at first after a fifth of a second and then less
/// and less often, at least every ten minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Most attempts, the first one included. What is deferred, and what met another transaction, does
    /// not count.
    pub attempts: u32,
    /// Longest time from the first failure to the last attempt.
    pub within: Duration,
    /// The waits between them.
    pub backoff: Backoff,
    /// How long one attempt may take; then it has failed.
    pub deadline: Duration,
    /// What becomes of the key after the last attempt.
    pub then: Then,
}

/// What becomes of a key when one of its messages is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Its later messages go on.
    #[default]
    GoOn,
    /// They wait until a person has redriven or discarded the dead letter.
    Hold,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 20,
            within: Duration::from_secs(24 * 3600),
            backoff: Backoff { first: Duration::from_millis(200), most: Duration::from_secs(600) },
            deadline: Duration::from_secs(30),
            then: Then::GoOn,
        }
    }
}

/// What to do with a message after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again after this time.
    Again(Duration),
    /// Give it up.
    GiveUp,
}

impl Policy {
    /// At most so many attempts.
    pub fn attempts(mut self, most: u32) -> Self {
        self.attempts = most.max(1);
        self
    }
    /// All within this time from the first failure.
    pub fn within(mut self, longest: Duration) -> Self {
        self.within = longest;
        self
    }
    /// With these waits.
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.backoff = Backoff { first, most };
        self
    }
    /// Each attempt in at most this time.
    pub fn deadline(mut self, longest: Duration) -> Self {
        self.deadline = longest;
        self
    }
    /// Hold the key after the last attempt, until a person decides.
    pub fn hold(mut self) -> Self {
        self.then = Then::Hold;
        self
    }

    /// Decides after `attempts` failed attempts, the first one `age` ago; `defer` is a wait that the
    /// handler asked for, and such an attempt is not to be counted in `attempts`.
    pub fn next(&self, class: Class, attempts: u32, age: Duration, defer: Option<Duration>, dice: f64) -> Next {
        if crate::planted::is("retry-for-ever") {
            return Next::Again(self.backoff.wait(attempts.max(1), dice));
        }
        match (class, defer) {
            (Class::Final, _) => Next::GiveUp,
            _ if age > self.within => Next::GiveUp,
            (_, Some(wait)) => Next::Again(wait),
            _ if attempts >= self.attempts => Next::GiveUp,
            _ => Next::Again(self.backoff.wait(attempts.max(1), dice)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_tried_a_bounded_number_of_times_and_for_a_bounded_time() {
        let policy = Policy::default().attempts(3).within(Duration::from_secs(60));
        let (now, late) = (Duration::from_secs(1), Duration::from_secs(61));
        let next = |class, attempts, age, defer| policy.next(class, attempts, age, defer, 0.5);
        assert!(matches!(next(Class::Transient, 2, now, None), Next::Again(_)));
        assert_eq!(next(Class::Transient, 3, now, None), Next::GiveUp);
        assert_eq!(next(Class::Transient, 1, late, None), Next::GiveUp);
        assert_eq!(next(Class::Final, 1, now, None), Next::GiveUp);
        let wait = Duration::from_secs(7);
        assert_eq!(next(Class::Transient, 99, now, Some(wait)), Next::Again(wait));
        assert_eq!(next(Class::Transient, 99, late, Some(wait)), Next::GiveUp);
    }

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
