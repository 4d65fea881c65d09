//! The port to a service's own database.

mod adopted;
mod dead;
mod edge;
mod parking;
mod relay;
mod timer;
mod upkeep;

pub use adopted::{ClaimSource, ClaimedRow};
pub use dead::{By, Dead, History, REASON_BYTES, Setback, cut_reason};
pub use edge::{Answer, Claim, IdempotencyStore, RequestKey};
pub use parking::{Budget, ClaimDue, Due, Ending, Failed, Lane, LaneState, Parked, ParkingStore, Settled, ToPark};
pub use relay::{Incarnation, Lease, Read, Row, Saved, Taken};
pub use timer::{Fired, TimerStore, When};
pub use upkeep::{KeptStore, Prune, Pruned};

use crate::{
    Class, Envelope, Sealer,
    inspect::Inspect,
    relay::{Cursor, Window},
    saga::SagaStore,
};
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

    /// Begins a transaction of which no statement goes on for longer than `most`, where the database can wait
    /// for somebody else: a handler's deadline alone does not end a statement that has been sent.
    fn begin_bounded(
        &self,
        sealer: Sealer,
        most: Duration,
    ) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send {
        let _ = most;
        self.begin(sealer)
    }

    /// What an error means that came out of a handler by `?`.
    fn classify(&self, error: &(dyn Error + Send + Sync + 'static)) -> Class;

    /// Whether a COMMIT that failed was refused over what the transaction had written (a constraint that is
    /// checked late), and not because the store is away.
    fn blames_rows(&self, error: &StoreError) -> bool {
        error.class == Class::Final
    }

    /// Remembers that `consumer` handles these events, in the order given; says of each whether it is new.
    fn admit(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        events: &[Admission],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Says of each event whether `consumer` has handled it already (without a transaction).
    fn seen(&self, consumer: &str, events: &[Admission]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Sets aside what cannot be handled, where people can see it; its inbox row, where it has one, says
    /// `dead`. Setting the same thing aside twice is one row.
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

    /// Writes a sealed envelope that is to be sent later, in this transaction.
    fn schedule(&mut self, when: When, envelope: Envelope) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes back a scheduled envelope, by its id, in this transaction; false when there is none: it
    /// has been sent, or taken back before.
    fn cancel(&mut self, id: Uuid) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Sets the one savepoint of a transaction here: what is done from now on can be undone by itself. Where
    /// one was set before, what was done since stays.
    fn set_savepoint(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Undoes what was done since the savepoint, which stays where it is: the transaction is as it was
    /// then, also where a statement had failed.
    fn undo_to_savepoint(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Fails with [`Class::Final`] when the transaction is known to be over already, by something that was done in
    /// it: then nothing of it will be kept. Says nothing where only the database can tell.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What `publish` seals with from here on. May be changed: each event of a batch has its own cause.
    fn sealer(&mut self) -> &mut Sealer;

    /// Commits, and wakes the relay if anything was appended.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls back, and says whether that went well; dropping does the same without saying.
    fn rollback(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// All that a service needs of its database.
pub trait FullStore: ParkingStore + TimerStore + KeptStore + SagaStore + Inspect {}
impl<S: ParkingStore + TimerStore + KeptStore + SagaStore + Inspect> FullStore for S {}

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
