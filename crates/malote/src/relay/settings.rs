//! How a service's relay sends.

use crate::service::Service;
use malote_core::Store;
use std::time::Duration;

/// How a relay sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Most destinations that are kept apart.
    pub lanes: usize,
    /// How long to wait for the transport's answer.
    pub deadline: Duration,
    /// Most rows a second that are sent a second time.
    pub again: u32,
    /// Between two looks at what may go, and what will be needed.
    pub upkeep: Duration,
}

impl Default for Sending {
    fn default() -> Self {
        Self { lanes: 8, deadline: Duration::from_secs(60), again: 2_000, upkeep: Duration::from_secs(10) }
    }
}

/// How the outbox is moved.
impl<S: Store> Service<S> {
    /// How many topics have a publisher and a share of the rows under way to themselves, so that
    /// one that does not answer holds up no other (8 by default). More topics than that share.
    pub fn lanes(mut self, most: usize) -> Self {
        self.settings.sending.lanes = most.max(1);
        self
    }

    /// How long the transport may give no answer to what was sent, before it is sent again by
    /// another way (60 s by default). Longer than the transport's own limit.
    pub fn answered_within(mut self, deadline: Duration) -> Self {
        self.settings.sending.deadline = deadline;
        self
    }

    /// Most rows a second that are sent a second time after an outage (2,000 by default), whatever
    /// the number of replicas: one of them leads.
    pub fn resent_per_second(mut self, rows: u32) -> Self {
        self.settings.sending.again = rows.max(1);
        self
    }

    /// How often the relay lets published rows go, and makes the partitions that will be needed next
    /// (every 10 s by default; not under 100 ms), however busy it is.
    pub fn upkeep_every(mut self, time: Duration) -> Self {
        self.settings.sending.upkeep = time.max(Duration::from_millis(100));
        self
    }
}
