//! The port to a service's own database.

use crate::{
    Class, Envelope, RawRecord, Sealer,
    relay::{Cursor, Window},
};
use bytes::Bytes;
use chrono::NaiveDate;
use std::{error::Error, future::Future, time::Duration};
use uuid::Uuid;

/// Where a service keeps its state, its outbox and its inbox: one database, so one transaction.
pub trait Store: Clone + Send + Sync + 'static {
    /// A transaction that can write. Dropped without a commit, it leaves nothing behind, and its
    /// connection is handed to nobody before it is clean.
    type Tx: Transaction;

    /// Begins a transaction that can write. Giving up on the future leaves no transaction open.
    fn begin(&self, sealer: Sealer) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send;

    /// What an error means that came out of a handler by `?`.
    fn classify(&self, error: &(dyn Error + Send + Sync + 'static)) -> Class;

    /// Remembers that `consumer` handles these events, in the order given; says of each whether it is new.
    fn admit(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        events: &[Admission],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Says of each event whether `consumer` has handled it already (without a transaction).
    fn seen(&self, consumer: &str, events: &[Admission]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Sets aside what cannot be handled, where people can see it. Setting the same thing aside twice is one row.
    fn set_aside(&self, tx: &mut Self::Tx, dead: &Dead) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes, or renews, the lease of the relay `name`.
    fn take_lease(
        &self,
        name: &str,
        who: Incarnation,
        lasts: Duration,
    ) -> impl Future<Output = Result<Taken, StoreError>> + Send;

    /// Gives the lease back, so that the next need not wait for its end.
    fn release_lease(&self, lease: &Lease) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Reads the rows of a window in one snapshot, by position.
    fn read(&self, window: &Window) -> impl Future<Output = Result<Read, StoreError>> + Send;

    /// Stores the cursor and renews the lease, if the lease is still held. The transaction that
    /// does it begins after this call, so its id is a bound for every gap seen before.
    fn save(
        &self,
        lease: &Lease,
        cursor: &Cursor,
        lasts: Duration,
    ) -> impl Future<Output = Result<Saved, StoreError>> + Send;

    /// Waits for a sign that there may be new rows. May never resolve, and may resolve for nothing:
    /// the relay polls beside it.
    fn woken(&self) -> impl Future<Output = ()> + Send;

    /// Keeps the tables in shape behind a relay that has come to `cursor`: makes partitions ahead,
    /// lets old rows go. Returns how many rows or partitions it made and removed, for the log.
    fn upkeep(&self, cursor: &Cursor) -> impl Future<Output = Result<String, StoreError>> + Send;

    /// Who holds the gaps open, in words for a person (a process id, a prepared transaction's name).
    fn gap_holders(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send {
        async { Ok(Vec::new()) }
    }
}

/// A transaction of a [`Store`].
pub trait Transaction: Send + 'static {
    /// Writes sealed envelopes to the outbox, in the order given, in one statement where the database can.
    fn append(&mut self, envelopes: Vec<Envelope>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What `publish` seals with from here on. May be changed: each event of a batch has its own cause.
    fn sealer(&mut self) -> &mut Sealer;

    /// Commits, and wakes the relay if anything was appended.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls back, and says whether that went well; dropping does the same without saying.
    fn rollback(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The edge's part of a store: requests by caller and key.
pub trait IdempotencyStore: Store {
    /// A short committed claim on a request. Checks in this order: another fingerprint, an answer,
    /// a living claim; takes over a claim whose lease has passed. By the database's clock.
    fn claim(
        &self,
        request: &RequestKey,
        fingerprint: &[u8; 32],
        owner: Uuid,
        lease: Duration,
    ) -> impl Future<Output = Result<Claim, StoreError>> + Send;

    /// Records the answer in the request's own transaction; false when the claim is no longer `owner`'s,
    /// and then the transaction must not commit.
    fn finish(
        &self,
        tx: &mut Self::Tx,
        request: &RequestKey,
        owner: Uuid,
        answer: &Answer,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Frees a claim that came to nothing; false when there was none of `owner`'s to free.
    fn release(&self, request: &RequestKey, owner: Uuid) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Removes answers older than `keep`, at most `most`; returns how many.
    fn forget(&self, keep: Duration, most: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A row's id, in text, as its table has it; and what the row is.
pub type ClaimedRow = (String, Envelope);

/// A source of rows that a table of somebody else's holds, claimed and marked one batch at a time.
pub trait ClaimSource: Send + Sync + 'static {
    /// Rows that are locked for this batch.
    type Claimed: Send;
    /// Locks up to `most` unpublished rows that nobody else has locked, oldest first, without those
    /// whose ids are in `except`.
    fn claim(
        &self,
        most: u32,
        except: &[String],
    ) -> impl Future<Output = Result<(Self::Claimed, Vec<ClaimedRow>), StoreError>> + Send;
    /// Marks those of the claimed rows as published whose place in the batch is given, and lets all go.
    fn mark(&self, claimed: Self::Claimed, published: &[usize]) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Waits for a sign that there may be new rows; the relay polls beside it.
    fn woken(&self) -> impl Future<Output = ()> + Send;
}

/// What the inbox remembers of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Admission {
    /// The envelope's id.
    pub event_id: Uuid,
    /// The day of the envelope's own time, frozen in it: it chooses the partition, so that two
    /// deliveries of one envelope always meet in the same one.
    pub day: NaiveDate,
}

impl Admission {
    /// Of an envelope.
    pub fn of(envelope: &Envelope) -> Self {
        Self { event_id: envelope.id, day: envelope.time.date_naive() }
    }
}

/// Names one start of one process; two starts on the same host are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation(pub Uuid);

/// A held lease: every change its holder makes carries the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The relay's name.
    pub name: String,
    /// Who holds it.
    pub who: Incarnation,
    /// Grows each time the lease changes hands.
    pub epoch: i64,
}

/// What became of asking for a lease.
#[derive(Clone, Debug)]
pub enum Taken {
    /// It is ours.
    Mine {
        /// The lease.
        lease: Lease,
        /// Where its last holder had come to.
        cursor: Cursor,
        /// The last position that the database has handed out; below the cursor it means that the
        /// positions have gone back (a restored copy, a reset sequence).
        last: i64,
    },
    /// Somebody else's, for this long at least.
    Theirs(Duration),
}

/// What a read showed.
#[derive(Clone, Debug)]
pub struct Read {
    /// Every transaction with a smaller id had ended in the snapshot.
    pub ended_below: u64,
    /// The rows by position, ascending.
    pub rows: Vec<Row>,
}

/// An outbox row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its position.
    pub seq: i64,
    /// The envelope, or why the row cannot be read as one.
    pub envelope: Result<Envelope, String>,
}

/// What became of storing a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Stored.
    Kept {
        /// The id of the transaction that stored it.
        bound: u64,
    },
    /// The lease is somebody else's; nothing was changed.
    Fenced,
}

/// Something that was given up, and why.
#[derive(Clone, Debug)]
pub struct Dead {
    /// Who gave it up: `consumer ledger` or `relay payment`.
    pub by: String,
    /// Identifies it among what `by` gave up: an envelope id, or a place in a topic.
    pub what: String,
    /// The event's id where it could be read.
    pub event_id: Option<Uuid>,
    /// The event's type where it could be read.
    pub kind: Option<String>,
    /// The topic it came from or was meant for.
    pub topic: String,
    /// Where it lay, where that is known.
    pub partition: Option<i32>,
    /// Where it lay, where that is known.
    pub offset: Option<i64>,
    /// Why, cut to [`Dead::REASON_BYTES`].
    pub reason: String,
    /// How often it was tried.
    pub attempts: i32,
    /// The record as it came, or would have gone.
    pub record: RawRecord,
}

impl Dead {
    /// The longest reason kept, in bytes.
    pub const REASON_BYTES: usize = 2048;

    /// Cuts a reason on a character boundary and takes out what PostgreSQL cannot hold.
    pub fn reason(text: &str) -> String {
        let end = text.floor_char_boundary(Self::REASON_BYTES);
        text[..end].replace('\0', "\u{fffd}")
    }
}

/// A request at the edge: keys are per caller, method and path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Who asks, as the edge identified them.
    pub caller: String,
    /// Method and concrete path, such as `POST /payment`.
    pub scope: String,
    /// The key that the caller chose.
    pub key: String,
}

/// What became of a claim on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Ours to do, until the lease ends.
    Won,
    /// Somebody is at it; its lease ends after this long.
    Running(Duration),
    /// Done before; this was the answer.
    Done(Answer),
    /// The key was used for another request.
    Mismatch,
}

/// A recorded answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers worth repeating.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// What went wrong with the store.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct StoreError {
    /// What was being attempted, such as `admitting 100 events`.
    pub doing: String,
    /// What the error means.
    pub class: Class,
    /// The database's own error.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}
