//! What the member's thread and the consumer share: records that wait, and how far each partition is.

use malote_core::{Delivery, Place, TransportError, planted};
use std::{
    collections::{HashMap, HashSet, VecDeque},
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
    /// Partitions of which nothing is given.
    held: HashSet<TopicPartition>,
    /// What waits of those, in records and bytes.
    aside: (usize, usize),
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
    /// Whether a record of it has come.
    met: bool,
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
        self.books().assigned.insert(at, Progress { assignment, acknowledged: None, committed: None, met: false });
    }

    /// The partition is no longer this member's: what waits of it is dropped, what is acknowledged
    /// later is ignored. Gives the offset that is still to be committed.
    pub(super) fn revoke(&self, at: &TopicPartition) -> Option<i64> {
        let mut books = self.books();
        let progress = books.assigned.remove(at);
        if !planted::is("kafka-drop-revoked") {
            books.buffer.retain(|delivery| !is_of(&delivery.place, at));
            books.bytes = books.buffer.iter().map(size).sum();
            books.put_aside();
        }
        progress.and_then(|progress| progress.due())
    }

    /// Whether no record of the partition has come under its present assignment; one has from now on.
    pub(super) fn is_first(&self, at: &TopicPartition) -> bool {
        self.books().assigned.get_mut(at).is_some_and(|progress| !std::mem::replace(&mut progress.met, true))
    }

    /// Takes in a record. False if it is not of a present assignment.
    pub(super) fn push(&self, mut delivery: Delivery) -> bool {
        let mut books = self.books();
        let at = (delivery.place.topic.clone(), delivery.place.partition);
        let Some(progress) = books.assigned.get(&at) else { return false };
        delivery.place.assignment = progress.assignment;
        let size = size(&delivery);
        books.bytes += size;
        books.buffer.push_back(delivery);
        if books.held.contains(&at) {
            books.aside = (books.aside.0 + 1, books.aside.1 + size);
        }
        drop(books);
        self.arrived.notify_one();
        true
    }

    pub(super) fn is_full(&self) -> bool {
        self.books().is_full()
    }

    /// Gives nothing of these, and again of all others.
    pub(super) fn hold(&self, partitions: &[TopicPartition]) {
        let mut books = self.books();
        books.held = partitions.iter().cloned().collect();
        books.put_aside();
    }

    pub(super) fn is_held(&self, at: &TopicPartition) -> bool {
        self.books().held.contains(at)
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
        if books.buffer.len() == books.aside.0 {
            return match &books.failed {
                Some(why) => Err(TransportError::lasting("receiving from Kafka", why.clone())),
                None => Ok(None),
            };
        }
        let was_full = books.is_full();
        let taken = books.drain(most);
        books.bytes -= taken.iter().map(size).sum::<usize>();
        if books.buffer.len() > books.aside.0 {
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
        let (records, bytes) = if planted::is("held-takes-room") { (0, 0) } else { self.aside };
        !planted::is("kafka-bounded-buffer") && (self.buffer.len() - records >= RECORDS || self.bytes - bytes >= BYTES)
    }

    fn put_aside(&mut self) {
        let held = self.buffer.iter().filter(|delivery| is_held(&self.held, &delivery.place));
        self.aside = held.fold((0, 0), |(records, bytes), delivery| (records + 1, bytes + size(delivery)));
    }

    /// The first ones that are not held, in their order.
    fn drain(&mut self, most: usize) -> Vec<Delivery> {
        if self.held.is_empty() {
            return self.buffer.drain(..most.min(self.buffer.len())).collect();
        }
        let (mut taken, mut rest) = (Vec::new(), VecDeque::with_capacity(self.buffer.len()));
        for delivery in self.buffer.drain(..) {
            match taken.len() < most && !is_held(&self.held, &delivery.place) {
                true => taken.push(delivery),
                false => rest.push_back(delivery),
            }
        }
        self.buffer = rest;
        taken
    }
}

impl Progress {
    fn due(&self) -> Option<i64> {
        self.acknowledged.filter(|_| self.acknowledged > self.committed)
    }
}

fn is_held(held: &HashSet<TopicPartition>, place: &Place) -> bool {
    held.iter().any(|at| is_of(place, at))
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

#[cfg(test)]
mod tests {
    use super::*;
    use malote_core::RawRecord;

    fn ledger() -> Ledger {
        let ledger = Ledger::new(Arc::default());
        ledger.assign(("t".into(), 0));
        ledger
    }

    fn delivery(offset: i64) -> Delivery {
        let place = Place { topic: "t".into(), partition: 0, offset, assignment: 0 };
        Delivery { place, record: RawRecord::default() }
    }

    #[tokio::test]
    async fn a_full_ledger_takes_no_more_until_something_is_taken() {
        let ledger = ledger();
        let mut offsets = 0..;
        while !ledger.is_full() {
            let offset = offsets.next().unwrap();
            assert!(offset < 1_000_000, "it is never full");
            ledger.push(delivery(offset));
        }
        let (taken, made_room) = ledger.take(10).await.unwrap();
        assert_eq!((taken.len(), made_room), (10, true));
        assert!(!ledger.is_full());
        let (rest, made_room) = ledger.take(usize::MAX).await.unwrap();
        assert!(!made_room, "it had room before");
        assert!(taken.iter().chain(&rest).map(|d| d.place.offset).eq(0..offsets.start), "in order, none lost");
    }

    #[tokio::test]
    async fn a_record_of_no_assignment_has_no_place() {
        let ledger = ledger();
        let stray = Place { partition: 1, ..delivery(0).place };
        assert!(!ledger.push(Delivery { place: stray, ..delivery(0) }));
    }

    #[tokio::test]
    async fn the_highest_acknowledged_offset_is_due_once_and_again_after_a_failure() {
        let ledger = ledger();
        ledger.push(delivery(4));
        ledger.push(delivery(5));
        let (taken, _) = ledger.take(2).await.unwrap();
        ledger.acknowledge(&[taken[1].place.clone()]);
        ledger.acknowledge(&[taken[0].place.clone()]);
        let at = ("t".to_owned(), 0);
        assert_eq!(ledger.due(), [(at.clone(), 6)]);
        assert_eq!(ledger.due(), []);
        ledger.undo([at.clone()].into_iter());
        assert_eq!(ledger.due(), [(at, 6)]);
    }

    #[tokio::test]
    async fn what_waits_is_given_before_a_failure_is_told() {
        let ledger = ledger();
        ledger.push(delivery(0));
        ledger.fail("no more".into());
        assert_eq!(ledger.take(9).await.unwrap().0.len(), 1);
        assert!(ledger.take(9).await.is_err());
        assert!(ledger.take(9).await.is_err());
    }
}
