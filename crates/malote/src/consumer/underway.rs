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
};

/// So many batches may be open in all partitions together: what is taken is in memory.
const BATCHES: usize = 16;

/// The lanes in which something is under way, and what has been taken and is not acknowledged.
pub(super) struct Underway<'c, S: Store> {
    consumer: &'c Consumer<S>,
    /// With what came since, and waits for its turn.
    lanes: HashMap<Lane, Vec<Work<'c, S>>>,
    turns: FuturesUnordered<BoxFuture<'c, Turn<'c, S>>>,
    pub(super) progress: Progress,
}

/// A step in a lane has been made; broken off only at a stop.
struct Turn<'c, S: Store> {
    lane: Lane,
    done: Vec<Place>,
    left: Vec<Work<'c, S>>,
    flow: ControlFlow<()>,
}

impl<'c, S: FullStore> Underway<'c, S> {
    pub(super) fn of(consumer: &'c Consumer<S>) -> Self {
        Self { consumer, lanes: HashMap::new(), turns: FuturesUnordered::new(), progress: Progress::default() }
    }

    /// Of which partitions nothing may be taken now, and how many records of the others. As many as one batch
    /// may be open at once in each: so many are suspect when its holder dies (custody.rs). Who has half of them
    /// open waits, and no other does for it.
    pub(super) fn room(&self) -> (Vec<(String, i32)>, usize) {
        let most = self.consumer.service.settings.batch;
        if planted::is("underway-unbounded") {
            return (Vec::new(), most);
        }
        if planted::is("one-batch-of-effects") && !self.is_empty() {
            return (Vec::new(), 0);
        }
        let (full, open) = self.progress.full((most / 2).max(1));
        let all = if planted::is("full-stops-all") { !full.is_empty() } else { self.progress.open() >= most * BATCHES };
        (full, if all { 0 } else { most - open })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Gives each effect its turn in its lane, and what is blamed for a death; what comes behind them waits
    /// for its own. Returns what can be handled at once, and the lanes that are to begin when that is done.
    pub(super) fn split(&mut self, batch: Vec<Work<'c, S>>) -> (Vec<Work<'c, S>>, Vec<Lane>) {
        let (mut handlers, mut begin) = (Vec::new(), Vec::new());
        for work in batch {
            let takes_turns = work.is_effect() || work.blamed;
            match self.lanes.entry(work.lane.clone()) {
                Entry::Occupied(mut lane) if takes_turns || !planted::is("lane-underway-unseen") => {
                    lane.get_mut().push(work);
                }
                Entry::Vacant(lane) if takes_turns => {
                    begin.push(lane.key().clone());
                    lane.insert(vec![work]);
                }
                _ => handlers.push(work),
            }
        }
        (handlers, begin)
    }

    /// The next step in a lane with all that waits in it.
    pub(super) fn turn(&mut self, lane: Lane) {
        let (consumer, mut run) = (self.consumer, self.lanes.insert(lane.clone(), Vec::new()).unwrap_or_default());
        self.turns.push(Box::pin(async move {
            let step = consumer.step(&run).await;
            let (dealt, flow) = match step {
                ControlFlow::Continue(dealt) => (dealt, ControlFlow::Continue(())),
                ControlFlow::Break(()) => (0, ControlFlow::Break(())),
            };
            let left = run.split_off(dealt);
            Turn { lane, done: run.into_iter().filter_map(|work| work.place).collect(), left, flow }
        }));
    }

    /// A turn has ended: what was dealt with is done, and what waits in its lane has the next one.
    fn note(&mut self, Turn { lane, done, mut left, flow }: Turn<'c, S>) {
        done.iter().for_each(|place| self.progress.done(place));
        left.extend(self.lanes.remove(&lane).unwrap_or_default());
        // what has not begun at a stop is handed back: nobody acknowledges it
        if left.is_empty() || flow.is_break() || self.consumer.stop.is_cancelled() {
            return;
        }
        self.lanes.insert(lane.clone(), left);
        self.turn(lane);
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
