//! From the outbox to the transport, in order, at least once.
//!
//! ```text
//!   take the lease ──▶ read ──▶ send ──▶ reports ──▶ save the cursor ─┐
//!        ▲              ▲  next batches are read while these are sent │
//!        │              └─────────────────────────────────────────────┘
//!        └── lost it (fenced), in doubt, or the lease is another's
//! ```
//!
//! One relay is active per outbox; the others stand by and take over when its lease ends. What to
//! read, what is settled and which gap may be forgotten is decided by [`malote_core::relay::Plan`].

mod claim;
mod lead;
mod refused;
mod sender;

use crate::{Health, Outbox, State, service::Service};
pub use claim::ClaimRelay;
use lead::End;
use malote_core::{Failure, Incarnation, Lease, Store, StoreError, Taken, TransportError};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Moves the outbox of one service, when it holds the lease.
pub(crate) struct Relay<S: Store> {
    service: Arc<Service<S>>,
    outbox: Outbox<S>,
    who: Incarnation,
    stop: CancellationToken,
}

/// Why a relay cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RelayError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(
        "the outbox has handed out positions up to {last}, and the relay had already come to {high}: the positions \
         have gone back (a restored copy, a reset sequence). Nothing is published, so that nothing is skipped. To \
         publish again all that the outbox holds, set high = 0 and gaps to empty in the relay's row; \
         consumers remove what they have handled"
    )]
    PositionsWentBack { last: i64, high: i64 },
}

impl<S: Store> Relay<S> {
    pub(crate) fn new(service: Arc<Service<S>>, who: Incarnation, stop: CancellationToken) -> Self {
        let outbox = service.outbox();
        Self { service, outbox, who, stop }
    }

    /// Runs until stopped. Stands by while another holds the lease.
    pub(crate) async fn run(&self, health: &Health, part: &str) -> Result<(), RelayError> {
        let mut doubts = 0;
        while !self.stop.is_cancelled() {
            let asked = tokio::time::Instant::now();
            match self.service.store.take_lease(&self.service.name, self.who, self.service.settings.lease).await? {
                Taken::Theirs(left) => {
                    health.set(part, State::Standby);
                    self.pause(left.clamp(Duration::from_millis(50), self.service.settings.lease / 2)).await;
                }
                Taken::Mine { cursor, last, .. }
                    if last < cursor.high && !malote_core::planted::is("trust-positions") =>
                {
                    return Err(RelayError::PositionsWentBack { last, high: cursor.high });
                }
                Taken::Mine { lease, cursor, .. } => {
                    health.set(part, State::Working);
                    tracing::info!(service = %self.service.name, epoch = lease.epoch, high = cursor.high, "relay leads");
                    let before = cursor.clone();
                    match self.lead(&lease, cursor, asked).await {
                        Ok(End::Stopped) => self.give_back(&lease).await,
                        Ok(End::Fenced) => {
                            tracing::warn!(service = %self.service.name, epoch = lease.epoch, "relay was fenced");
                        }
                        Ok(End::Doubt { why, cursor }) => {
                            doubts = if cursor == before { doubts + 1 } else { 1 };
                            let wait = self.service.settings.backoff.wait(doubts, fastrand::f64());
                            tracing::warn!(service = %self.service.name, "sending again what has no report, in {wait:?}: {why}");
                            health.set(part, State::Failing(why));
                            self.pause(wait).await;
                        }
                        Err(error) => {
                            self.give_back(&lease).await;
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn pause(&self, wait: Duration) {
        self.stop.run_until_cancelled(tokio::time::sleep(wait)).await;
    }

    /// So that a stand-by need not wait for the lease's end; if it fails, it waits.
    async fn give_back(&self, lease: &Lease) {
        if let Err(error) = self.service.store.release_lease(lease).await {
            tracing::debug!("the lease runs out by itself: {}", Failure::from(error));
        }
    }
}
