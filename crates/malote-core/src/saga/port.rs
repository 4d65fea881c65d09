//! What a coordinator needs of a store.
//!
//! Two tables, in the service's own database, named alike in both stores:
//!
//! | `saga` | |
//! |---|---|
//! | `id` | uuid, primary key: two starts meet here |
//! | `definition`, `version` | under which it began, and ends |
//! | `status`, `heading`, `on_request`, `reason` | as in [`Instance`](super::Instance) |
//! | `state` | JSON as text, as the saga wrote it (never `jsonb`) |
//! | `legs` | JSON as text: the steps that were reached |
//! | `entries`, `revision` | see there |
//! | `started_at`, `changed_at`, `ended_at` | by the database's clock |
//! | `removed` | true for a tombstone: `state` and `legs` are gone |
//!
//! An index on `(definition, status, changed_at) WHERE NOT removed` serves lists, counts and alarms; one on
//! `(ended_at) WHERE ended_at IS NOT NULL AND NOT removed` serves the janitor.
//!
//! | `saga_log` | |
//! |---|---|
//! | `saga`, `n` | primary key: two coordinators cannot write the same transition |
//! | `at` | by the database's clock |
//! | `what`, `leg`, `direction`, `attempt`, `envelope`, `reason`, `actor` | as in [`Entry`](super::Entry) |
//! | `trace` | the trace in which it was written |
//!
//! One turn of a coordinator is one transaction: admit the message (inbox), [`load_saga`](SagaStore::load_saga),
//! [`advance`](super::Saga::advance), [`save_saga`](SagaStore::save_saga), append the commands to the outbox, set
//! and cancel timers. A timer is a scheduled envelope of the service to itself, whose id is
//! [`timer_id`](super::timer_id): set and fired in the transactions of the instance, so it can neither be lost
//! nor fire twice.

use super::{Entry, LegId, Status, Stored};
use crate::{Store, StoreError};
use chrono::{DateTime, Utc};
use std::{future::Future, time::Duration};
use uuid::Uuid;

/// The part of a store in which sagas are kept.
pub trait SagaStore: Store {
    /// Writes a new instance with its first entries; false, and nothing written, where one of this id
    /// exists or has existed (its tombstone counts).
    fn insert_saga(
        &self,
        tx: &mut Self::Tx,
        instance: &Stored,
        log: &[Entry],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Reads an instance in order to change it: whoever else wants to change it waits, or meets another
    /// revision when it saves.
    fn load_saga(&self, tx: &mut Self::Tx, id: Uuid) -> impl Future<Output = Result<Loaded, StoreError>> + Send;

    /// Writes a changed instance and adds to its log. The stored revision has to be the one that was
    /// read, and grows by one; false, and nothing written, where it is another: somebody else was
    /// faster, and the transaction must not commit. Reaching a final status is no exception.
    fn save_saga(
        &self,
        tx: &mut Self::Tx,
        instance: &Stored,
        log: &[Entry],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Leaves tombstones of at most `most` instances that ended longer ago than `kept`: state, steps and
    /// log go, and id, definition, version and status stay, so that a late second start meets them.
    /// Returns how many.
    fn entomb_sagas(&self, kept: Duration, most: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Removes tombstones older than `kept`: longer than the longest redelivery, replay and recovery,
    /// as the inbox. Returns how many.
    fn remove_tombstones(&self, kept: Duration, most: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Instances without their state, the longest unchanged first, at most `most`.
    fn sagas(&self, filter: &SagaFilter, most: u32) -> impl Future<Output = Result<Vec<SagaRow>, StoreError>> + Send;

    /// One instance, without a transaction; none where it is not there, or only its tombstone.
    fn saga(&self, id: Uuid) -> impl Future<Output = Result<Option<Stored>, StoreError>> + Send;

    /// The history of an instance from its beginning, each entry with its time by the database's clock.
    fn saga_log(&self, id: Uuid) -> impl Future<Output = Result<Vec<(DateTime<Utc>, Entry)>, StoreError>> + Send;
}

/// What a store has of an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// Nothing.
    Absent,
    /// All of it.
    Present(Box<Stored>),
    /// That it was there, and how it ended.
    Tombstone(Status),
}

impl Loaded {
    /// For [`Address::receive`](super::Address::receive).
    pub fn row(&self) -> super::Row {
        match self {
            Self::Absent => super::Row::Absent,
            Self::Present(_) => super::Row::Present,
            Self::Tombstone(_) => super::Row::Ended,
        }
    }
}

/// Chooses instances; what is not given chooses all.
#[derive(Clone, Debug, Default)]
pub struct SagaFilter {
    /// Of this definition.
    pub definition: Option<String>,
    /// Of this version.
    pub version: Option<u32>,
    /// In one of these statuses; all where empty.
    pub statuses: Vec<Status>,
    /// Unchanged for longer than this, by the database's clock.
    pub older_than: Option<Duration>,
    /// Of which a pending or open step has this name.
    pub step: Option<String>,
}

/// An instance in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct SagaRow {
    /// The instance.
    pub id: Uuid,
    /// Its definition's name.
    pub definition: String,
    /// Its version.
    pub version: u32,
    /// How it stands.
    pub status: Status,
    /// Why it turned back, or stands still.
    pub reason: Option<String>,
    /// The steps that wait, or keep it from going on.
    pub steps: Vec<LegId>,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it changed last.
    pub changed_at: DateTime<Utc>,
}
