//! From the transport to the effect, once.
//!
//! ```text
//!   next ──▶ work ──▶ BEGIN · admit all · lanes · handlers · append all · COMMIT ──▶ acknowledge
//!                        │ any failure: ROLLBACK, then one by one (core::isolation)
//!                        ▼
//!                     parked with its key ──due──▶ retry.rs ──▶ handled, parked again, or a dead letter
//! ```
//!
//! Effects call the outside between transactions, side by side, while the next batches come
//! (underway.rs). Nothing is acknowledged before its transaction has committed, nor before all that
//! lies ahead of it in its partition (progress.rs); a second delivery finds its inbox row and does
//! nothing. So a record may come twice and takes effect once.
//!
//! A message that kills the process is found so: each partition has a custodian in the store, which
//! gives it back when it ends in good order. Whoever takes over a partition that was never given back
//! counts each run of its first records before it begins, and runs alone what is blamed (custody.rs).

mod apart;
mod batch;
mod custody;
mod effects;
mod progress;
mod retry;
mod underway;
mod work;

pub(crate) use retry::Retrier;

use crate::{Outbox, service::Service, supervise::Beat, telemetry::metrics::messaging};
use chrono::{DateTime, Utc};
use custody::Custody;
use malote_core::{
    BoxFuture, Cause, Class, Delivery, FullStore, Incarnation, Place, Store, StoreError, Subscription, TransportError,
    planted,
};
use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use underway::Underway;
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
    /// One for each lane that may be at work.
    places: Semaphore,
    /// Whoever deals with what may have killed a process has it.
    alone: Semaphore,
}

impl<S: FullStore> Consumer<S> {
    pub(crate) fn new(service: Arc<Service<S>>, who: Incarnation, beat: Beat, parked: Arc<Notify>) -> Self {
        let (outbox, stop) = (service.outbox(), beat.stop().clone());
        let places = if planted::is("effects-unlimited") { Semaphore::MAX_PERMITS } else { service.settings.effects };
        let (places, alone) = (Semaphore::new(places.min(Semaphore::MAX_PERMITS)), Semaphore::new(1));
        Self { service, outbox, who, beat, stop, parked, places, alone }
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
        let mut underway = Underway::of(self);
        let at_work = async {
            let ended = self.take_on(subscription, &mut underway).await;
            // what has begun is finished and counts, however it came to an end
            underway.all_ended().await;
            ended
        };
        // what takes longer than there is time is given up and handed back, as nothing that died
        let ended = tokio::select! {
            ended = at_work => ended,
            () = self.time_is_up() => Ok(()),
        };
        let acknowledged = self.acknowledge(subscription, &underway.progress.settled()).await;
        ended.and(acknowledged)
    }

    /// Resolves when what was told to stop has to be done.
    async fn time_is_up(&self) {
        self.stop.cancelled().await;
        if planted::is("stop-waits-for-calls") {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.beat.time_to_finish()).await;
    }

    /// Takes what comes, until stopped.
    async fn take_on<'c>(
        &'c self,
        subscription: &mut dyn Subscription,
        underway: &mut Underway<'c, S>,
    ) -> Result<(), TransportError> {
        let (mut custody, mut held) = (Custody::default(), Vec::new());
        loop {
            let ((full, room), idle) = (underway.room(), underway.is_empty());
            if full != held {
                subscription.hold(&full);
                held = full;
            }
            let coming = async {
                match idle {
                    true => self.beat.idle(subscription.next(room)).await,
                    false => subscription.next(room).await,
                }
            };
            let deliveries = tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                true = underway.ended() => Vec::new(),
                coming = coming, if room > 0 => coming?,
            };
            if !deliveries.is_empty() {
                messaging::consumed(self.service.transport.system(), &self.service.name, &deliveries);
                deliveries.iter().for_each(|delivery| underway.progress.take(&delivery.place));
                if planted::is("acknowledge-first") {
                    deliveries.iter().for_each(|delivery| underway.progress.done(&delivery.place));
                    subscription.acknowledge(&underway.progress.settled()).await?;
                }
                if self.handle(deliveries, &mut custody, underway).await.is_break() {
                    return Ok(());
                }
            }
            let settled = underway.progress.settled();
            underway.meanwhile(self.acknowledge(subscription, &settled)).await?;
            self.beat.working();
        }
    }

    /// Acknowledges what is done, and notes how long that took.
    async fn acknowledge(&self, subscription: &mut dyn Subscription, done: &[Place]) -> Result<(), TransportError> {
        if done.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let acknowledged = subscription.acknowledge(done).await;
        let error = acknowledged.as_ref().err().map(|_| Class::Transient);
        messaging::operated(self.service.transport.system(), "commit", "settle", error, begun.elapsed());
        acknowledged
    }

    /// Deals with a batch: its handlers to their end, its effects until they are under way; what may have killed
    /// a process is under way, too. Breaks off only when told to stop while the store is away.
    async fn handle<'c>(
        &'c self,
        deliveries: Vec<Delivery>,
        custody: &mut Custody,
        underway: &mut Underway<'c, S>,
    ) -> ControlFlow<()> {
        let mut stalls = 0;
        while let Err(away) = underway.meanwhile(custody::take(self, custody, &deliveries)).await {
            stalls += 1;
            let wait = self.service.settings.backoff.wait(stalls, fastrand::f64());
            underway.meanwhile(self.stalled(&away, wait)).await?;
        }
        let mut works = Vec::new();
        for delivery in deliveries {
            let (place, suspect) = (delivery.place.clone(), custody.is_suspect(&delivery.place));
            match Work::of(&self.service, delivery) {
                Some(mut work) => {
                    work.suspect = suspect;
                    works.push(work);
                }
                None => underway.progress.done(&place),
            }
        }
        let blamed = underway.meanwhile(self.until_it_works(|| Box::pin(custody::blamed(self, &works)))).await?;
        works.iter_mut().zip(&blamed).for_each(|(work, blamed)| work.blamed = *blamed);
        let (handlers, begin) = underway.split(works);
        underway.meanwhile(self.handle_all(&handlers)).await?;
        handlers.iter().filter_map(|work| work.place.as_ref()).for_each(|place| underway.progress.done(place));
        begin.into_iter().for_each(|lane| underway.turn(lane));
        if planted::is("suspects-hold-up-all") && blamed.contains(&true) {
            underway.all_ended().await;
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
