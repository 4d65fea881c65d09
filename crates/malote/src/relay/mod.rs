//! From the outbox to the transport, in order, at least once.
//!
//! ```text
//!                              ┌──▶ lane of topic a ──┐
//!   take the lease ──▶ read ──▶┤──▶ lane of topic b ──├──▶ reports ──▶ save the cursor ─┐
//!        ▲              ▲      └──▶ …                 ┘    (in doubt: read again)       │
//!        │              └─── next rows are read while these are sent ───────────────────┘
//!        └── lost it (fenced), or the lease is another's
//! ```
//!
//! One relay is active per outbox; the others stand by and take over when its lease ends. What to
//! read, what is settled, which gap may be forgotten and what has to wait for its lane is decided by
//! [`malote_core::relay::Traffic`].

mod asking;
mod claim;
mod counts;
mod lanes;
mod lead;
mod refused;
mod sender;
mod settings;

use crate::{Outbox, service::Service, supervise::Beat};
pub use claim::ClaimRelay;
use counts::Counts;
use lead::End;
use malote_core::{Cause, Failure, Incarnation, Lease, Store, StoreError, Taken, TransportError};
pub(crate) use settings::Sending;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Moves the outbox of one service, when it holds the lease.
pub(crate) struct Relay<S: Store> {
    service: Arc<Service<S>>,
    outbox: Outbox<S>,
    who: Incarnation,
    beat: Beat,
    stop: CancellationToken,
    counts: Counts,
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
    pub(crate) fn new(service: Arc<Service<S>>, who: Incarnation, beat: Beat) -> Self {
        let (outbox, stop) = (service.outbox(), beat.stop().clone());
        let counts = Counts::of(service.name.clone(), outbox.sealer(Cause::default()).clock);
        Self { service, outbox, who, beat, stop, counts }
    }

    /// Runs until stopped. Stands by while another holds the lease.
    pub(crate) async fn run(&self) -> Result<(), RelayError> {
        let settings = &self.service.settings;
        while !self.stop.is_cancelled() {
            self.beat.advanced();
            let asked = tokio::time::Instant::now();
            match self.service.store.take_lease(&self.service.name, self.who, settings.lease).await? {
                Taken::Theirs(left) => {
                    self.beat.standby();
                    self.counts.leads(false);
                    self.pause(left.clamp(Duration::from_millis(50), settings.lease / 2)).await;
                }
                Taken::Mine { cursor, last, .. }
                    if last < cursor.high && !malote_core::planted::is("trust-positions") =>
                {
                    return Err(RelayError::PositionsWentBack { last, high: cursor.high });
                }
                Taken::Mine { lease, cursor, .. } => {
                    tracing::info!(service = %self.service.name, epoch = lease.epoch, high = cursor.high, "relay leads");
                    let forgotten = malote_core::planted::is("cursor-forgotten");
                    let cursor = if forgotten { Default::default() } else { cursor };
                    self.counts.leads(true);
                    let ended = self.lead(&lease, cursor, asked).await;
                    self.counts.leads(false);
                    match ended {
                        Ok(End::Stopped) => self.give_back(&lease).await,
                        Ok(End::Fenced) => {
                            self.counts.fenced();
                            tracing::warn!(service = %self.service.name, epoch = lease.epoch, "relay was fenced");
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
