//! What a relay counts.

use malote_core::{Clock, Envelope, Report};
use metrics::{counter, gauge, histogram};
use std::sync::Arc;

/// The counters of one service's relay.
#[derive(Clone)]
pub(super) struct Counts {
    service: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl Counts {
    pub(super) fn of(service: Arc<str>, clock: Arc<dyn Clock>) -> Self {
        Self { service, clock }
    }

    /// A batch has its reports: what is stored is published.
    pub(super) fn published(&self, batch: &[Envelope], reports: &[Report]) {
        let (now, lag) = (self.clock.now(), histogram!("malote_publish_seconds", "service" => self.service.clone()));
        let mut published = 0;
        for (envelope, _) in batch.iter().zip(reports).filter(|(_, report)| **report == Report::Stored) {
            lag.record((now - envelope.time).to_std().unwrap_or_default());
            published += 1;
        }
        counter!("malote_published_total", "service" => self.service.clone()).increment(published);
    }

    /// So many rows were handed over that may have been before.
    pub(super) fn sent_again(&self, rows: usize) {
        if rows > 0 {
            counter!("malote_resent_total", "service" => self.service.clone()).increment(rows as u64);
        }
    }

    /// Somebody else has the lease that this one believed to have.
    pub(super) fn fenced(&self) {
        counter!("malote_fenced_total", "service" => self.service.clone()).increment(1);
    }

    /// Whether this one leads.
    pub(super) fn leads(&self, leads: bool) {
        gauge!("malote_relay_leader", "service" => self.service.clone()).set(if leads { 1.0 } else { 0.0 });
    }
}
