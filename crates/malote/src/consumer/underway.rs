//! Effects that are under way while the consumer goes on.
//!
//! ```text
//!   taken ──▶ handlers of free lanes ──▶ done with their batch
//!        └──▶ effects, and what comes behind one in its lane ──▶ turns, side by side ──▶ done one by one
//! ```
//!
//! A call that takes long holds up its own lane and nothing else. What is done is acknowledged up to the
//! oldest record that is not, so a process that dies leaves no more behind than one batch of a partition.

use super::{Consumer, progress::Progress, work::Work};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use malote_core::{BoxFuture, FullStore, Lane, Place, Store, planted};
use std::{
    collections::{HashMap, hash_map::Entry},
    future::Future,
    ops::ControlFlow,
    pin::pin,
    sync::Arc,
};
use tokio::sync::Semaphore;

/// The lanes in which something is under way, and what has been taken and is not acknowledged.
pub(super) struct Underway<'c, S: Store> {
    consumer: &'c Consumer<S>,
    /// With what came since, and waits for its turn.
    lanes: HashMap<Lane, Vec<Work<'c, S>>>,
    turns: FuturesUnordered<BoxFuture<'c, Turn>>,
    /// One for each lane that may be at work.
    permits: Arc<Semaphore>,
    pub(super) progress: Progress,
}

/// Some records of a lane, dealt with in order; broken off only at a stop.
struct Turn {
    lane: Lane,
    places: Vec<Place>,
    flow: ControlFlow<()>,
}

impl<'c, S: FullStore> Underway<'c, S> {
    pub(super) fn of(consumer: &'c Consumer<S>) -> Self {
        let unlimited = planted::is("effects-unlimited");
        let at_once = if unlimited { Semaphore::MAX_PERMITS } else { consumer.service.settings.effects };
        let permits = Arc::new(Semaphore::new(at_once));
        Self { consumer, lanes: HashMap::new(), turns: FuturesUnordered::new(), permits, progress: Progress::default() }
    }

    /// How many records may be taken now. As many as one batch may be open at once: so many are suspect when
    /// their partition's holder dies (custody.rs).
    pub(super) fn room(&self) -> usize {
        let most = self.consumer.service.settings.batch;
        if planted::is("underway-unbounded") {
            return most;
        }
        if planted::is("one-batch-of-effects") && !self.is_empty() {
            return 0;
        }
        let held: usize = self.lanes.values().map(|waiting| 1 + waiting.len()).sum();
        most.saturating_sub(held.max(self.progress.longest()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Splits a batch: what can be handled at once, and the effects with which a lane begins. All others wait
    /// behind what is under way in their lane.
    pub(super) fn split(&mut self, batch: Vec<Work<'c, S>>) -> (Vec<Work<'c, S>>, Vec<Work<'c, S>>) {
        let (mut handlers, mut effects) = (Vec::new(), Vec::new());
        for work in batch {
            match self.lanes.entry(work.lane.clone()) {
                Entry::Occupied(mut lane) if !planted::is("lane-underway-unseen") => lane.get_mut().push(work),
                Entry::Vacant(lane) if work.is_effect() => {
                    lane.insert(Vec::new());
                    effects.push(work);
                }
                _ if work.is_effect() => effects.push(work),
                _ => handlers.push(work),
            }
        }
        (handlers, effects)
    }

    /// Calls the effects with which their lanes begin.
    pub(super) async fn begin(&mut self, effects: Vec<Work<'c, S>>) -> ControlFlow<()> {
        if effects.is_empty() {
            return ControlFlow::Continue(());
        }
        let consumer = self.consumer;
        let sifted = self.meanwhile(consumer.sift_all(&effects)).await?;
        for (work, fresh) in effects.into_iter().zip(sifted) {
            let lane = work.lane.clone();
            match fresh {
                true => self.turn(lane, vec![work], |run| Box::pin(consumer.call_lane(run))),
                false => {
                    let places = work.place.clone().into_iter().collect();
                    self.note(Turn { lane, places, flow: ControlFlow::Continue(()) });
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn turn(
        &mut self,
        lane: Lane,
        run: Vec<Work<'c, S>>,
        deal: impl FnOnce(Vec<Work<'c, S>>) -> BoxFuture<'c, ControlFlow<()>> + Send + 'c,
    ) {
        let (permits, places) = (self.permits.clone(), run.iter().filter_map(|work| work.place.clone()).collect());
        self.turns.push(Box::pin(async move {
            let _permit = permits.acquire().await;
            Turn { lane, places, flow: deal(run).await }
        }));
    }

    /// A turn has ended: its records are done, and what waits in its lane has the next one.
    fn note(&mut self, Turn { lane, places, flow }: Turn) {
        if flow.is_continue() {
            places.iter().for_each(|place| self.progress.done(place));
        }
        let waiting = self.lanes.remove(&lane).unwrap_or_default();
        // what has not begun at a stop is handed back: nobody acknowledges it
        if waiting.is_empty() || flow.is_break() || self.consumer.stop.is_cancelled() {
            return;
        }
        self.lanes.insert(lane.clone(), Vec::new());
        let consumer = self.consumer;
        self.turn(lane, waiting, |run| Box::pin(consumer.in_turn(run)));
    }

    /// Waits for the end of a turn, and takes note of all that have ended; false if none is under way.
    pub(super) async fn ended(&mut self) -> bool {
        let Some(turn) = self.turns.next().await else { return false };
        self.note(turn);
        while let Some(Some(turn)) = self.turns.next().now_or_never() {
            self.note(turn);
        }
        true
    }

    /// Waits until nothing is under way.
    pub(super) async fn all_ended(&mut self) {
        while self.ended().await {}
    }

    /// Does something while what is under way goes on.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                true = self.ended() => self.consumer.beat.working(),
            }
        }
    }
}
