//! From the transport to the effect, once.
//!
//! ```text
//!   next ──▶ sort ──▶ BEGIN · admit all · handlers · append all · COMMIT ──▶ acknowledge
//!                        │ any failure: ROLLBACK, then one by one (core::isolation)
//! ```
//!
//! Nothing is acknowledged before its transaction has committed, and a second delivery finds its
//! inbox row and does nothing. So a record may come twice and takes effect once.

mod batch;
mod effects;

use crate::{Health, Outbox, State, service::Service};
use batch::Work;
use malote_core::{Delivery, Place, Store, Subscription, TransportError};
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Handles what comes for one service in one process.
pub(crate) struct Consumer<S: Store> {
    service: Arc<Service<S>>,
    outbox: Outbox<S>,
    stop: CancellationToken,
}

impl<S: Store> Consumer<S> {
    pub(crate) fn new(service: Arc<Service<S>>, stop: CancellationToken) -> Self {
        let outbox = service.outbox();
        Self { service, outbox, stop }
    }

    /// Runs until stopped; an error of the transport ends it, and its supervisor starts it again.
    pub(crate) async fn run(&self, health: &Health, part: &str) -> Result<(), TransportError> {
        let topics = self.service.flow().topics();
        let joining = self.service.transport.subscribe(&self.service.name, &topics);
        let Some(subscription) = self.stop.run_until_cancelled(joining).await else { return Ok(()) };
        let mut subscription = subscription?;
        health.set(part, State::Working);
        let ended = self.consume(&mut *subscription).await;
        subscription.close().await;
        ended
    }

    async fn consume(&self, subscription: &mut dyn Subscription) -> Result<(), TransportError> {
        loop {
            let coming = subscription.next(self.service.settings.batch);
            let Some(deliveries) = self.stop.run_until_cancelled(coming).await else { return Ok(()) };
            let deliveries = deliveries?;
            let handled = last_places(&deliveries);
            if malote_core::planted::is("acknowledge-first") {
                subscription.acknowledge(&handled).await?;
            }
            if self.handle(deliveries).await.is_break() {
                return Ok(());
            }
            subscription.acknowledge(&handled).await?;
        }
    }

    /// Handles a batch to its end; breaks off only when told to stop while something has to be tried again.
    async fn handle(&self, deliveries: Vec<Delivery>) -> ControlFlow<()> {
        let work: Vec<Work<'_, S>> = deliveries.into_iter().filter_map(|d| self.sort(d)).collect();
        // handlers and effects keep their order among each other
        for run in work.chunk_by(|a, b| a.is_effect() == b.is_effect()) {
            match run.first().is_some_and(Work::is_effect) {
                true => self.call_all(run).await?,
                false => self.handle_all(run).await?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Waits before another attempt; breaks when told to stop.
    async fn pause(&self, wait: std::time::Duration) -> ControlFlow<()> {
        match self.stop.run_until_cancelled(tokio::time::sleep(wait)).await {
            Some(()) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }
}

/// The last place of each partition of a batch.
fn last_places(deliveries: &[Delivery]) -> Vec<Place> {
    let mut last: BTreeMap<(&str, i32), &Place> = BTreeMap::new();
    for delivery in deliveries {
        let place = &delivery.place;
        last.entry((&place.topic, place.partition))
            .and_modify(|p| {
                if (p.assignment, p.offset) < (place.assignment, place.offset) {
                    *p = place;
                }
            })
            .or_insert(place);
    }
    last.into_values().cloned().collect()
}
