//! What was scheduled goes to the outbox when it is due.
//!
//! ```text
//!   tx.schedule(event, when) ─COMMIT─▶ scheduled ──due, by the database's clock──▶ outbox ──▶ relay
//! ```
//!
//! An envelope moves in one transaction, so it is in one place or the other, and any number of
//! processes may look. It never moves early; how late it is depends on how often somebody looks.

use crate::service::Service;
use malote_core::{Store, StoreError, TimerStore};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Most envelopes that are moved in one transaction.
const MOST: u32 = 500;
/// Longest wait between two looks: what somebody else schedules for soon is not known of here.
const IDLE: Duration = Duration::from_secs(1);

/// Fires one service's timers in one process.
pub(crate) struct Timer<S: Store> {
    service: Arc<Service<S>>,
    stop: CancellationToken,
}

impl<S: TimerStore> Timer<S> {
    pub(crate) fn new(service: Arc<Service<S>>, stop: CancellationToken) -> Self {
        Self { service, stop }
    }

    /// Runs until stopped; an error of the store ends it. `beat` is called once a round.
    pub(crate) async fn run(&self, beat: impl Fn()) -> Result<(), StoreError> {
        while !self.stop.is_cancelled() {
            beat();
            let fired = self.service.store.fire(MOST).await?;
            if fired.moved > 0 {
                metrics::counter!("malote_scheduled_fired_total", "service" => self.service.name.to_string())
                    .increment(fired.moved.into());
            }
            if fired.moved < MOST {
                let wait = fired.next.unwrap_or(IDLE).clamp(Duration::from_millis(1), IDLE);
                self.stop.run_until_cancelled(tokio::time::sleep(wait)).await;
            }
        }
        Ok(())
    }
}
