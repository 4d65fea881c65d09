//! Old rows go, whatever the load is.
//!
//! ```text
//!   every minute ──▶ lease `janitor NAME` ──▶ each kind: small steps, a pause after each ──▶ lease back
//! ```
//!
//! It has a clock and a budget of its own, so that rows go under load as when it is quiet, and one
//! process at a time does it: a lease, renewed between the steps, fences whoever comes too late.
//! Published rows of the outbox are the relay's affair, which knows what is published; and so are the
//! partitions ahead, except where a service leaves its outbox to others, whose relay knows nothing of the
//! partitions of this database's inbox.

use crate::service::Service;
use malote_core::{FullStore, Incarnation, Lease, Prune, StoreError, Taken, relay::Cursor};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(60);
/// Rows removed in one step.
const STEP: u32 = 1_000;
/// Steps of one kind in one round.
const STEPS: u32 = 200;
/// After each step, so that others get their turn.
const PAUSE: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(30);

/// Cleans up for one service in one process.
pub(crate) struct Janitor<S: FullStore> {
    service: Arc<Service<S>>,
    who: Incarnation,
    stop: CancellationToken,
}

impl<S: FullStore> Janitor<S> {
    pub(crate) fn new(service: Arc<Service<S>>, who: Incarnation, stop: CancellationToken) -> Self {
        Self { service, who, stop }
    }

    /// Runs until stopped; an error of the store ends it. `beat` is called between the steps, and
    /// `refused` with the reason for which the inbox is not cleaned up, or none.
    pub(crate) async fn run(&self, beat: impl Fn(), refused: impl Fn(Option<&str>)) -> Result<(), StoreError> {
        let name = format!("janitor {}", self.service.name);
        while !self.stop.is_cancelled() {
            beat();
            let refusal = self.refusal().await;
            refused(refusal.as_deref());
            metrics::gauge!("malote_janitor_refused", "service" => self.service.name.to_string())
                .set(if refusal.is_some() { 1.0 } else { 0.0 });
            if let Taken::Mine { lease, .. } = self.service.store.take_lease(&name, self.who, LEASE).await? {
                let done = self.round(&lease, refusal.is_none(), &beat).await;
                self.service.store.release_lease(&lease).await?;
                done?;
            }
            // not all of a service's processes at the same moment
            let wait = EVERY.mul_f64(0.75 + fastrand::f64() / 2.0);
            let resting = async {
                for _ in 0..wait.as_secs() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    beat();
                }
            };
            self.stop.run_until_cancelled(resting).await;
        }
        Ok(())
    }

    /// Why the inbox may not be cleaned up, if so.
    async fn refusal(&self) -> Option<String> {
        let service = &self.service;
        let retries = service.routes.values().map(|entry| entry.policy.unwrap_or(service.settings.retry).within).max();
        let topics = service.flow().topics();
        match service.transport.keeps(&topics).await {
            Ok(keeps) => service.settings.retention.check(keeps, retries.unwrap_or_default()).err(),
            Err(away) => Some(format!("nobody can say how long records are kept: {}", malote_core::chain(&away))),
        }
    }

    async fn round(&self, lease: &Lease, inbox_is_safe: bool, beat: &impl Fn()) -> Result<(), StoreError> {
        for kind in self.service.settings.retention.prunes(inbox_is_safe) {
            let removed = self.prune(lease, kind, beat).await?;
            if removed > 0 {
                tracing::debug!(service = %self.service.name, "removed {removed} rows of {}", kind.name());
            }
        }
        if !self.service.settings.relay && !malote_core::planted::is("nobody-ahead") {
            // nothing counts as published, so nothing goes
            let did = self.service.store.upkeep(&Cursor::default()).await?;
            tracing::debug!(service = %self.service.name, "upkeep: {did}");
        }
        metrics::counter!("malote_janitor_rounds_total", "service" => self.service.name.to_string()).increment(1);
        Ok(())
    }

    async fn prune(&self, lease: &Lease, kind: Prune, beat: &impl Fn()) -> Result<u64, StoreError> {
        let mut removed = 0;
        for _ in 0..STEPS {
            beat();
            let pruned = self.service.store.prune(kind, STEP, false).await?;
            removed += pruned.rows;
            metrics::counter!("malote_janitor_removed_total", "service" => self.service.name.to_string(), "kind" => kind.name())
                .increment(pruned.rows);
            if !pruned.more || self.stop.is_cancelled() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            match self.service.store.take_lease(&lease.name, self.who, LEASE).await? {
                Taken::Mine { lease: renewed, .. } if renewed.epoch == lease.epoch => {}
                _ => break,
            }
        }
        Ok(removed)
    }
}
