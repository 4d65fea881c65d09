//! What the member's thread and the consumer share: records that wait, and how far each partition is.

use malote_core::{Delivery, Place, TransportError, planted};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::Notify;

/// The buffer is full with so many records …
const RECORDS: usize = 5_000;
/// … or so many bytes of them.
const BYTES: usize = 8 << 20;

pub(super) type TopicPartition = (String, i32);

pub(super) struct Ledger {
    books: Mutex<Books>,
    arrived: Notify,
    /// Shared by all subscriptions of a transport, so that no two assignments have one number.
    assignments: Arc<AtomicU64>,
}

#[derive(Default)]
struct Books {
    buffer: VecDeque<Delivery>,
    bytes: usize,
    assigned: HashMap<TopicPartition, Progress>,
    failed: Option<String>,
}

/// How far a partition is under its present assignment.
struct Progress {
    assignment: u64,
    /// The offset after the last one acknowledged.
    acknowledged: Option<i64>,
    /// The one that was committed, or is on its way.
    committed: Option<i64>,
}

impl Ledger {
    pub(super) fn new(assignments: Arc<AtomicU64>) -> Self {
        Self { books: Mutex::default(), arrived: Notify::new(), assignments }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partition is this member's from now on.
    pub(super) fn assign(&self, at: TopicPartition) {
        let assignment = self.assignments.fetch_add(1, Ordering::Relaxed) + 1;
        self.books().assigned.insert(at, Progress { assignment, acknowledged: None, committed: None });
    }

    /// The partition is no longer this member's: what waits of it is dropped, what is acknowledged
    /// later is ignored. Gives the offset that is still to be committed.
    pub(super) fn revoke(&self, at: &TopicPartition) -> Option<i64> {
        let mut books = self.books();
        let progress = books.assigned.remove(at);
        if !planted::is("kafka-drop-revoked") {
            books.buffer.retain(|delivery| !is_of(&delivery.place, at));
            books.bytes = books.buffer.iter().map(size).sum();
        }
        progress.and_then(|progress| progress.due())
    }

    /// Takes in a record. False if it is not of a present assignment.
    pub(super) fn push(&self, mut delivery: Delivery) -> bool {
        let mut books = self.books();
        let at = (delivery.place.topic.clone(), delivery.place.partition);
        let Some(progress) = books.assigned.get(&at) else { return false };
        delivery.place.assignment = progress.assignment;
        books.bytes += size(&delivery);
        books.buffer.push_back(delivery);
        drop(books);
        self.arrived.notify_one();
        true
    }

    pub(super) fn is_full(&self) -> bool {
        self.books().is_full()
    }

    /// Waits for records; says whether a full buffer has room again.
    pub(super) async fn take(&self, most: usize) -> Result<(Vec<Delivery>, bool), TransportError> {
        loop {
            if let Some(taken) = self.try_take(most)? {
                return Ok(taken);
            }
            self.arrived.notified().await;
        }
    }

    fn try_take(&self, most: usize) -> Result<Option<(Vec<Delivery>, bool)>, TransportError> {
        let mut books = self.books();
        if books.buffer.is_empty() {
            return match &books.failed {
                Some(why) => Err(TransportError::lasting("receiving from Kafka", why.clone())),
                None => Ok(None),
            };
        }
        let was_full = books.is_full();
        let count = most.min(books.buffer.len());
        let taken: Vec<_> = books.buffer.drain(..count).collect();
        books.bytes -= taken.iter().map(size).sum::<usize>();
        if !books.buffer.is_empty() {
            self.arrived.notify_one();
        }
        Ok(Some((taken, was_full && !books.is_full())))
    }

    /// The member can receive nothing any more; told when what waits has been taken.
    pub(super) fn fail(&self, why: String) {
        self.books().failed.get_or_insert(why);
        self.arrived.notify_one();
    }

    /// Takes in what was handled, if it was delivered under the present assignment.
    pub(super) fn acknowledge(&self, handled: &[Place]) {
        let mut books = self.books();
        for place in handled {
            let Some(progress) = books.assigned.get_mut(&(place.topic.clone(), place.partition)) else { continue };
            if progress.assignment == place.assignment || planted::is("kafka-assignment") {
                progress.acknowledged = progress.acknowledged.max(Some(place.offset + 1));
            }
        }
    }

    /// What is acknowledged and not committed yet; counts as committed from now on.
    pub(super) fn due(&self) -> Vec<(TopicPartition, i64)> {
        let mut books = self.books();
        let due = books.assigned.iter_mut().filter_map(|(at, progress)| {
            let offset = progress.due()?;
            progress.committed = Some(offset);
            Some((at.clone(), offset))
        });
        due.collect()
    }

    /// The commit of these failed: they are due again.
    pub(super) fn undo(&self, failed: impl Iterator<Item = TopicPartition>) {
        let mut books = self.books();
        for at in failed {
            if let Some(progress) = books.assigned.get_mut(&at) {
                progress.committed = None;
            }
        }
    }
}

impl Books {
    fn is_full(&self) -> bool {
        !planted::is("kafka-bounded-buffer") && (self.buffer.len() >= RECORDS || self.bytes >= BYTES)
    }
}

impl Progress {
    fn due(&self) -> Option<i64> {
        self.acknowledged.filter(|_| self.acknowledged > self.committed)
    }
}

fn is_of(place: &Place, at: &TopicPartition) -> bool {
    place.partition == at.1 && place.topic == at.0
}

fn size(delivery: &Delivery) -> usize {
    let record = &delivery.record;
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
    let bytes = |b: &Option<_>| b.as_ref().map_or(0, bytes::Bytes::len);
    headers + bytes(&record.key) + bytes(&record.payload) + 128
}
