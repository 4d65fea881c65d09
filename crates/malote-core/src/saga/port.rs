//! What a coordinator, and whoever obeys one, needs of a store.
//!
//! In the service's own database, named alike in both stores:
//!
//! | `saga` | |
//! |---|---|
//! | `id` | uuid, primary key: two starts meet here |
//! | `definition`, `version` | under which it began, and ends |
//! | `status`, `heading`, `on_request`, `reason` | as in [`Instance`](super::Instance) |
//! | `state` | JSON as text, as the saga wrote it (never `jsonb`) |
//! | `legs` | JSON as text: the steps that were reached |
//! | `entries`, `revision` | see there |
//! | `steps` | JSON as text: the names of the steps that wait or are open, for lists |
//! | `started_at`, `changed_at`, `ended_at` | by the database's clock; `ended_at` when a final status is reached, cleared when it is left |
//! | `removed` | true for a tombstone: `state`, `legs` and `steps` are empty |
//!
//! An index on `(definition, version, status, changed_at) WHERE NOT removed` serves lists, counts and alarms: few
//! are the different beginnings of it, so each is gone into by itself. One on `ended_at` of what is whole and one of
//! tombstones serve the janitor.
//!
//! | `saga_log` | |
//! |---|---|
//! | `saga`, `n` | primary key: two coordinators cannot write the same transition |
//! | `at` | by the database's clock |
//! | `what`, `leg`, `direction`, `attempt`, `envelope`, `reason`, `actor` | as in [`Entry`](super::Entry) |
//! | `trace` | the `traceparent` of the transaction's cause |
//!
//! | `saga_definition` | |
//! |---|---|
//! | `definition`, `version` | primary key |
//! | `outline` | JSON of an [`Outline`], so that a story can be shown without the service's code |
//! | `seen_at` | when a process last said that it has code for it |
//!
//! | `saga_act` | |
//! |---|---|
//! | `id` | identity |
//! | `saga`, `deed` | to which instance, and what (JSON of a [`Deed`]) |
//! | `actor`, `reason`, `asked_at` | who, why, when |
//! | `done_at`, `outcome`, `denied` | null until a coordinator has dealt with it |
//!
//! | `operation` | what a participant was asked |
//! |---|---|
//! | `consumer`, `id` | primary key; `id` is an [`OperationId`] as text |
//! | `type`, `topic`, `key`, `content_type`, `payload` | its answer; all null: it was called off before it came |
//! | `at` | by the database's clock |
//!
//! One turn of a coordinator is one transaction: admit the message (inbox), [`load_saga`](SagaStore::load_saga),
//! [`advance`](super::Saga::advance), [`save_saga`](SagaStore::save_saga), append the commands to the outbox, set
//! and cancel timers. A timer is a scheduled envelope of the service to itself, whose id is
//! [`timer_id`](super::timer_id): set and fired in the transactions of the instance, so it can neither be lost
//! nor fire twice.

use super::{Deed, Entry, LegId, OperationId, Outline, Status, Stored};
use crate::{Message, Store, StoreError, inspect::Act};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::{fmt, future::Future, time::Duration};
use uuid::Uuid;

/// The part of a store in which sagas are kept, and what participants of sagas were asked.
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

    /// Writes a changed instance and adds to its log. The stored revision has to be `instance.revision`,
    /// the one that was read, and grows by one; false, and nothing written, where it is another: somebody else was
    /// faster, and the transaction must not commit. Reaching a final status is no exception.
    fn save_saga(
        &self,
        tx: &mut Self::Tx,
        instance: &Stored,
        log: &[Entry],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Writes down the definitions that this process has code for.
    fn define_sagas(&self, outlines: &[Outline]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The definitions and versions of instances that have not ended, with their number.
    fn sagas_under_way(&self) -> impl Future<Output = Result<Vec<(String, u32, u64)>, StoreError>> + Send;

    /// Acts that nobody has dealt with, the oldest first, at most `most` of those numbered above `after`: their
    /// numbers.
    fn open_acts(&self, after: i64, most: u32) -> impl Future<Output = Result<Vec<i64>, StoreError>> + Send;

    /// Takes an act to deal with it in this transaction; none where it is dealt with, or somebody else
    /// is at it just now.
    fn take_act(
        &self,
        tx: &mut Self::Tx,
        id: i64,
    ) -> impl Future<Output = Result<Option<AskedDeed>, StoreError>> + Send;

    /// Writes down what came of an act, for whoever asked and in `audit` (act `saga retry`, `saga skip`, …;
    /// target: the instance, and the step where one is named), in this transaction.
    fn answer_act(
        &self,
        tx: &mut Self::Tx,
        asked: &AskedDeed,
        outcome: &DeedOutcome,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What is known of an operation that `consumer` is asked for. Until the transaction ends, whoever
    /// else asks about the same one waits.
    fn recall(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        operation: &OperationId,
    ) -> impl Future<Output = Result<Recalled, StoreError>> + Send;

    /// Writes down the answer to an operation; of two, the first stays.
    fn remember(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        operation: &OperationId,
        answer: &Message,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Calls an operation off that has not come yet; changes nothing where it was answered.
    fn call_off(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        operation: &OperationId,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
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

/// What a participant knows of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Recalled {
    /// Nothing: it comes for the first time, or has not been answered.
    Unknown,
    /// Its answer.
    Answered(Message),
    /// It was undone before it came: it must not be done any more.
    CalledOff,
}

/// An act that a person asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedDeed {
    /// Its number.
    pub id: i64,
    /// To which instance.
    pub saga: Uuid,
    /// Who, and why.
    pub act: Act,
    /// What.
    pub deed: Deed,
}

impl AskedDeed {
    /// The act's name in `audit`.
    pub fn name(&self) -> String {
        format!("saga {}", self.deed.as_str())
    }

    /// What it is done to, for `audit`.
    pub fn target(&self) -> String {
        match self.deed.step() {
            Some(step) => format!("saga {}, step {step}", self.saga),
            None => format!("saga {}", self.saga),
        }
    }
}

/// An act that was asked for, and that no coordinator has dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDeed {
    /// Its number.
    pub number: i64,
    /// When it was asked for, by the database's clock.
    pub asked_at: DateTime<Utc>,
    /// Who, and why.
    pub act: Act,
    /// What.
    pub deed: Deed,
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeedOutcome {
    /// Whether it was denied; nothing has changed then.
    pub denied: bool,
    /// How the saga stands now, or why it was denied and what to do instead.
    pub says: String,
}

/// As it stands in `audit`.
impl fmt::Display for DeedOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let denied = if self.denied { "denied: " } else { "" };
        write!(f, "{denied}{}", self.says)
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

impl SagaFilter {
    /// The statuses to look into: of what has ended no step waits.
    pub fn wanted(&self) -> Vec<Status> {
        let asked = |status: &Status| self.statuses.is_empty() || self.statuses.contains(status);
        Status::ALL.into_iter().filter(asked).filter(|status| self.step.is_none() || !status.is_final()).collect()
    }
}

/// An instance in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// A line of a history, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogRow {
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// In which trace (`traceparent`).
    pub trace: Option<String>,
    /// What it tells.
    #[serde(flatten)]
    pub entry: Entry,
}

/// How many instances of a definition are in a status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SagaCount {
    /// The definition's name.
    pub definition: String,
    /// The version.
    pub version: u32,
    /// The status; final ones are counted, too, while they are kept.
    pub status: Status,
    /// How many; counted up to 100,000, and final ones up to 10,000: that number then says "so many, or more".
    pub count: u64,
    /// For how long the one that is unchanged for longest has been so, in seconds.
    pub oldest_seconds: f64,
}

/// A version of a definition, as a process said that it has code for it. Processes repeat it about once a
/// minute.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SagaVersion {
    /// The definition's name.
    pub definition: String,
    /// The version.
    pub version: u32,
    /// How long ago a process said so last, in seconds.
    pub seen_seconds: f64,
}
