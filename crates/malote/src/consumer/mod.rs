//! From the transport to the effect, once.
//!
//! ```text
//!   next ──▶ work ──▶ BEGIN · admit all · lanes · handlers · append all · COMMIT ──▶ acknowledge
//!                        │ any failure: ROLLBACK, then one by one (core::isolation)
//!                        ▼
//!                     parked with its key ──due──▶ retry.rs ──▶ handled, parked again, or a dead letter
//! ```
//!
//! Nothing is acknowledged before its transaction has committed, and a second delivery finds its
//! inbox row and does nothing. So a record may come twice and takes effect once.
//!
//! A message that kills the process is found so: each partition has a custodian in the store, which
//! gives it back when it ends in good order. Whoever takes over a partition that was never given back
//! handles its first records one by one and counts each run before it begins (custody.rs).

mod apart;
mod batch;
mod custody;
mod effects;
mod retry;
mod work;

pub(crate) use retry::Retrier;

use crate::{Outbox, service::Service, supervise::Beat, telemetry::metrics::messaging};
use chrono::{DateTime, Utc};
use custody::Custody;
use malote_core::{
    BoxFuture, Cause, Class, Delivery, FullStore, Incarnation, Place, Store, StoreError, Subscription, TransportError,
};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use work::{Trouble, Work};

/// A record over which processes died so many times is given up.
const DEATHS: u32 = 3;

/// A statement may take so long in any case: those of a whole batch are longer than a handler's.
const STATEMENT: Duration = Duration::from_secs(5);

/// Handles what comes for one service in one process.
pub(crate) struct Consumer<S: Store> {
    service: Arc<Service<S>>,
    outbox: Outbox<S>,
    who: Incarnation,
    beat: Beat,
    stop: CancellationToken,
    /// Told when something was parked.
    parked: Arc<Notify>,
}

impl<S: FullStore> Consumer<S> {
    pub(crate) fn new(service: Arc<Service<S>>, who: Incarnation, beat: Beat, parked: Arc<Notify>) -> Self {
        let (outbox, stop) = (service.outbox(), beat.stop().clone());
        Self { service, outbox, who, beat, stop, parked }
    }

    /// Runs until stopped; an error of the transport ends it, and its supervisor starts it again.
    pub(crate) async fn run(&self) -> Result<(), TransportError> {
        let topics = self.service.flow().topics();
        let joining = self.service.transport.subscribe(&self.service.name, &topics);
        let Some(subscription) = self.stop.run_until_cancelled(joining).await else { return Ok(()) };
        let mut subscription = subscription?;
        self.beat.working();
        let ended = self.consume(&mut *subscription).await;
        subscription.close().await;
        // nothing is under way any more; if this fails, whoever comes next is careful for nothing
        let _ = self.service.store.give_back(&self.service.name, self.who).await;
        ended
    }

    async fn consume(&self, subscription: &mut dyn Subscription) -> Result<(), TransportError> {
        let mut custody = Custody::default();
        loop {
            let coming = subscription.next(self.service.settings.batch);
            let Some(deliveries) = self.stop.run_until_cancelled(self.beat.idle(coming)).await else {
                return Ok(());
            };
            let deliveries = deliveries?;
            messaging::consumed(self.service.transport.system(), &self.service.name, &deliveries);
            let handled = last_places(&deliveries);
            if malote_core::planted::is("acknowledge-first") {
                subscription.acknowledge(&handled).await?;
            }
            if self.handle(deliveries, &mut custody).await.is_break() {
                return Ok(());
            }
            self.acknowledge(subscription, &handled).await?;
            self.beat.working();
        }
    }

    /// Acknowledges what is done, and notes how long that took.
    async fn acknowledge(&self, subscription: &mut dyn Subscription, done: &[Place]) -> Result<(), TransportError> {
        let begun = Instant::now();
        let acknowledged = subscription.acknowledge(done).await;
        let error = acknowledged.as_ref().err().map(|_| Class::Transient);
        messaging::operated(self.service.transport.system(), "commit", "settle", error, begun.elapsed());
        acknowledged
    }

    /// Deals with a batch to its end; breaks off only when told to stop while the store is away.
    async fn handle(&self, deliveries: Vec<Delivery>, custody: &mut Custody) -> ControlFlow<()> {
        let mut stalls = 0;
        while let Err(away) = custody::take(self, custody, &deliveries).await {
            stalls += 1;
            self.stalled(&away, self.service.settings.backoff.wait(stalls, fastrand::f64())).await?;
        }
        let suspects: Vec<bool> = deliveries.iter().map(|delivery| custody.is_suspect(&delivery.place)).collect();
        let mut runs: Vec<Vec<Work<'_, S>>> = Vec::new();
        for (delivery, suspect) in deliveries.into_iter().zip(suspects) {
            let Some(mut work) = Work::of(&self.service, delivery) else { continue };
            work.suspect = suspect;
            // handlers and effects keep their order among each other
            match runs.last_mut() {
                Some(run) if run[0].is_effect() == work.is_effect() => run.push(work),
                _ => runs.push(vec![work]),
            }
        }
        for run in runs {
            match run[0].is_effect() {
                true => self.call_all(run).await?,
                false => self.handle_all(&run).await?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Counts what has been committed.
    fn count(&self, handled: u64, duplicates: u64) {
        let name = self.service.name.to_string();
        metrics::counter!("malote_duplicates_total", "consumer" => name.clone()).increment(duplicates);
        metrics::counter!("malote_consumed_total", "consumer" => name).increment(handled);
    }

    async fn begin(&self) -> Result<S::Tx, StoreError> {
        self.begin_for(Cause::default()).await
    }

    /// A transaction for handlers: none of its statements outlasts the longest that one of them may take.
    async fn begin_for(&self, cause: Cause) -> Result<S::Tx, StoreError> {
        let most = self.service.longest().max(STATEMENT);
        self.service.store.begin_bounded(self.outbox.sealer(cause), most).await
    }

    fn now(&self) -> DateTime<Utc> {
        self.outbox.clock().now()
    }

    /// Does something with the store until it works; breaks when told to stop before.
    async fn until_it_works<'a, T>(
        &'a self,
        mut work: impl FnMut() -> BoxFuture<'a, Result<T, Trouble>>,
    ) -> ControlFlow<(), T> {
        let mut stalls = 0;
        loop {
            match work().await {
                Ok(done) => return ControlFlow::Continue(done),
                Err(away) => {
                    stalls += 1;
                    let wait = self.service.settings.backoff.wait(stalls, fastrand::f64());
                    self.stalled(&away, wait).await?;
                }
            }
        }
    }

    /// The store is away: says so and waits; breaks when told to stop.
    async fn stalled(&self, away: &Trouble, wait: Duration) -> ControlFlow<()> {
        tracing::warn!(service = %self.service.name, "nothing is handled for {wait:?}: {}", away.why());
        self.beat.failing(away.why());
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
