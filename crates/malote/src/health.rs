//! Whether each part of the runtime is at work, for a readiness endpoint.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

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

/// The state of every part, by name (`payment relay`, `ledger consumer`).
#[derive(Clone, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<String, State>>>,
    changed: Arc<watch::Sender<()>>,
}

impl Health {
    pub(crate) fn set(&self, part: &str, state: State) {
        let changed = self.lock().insert(part.to_owned(), state.clone()) != Some(state);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Every part with its state.
    pub fn parts(&self) -> BTreeMap<String, State> {
        self.lock().clone()
    }

    /// Whether every part is at work or stands by.
    pub fn is_ready(&self) -> bool {
        let parts = self.lock();
        !parts.is_empty() && parts.values().all(|s| matches!(s, State::Working | State::Standby))
    }

    /// Waits until every part is at work or stands by.
    pub async fn ready(&self) {
        let mut changes = self.changed.subscribe();
        while !self.is_ready() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
