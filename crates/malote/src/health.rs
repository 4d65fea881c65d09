//! Whether each part of the runtime is at work, for a readiness endpoint.
//!
//! Readiness is progress, not life. A part that failed counts as failing until it has got somewhere
//! again and has kept at it for a while: else one that dies each time right after it came up would
//! look healthy in between.
//!
//! ```text
//!   Starting ──▶ Working ──fails──▶ Failing ──works──▶ still shown as Failing ──calm──▶ Working
//!                                      ▲                         │
//!                                      └────────── fails ────────┘  (the calm asked for doubles)
//! ```

use malote_core::{planted, retry::Backoff};
use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// What a part of the runtime is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not at work yet.
    Starting,
    /// At work.
    Working,
    /// Alive beside another that does the work.
    Standby,
    /// Not at work, with the reason.
    Failing(String),
}

impl State {
    fn is_well(&self) -> bool {
        matches!(self, Self::Working | Self::Standby)
    }
}

/// The state of every part, by name (`payment relay`, `ledger consumer`).
#[derive(Clone, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<String, Part>>>,
    changed: Arc<watch::Sender<()>>,
}

/// One part: what it says of itself, and what is held against it.
struct Part {
    says: State,
    trouble: Option<Trouble>,
}

/// What a part failed of, until that is long enough ago.
struct Trouble {
    why: String,
    /// Failures with no longer calm between them than [`Backoff::most`].
    times: u32,
    well_since: Option<Instant>,
    /// How long it must have been well to count as well.
    calm: Duration,
    /// How long it must have been well to begin with a clean record.
    forgotten_after: Duration,
}

impl Health {
    /// Sets the state of a part as it is. For facts that are looked up, such as the age of a row;
    /// tasks, whose word needs proof, are reported by their supervisor.
    pub fn set(&self, part: &str, state: State) {
        let mut parts = self.lock();
        let known = parts.insert(part.to_owned(), Part { says: state.clone(), trouble: None });
        let changed = known.is_none_or(|known| known.trouble.is_some() || known.says != state);
        self.tell(changed);
    }

    /// Takes in what a task says of itself. What failed before must prove itself for a time that
    /// grows with `backoff`.
    pub(crate) fn report(&self, part: &str, state: State, backoff: Backoff) {
        let mut parts = self.lock();
        let part = parts.entry(part.to_owned()).or_insert(Part { says: State::Starting, trouble: None });
        part.take(&state, backoff, Instant::now());
        let changed = part.says != state;
        part.says = state;
        self.tell(changed);
    }

    fn tell(&self, changed: bool) {
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Every part with its state.
    pub fn parts(&self) -> BTreeMap<String, State> {
        let now = Instant::now();
        self.lock().iter().map(|(name, part)| (name.clone(), part.state(now))).collect()
    }

    /// Whether every part is at work or stands by.
    pub fn is_ready(&self) -> bool {
        let now = Instant::now();
        let parts = self.lock();
        !parts.is_empty() && parts.values().all(|part| part.state(now).is_well())
    }

    /// Waits until every part is at work or stands by.
    pub async fn ready(&self) {
        let mut changes = self.changed.subscribe();
        while !self.is_ready() {
            let calm = self.next_calm();
            let calm = async {
                match calm {
                    Some(left) => sleep(left).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = calm => {}
            }
        }
    }

    /// When the next part will have been well for long enough.
    fn next_calm(&self) -> Option<Duration> {
        let now = Instant::now();
        self.lock().values().filter_map(|part| part.trouble.as_ref()?.left(now)).min()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    fn take(&mut self, state: &State, backoff: Backoff, now: Instant) {
        self.trouble = self.trouble.take().filter(|trouble| !trouble.is_forgotten(now));
        match (state, &mut self.trouble) {
            (State::Failing(why), trouble) => {
                // one that has not been well in between has not failed anew
                let again = trouble.as_ref().map_or(1, |t| t.times.saturating_add(t.well_since.is_some().into()));
                *trouble = Some(Trouble {
                    why: why.clone(),
                    times: again,
                    well_since: None,
                    calm: backoff.wait(again, 1.0),
                    forgotten_after: backoff.most,
                });
            }
            (state, Some(trouble)) if state.is_well() => {
                trouble.well_since.get_or_insert(now);
            }
            _ => {}
        }
    }

    fn state(&self, now: Instant) -> State {
        match &self.trouble {
            Some(trouble) if self.says.is_well() && trouble.left(now).is_some() && !planted::is("ready-at-once") => {
                State::Failing(format!("at work again, and watched for {:?}, after: {}", trouble.calm, trouble.why))
            }
            _ => self.says.clone(),
        }
    }
}

impl Trouble {
    /// How long it still has to be well; none when it was, or is not.
    fn left(&self, now: Instant) -> Option<Duration> {
        let since = self.well_since?;
        self.calm.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        self.well_since.is_some_and(|since| now.saturating_duration_since(since) > self.forgotten_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(8) };

    /// A part and a clock that is turned by hand.
    struct Hand(Part, Instant);

    impl Hand {
        fn new() -> Self {
            Self(Part { says: State::Starting, trouble: None }, Instant::now())
        }
        fn says(&mut self, state: State) {
            self.0.take(&state, BACKOFF, self.1);
            self.0.says = state;
        }
        fn fails_and_comes_up(&mut self) {
            self.says(State::Failing("it panicked".into()));
            self.says(State::Working);
        }
        fn after(&mut self, millis: u64) -> bool {
            self.1 += Duration::from_millis(millis);
            self.0.state(self.1).is_well()
        }
    }

    #[test]
    fn what_failed_is_ready_after_it_was_well_for_a_while() {
        let mut part = Hand::new();
        part.says(State::Working);
        assert!(part.after(0), "nothing is held against one that never failed");
        part.fails_and_comes_up();
        assert!(!part.after(0) && !part.after(999) && part.after(1));
    }

    #[test]
    fn ac_015_one_that_fails_whenever_it_has_come_up_never_looks_healthy() {
        let mut part = Hand::new();
        for time in 0..10 {
            part.fails_and_comes_up();
            // each time it keeps up a little longer
            assert!(!part.after(900 * (1 << time.min(3))), "time {time}");
        }
    }

    #[test]
    fn a_long_calm_makes_a_clean_record() {
        let mut part = Hand::new();
        (0..10).for_each(|_| part.fails_and_comes_up());
        assert!(!part.after(7_000) && part.after(2_000));
        part.says(State::Failing("the broker is away".into()));
        part.says(State::Standby);
        assert!(!part.after(900) && part.after(100));
    }

    #[tokio::test]
    async fn a_fact_counts_as_it_is() {
        let health = Health::default();
        health.set("outbox", State::Failing("the oldest row waits since an hour".into()));
        assert!(!health.is_ready());
        health.set("outbox", State::Working);
        health.ready().await;
    }
}
