//! What operators may ask of a service's store, and do with it.
//!
//! One port for the command line, an admin API and a console, and for the runtime's own metrics. It
//! is object-safe, and works on the database alone: the service may be down. Whatever is done takes
//! an [`Act`], and its row in `audit` is written in the transaction that does it.

use crate::{
    BoxFuture, Class, Dead, History, Lane, RawRecord, StoreError,
    saga::{Deed, DeedOutcome, LogRow, OpenDeed, Outline, SagaCount, SagaFilter, SagaRow, SagaVersion, Stored},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

/// What comes of asking a store.
pub type Asked<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Looks at a store, and acts on it for a person.
pub trait Inspect: Send + Sync + 'static {
    /// The version of malote's tables, 0 where there are none, and the one that this library knows. The only look
    /// that works whatever version they are of.
    fn tables(&self) -> Asked<'_, (i64, i64)>;
    /// How everything stands, in bounded time.
    fn status(&self) -> Asked<'_, Status>;
    /// Rows of the outbox that are kept, by position, at most `most`.
    fn outbox<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<OutboxRow>>;
    /// Messages that are parked, lane by lane in their order, at most `most`.
    fn parked<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<ParkedRow>>;
    /// Dead letters, in the order in which they were given up, at most `most`.
    fn dead<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<DeadRow>>;
    /// One dead letter with its record.
    fn dead_letter(&self, id: i64) -> Asked<'_, Option<(DeadRow, Dead)>>;
    /// Envelopes that are not due yet, the next one first.
    fn scheduled(&self, most: u32) -> Asked<'_, Vec<ScheduledRow>>;
    /// Those of these envelopes that are not due yet: what a saga's timers are set to.
    fn scheduled_of<'a>(&'a self, ids: &'a [Uuid]) -> Asked<'a, Vec<ScheduledRow>>;
    /// Acts of people, the latest first.
    fn audit(&self, most: u32) -> Asked<'_, Vec<AuditRow>>;
    /// Sagas, the longest unchanged first, at most `most`.
    fn sagas<'a>(&'a self, filter: &'a SagaFilter, most: u32) -> Asked<'a, Vec<SagaRow>>;
    /// The ids of sagas from `first` to `last`, in order, at most `most`: what an id's beginning may mean.
    fn saga_ids(&self, first: Uuid, last: Uuid, most: u32) -> Asked<'_, Vec<Uuid>>;
    /// One saga; none where it is not there, or only its tombstone.
    fn saga(&self, id: Uuid) -> Asked<'_, Option<Stored>>;
    /// The history of a saga from its beginning.
    fn saga_log(&self, id: Uuid) -> Asked<'_, Vec<LogRow>>;
    /// The definitions that processes of the service said they have code for, by name and version.
    fn saga_definitions(&self) -> Asked<'_, Vec<Outline>>;
    /// Asks for an act on a saga, and returns its number: a coordinator of the service deals with it, at
    /// once when one is at work. Refuses an empty actor or reason, and an instance that is not there.
    fn ask_deed<'a>(&'a self, act: &'a Act, saga: Uuid, deed: &'a Deed) -> Asked<'a, i64>;
    /// Acts on a saga that were asked for, and that no coordinator has dealt with, the oldest first.
    fn open_deeds(&self, saga: Uuid) -> Asked<'_, Vec<OpenDeed>>;
    /// What came of an act; none as long as no coordinator has dealt with it.
    fn deed_outcome(&self, id: i64) -> Asked<'_, Option<DeedOutcome>>;
    /// Looks for what is wrong with the database, its settings and malote's tables in it.
    fn doctor(&self) -> Asked<'_, Vec<Finding>>;

    /// Puts dead letters back: to their consumer's lanes, or to the outbox for those of a relay, in the
    /// order in which they were given up. A key that is held is let go with its dead letter in front.
    fn redrive<'a>(&'a self, act: &'a Act, filter: &'a Filter, how: Redrive) -> Asked<'a, Acted>;
    /// Gives dead letters up for good. A key that was held for one goes on.
    fn discard<'a>(&'a self, act: &'a Act, filter: &'a Filter, dry: bool) -> Asked<'a, Acted>;
    /// Makes the next attempt at parked messages due now.
    fn retry_now<'a>(&'a self, act: &'a Act, filter: &'a Filter, dry: bool) -> Asked<'a, Acted>;
    /// Sends rows again that the outbox still keeps, under their own ids.
    fn replay<'a>(&'a self, act: &'a Act, filter: &'a Filter, how: Replay) -> Asked<'a, Acted>;
    /// Removes what is kept of a key in dead letters and parked messages: payload, headers, key, errors.
    fn erase<'a>(&'a self, act: &'a Act, key: &'a str, dry: bool) -> Asked<'a, Acted>;
    /// Writes down, in a transaction of its own, what is not one act of this port: a clean-up by hand, which is many
    /// transactions. `name` is the act's, such as `prune`; `target` and `outcome` are words.
    fn note<'a>(&'a self, act: &'a Act, name: &'a str, target: &'a str, outcome: &'a str) -> Asked<'a, ()>;
}

/// Who acts, and why. Both are written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// Such as a login name.
    pub actor: String,
    /// In their own words; not empty.
    pub reason: String,
}

impl Act {
    /// Refuses an act without a name or a reason: both are looked for in the audit one day.
    ///
    /// # Errors
    /// [`Class::Final`], with what is lacking.
    pub fn check(&self, doing: &str) -> Result<(), StoreError> {
        let lacking = match (self.actor.trim().is_empty(), self.reason.trim().is_empty()) {
            _ if crate::planted::is("act-unsigned") => return Ok(()),
            (true, _) => "who acts",
            (_, true) => "a reason",
            _ => return Ok(()),
        };
        let source = format!("{lacking} is needed: it is written down").into();
        Err(StoreError { doing: doing.to_owned(), class: Class::Final, source })
    }
}

/// What a person, or a program for one, may do where access is divided up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// See states, counts, ids, keys and errors.
    View,
    /// See payloads and headers, too.
    ViewPayload,
    /// Redrive, discard, retry, replay.
    Act,
    /// Erase, prune, migrate.
    Administer,
}

/// Chooses rows; what is not given chooses all. All that is given has to hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Dead letters by their number.
    pub ids: Option<Vec<i64>>,
    /// `consumer NAME` or `relay NAME`; for parked messages the consumer's name alone.
    pub by: Option<String>,
    /// Event type.
    pub kind: Option<String>,
    /// Topic.
    pub topic: Option<String>,
    /// Ordering key.
    pub key: Option<String>,
    /// Class of the last failure, by its name.
    pub class: Option<String>,
    /// Event id, or correlation id.
    pub event: Option<String>,
    /// Written, parked or given up at or after this time.
    pub since: Option<DateTime<Utc>>,
    /// Before this time.
    pub until: Option<DateTime<Utc>>,
    /// Of outbox rows: only those that are not published yet.
    pub pending: bool,
}

/// How to redrive.
#[derive(Clone, Copy, Debug)]
pub struct Redrive {
    /// Only says what it would do.
    pub dry: bool,
    /// At most so many a second become due; 0 for all at once.
    pub per_second: u32,
    /// Also those of whose lane something newer has been handled since.
    pub although_newer: bool,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Only says what it would do.
    pub dry: bool,
    /// To this topic instead of their own.
    pub topic: Option<String>,
    /// For this consumer only; the others pass over them.
    pub consumer: Option<String>,
    /// At most so many rows.
    pub most: u32,
}

/// The attribute of an envelope that is meant for one consumer only.
pub const ONLY_FOR: &str = "maloteonlyfor";

/// What came of an act.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Acted {
    /// How many rows it was done to (would be, in a dry run).
    pub done: u64,
    /// Which ones it was not done to, and why.
    pub refused: Vec<Refused>,
}

/// Something that was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The dead letter's number, or the row's position.
    pub id: i64,
    /// Why, and what to do instead.
    pub why: String,
    /// Whether it was because something newer has been handled ([`Redrive::although_newer`]).
    pub stale: bool,
}

impl Refused {
    /// A dead letter of whose key `newer` messages were handled since it was given up.
    pub fn stale(id: i64, newer: u64) -> Self {
        let messages = if newer == 1 { "message" } else { "messages" };
        let were = if newer == 1 { "was" } else { "were" };
        let why = format!("{newer} newer {messages} of its key {were} handled since: confirm, or discard it");
        Self { id, why, stale: true }
    }
}

/// How everything stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The outbox.
    pub outbox: OutboxStatus,
    /// Who moves it.
    pub relays: Vec<RelayStatus>,
    /// Every consumer of which something waits or is dead.
    pub consumers: Vec<ConsumerStatus>,
    /// Dead letters of relays.
    pub relay_dead: u64,
    /// Sagas by definition, version and status.
    pub sagas: Vec<SagaCount>,
    /// The definitions and versions of sagas that processes said they have code for, and when last.
    pub saga_versions: Vec<SagaVersion>,
    /// Acts on sagas that no coordinator has dealt with.
    pub open_acts: u64,
    /// Envelopes that are not due yet.
    pub scheduled: u64,
    /// By how long the oldest due one is late, in seconds; none when none is late.
    pub scheduled_late_seconds: Option<f64>,
    /// The oldest transaction or snapshot that is open in the database.
    pub oldest_transaction: Option<Holder>,
    /// Size of SQLite's write-ahead log, in bytes.
    pub wal_bytes: Option<u64>,
    /// The version of malote's tables, and the one that this library knows.
    pub tables: (i64, i64),
}

/// How the outbox stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OutboxStatus {
    /// Rows that are visible and not published; above 100,000 an estimate by positions.
    pub pending: u64,
    /// Age of the oldest of them, in seconds, from when it was written.
    pub oldest_seconds: Option<f64>,
    /// The last position that was handed out.
    pub last: i64,
    /// Positions below the cursor that nobody has filled yet.
    pub gaps: u64,
    /// The event type and key of the oldest of them.
    pub oldest: Option<(String, String)>,
}

/// A relay's lease and cursor.
#[derive(Clone, Debug, Serialize)]
pub struct RelayStatus {
    /// Its name.
    pub name: String,
    /// Which start of which process leads.
    pub incarnation: Option<Uuid>,
    /// Grows with each change of the leader.
    pub epoch: i64,
    /// For how long the lease is still held, in seconds; none when nobody holds it.
    pub lease_seconds: Option<f64>,
    /// The highest position read.
    pub high: i64,
    /// Positions below it that are open.
    pub gaps: u64,
}

/// What waits and what is dead of one consumer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// Keys of which something is parked.
    pub parked_keys: u64,
    /// Messages that are parked, those behind a head included.
    pub parked_messages: u64,
    /// Keys that are held until a person decides.
    pub held_keys: u64,
    /// Age of the oldest parked message, in seconds.
    pub oldest_parked_seconds: Option<f64>,
    /// Dead letters.
    pub dead: u64,
}

/// Who keeps old row versions alive.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// How long it has been open, in seconds.
    pub seconds: f64,
    /// A process id, a prepared transaction's name, a replication slot.
    pub who: String,
}

/// A row of the outbox.
#[derive(Clone, Debug, Serialize)]
pub struct OutboxRow {
    /// Its position.
    pub seq: i64,
    /// The event.
    pub id: String,
    /// The event's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it goes.
    pub topic: String,
    /// Ordering key.
    pub key: String,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// Bytes of its payload.
    pub payload_bytes: i64,
    /// Whether it has been published, by the cursor as it is stored.
    pub published: bool,
}

/// A parked message.
#[derive(Clone, Debug, Serialize)]
pub struct ParkedRow {
    /// Its consumer.
    pub consumer: String,
    /// Topic and key.
    #[serde(flatten)]
    pub lane: LaneText,
    /// Envelope id, or place.
    pub what: String,
    /// Event type, where it could be read.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Attempts so far; 0 for one that waits behind another.
    pub attempts: u32,
    /// When it was parked.
    pub parked_at: DateTime<Utc>,
    /// When the next attempt is due; none for one that waits behind another, or is held.
    pub due_at: Option<DateTime<Utc>>,
    /// Whether the lane is held until a person decides.
    pub held: bool,
    /// Class of the last failure.
    pub class: Option<String>,
    /// The last error.
    pub error: Option<String>,
}

/// Topic and key, for output.
#[derive(Clone, Debug, Serialize)]
pub struct LaneText {
    /// The topic.
    pub topic: String,
    /// The ordering key.
    pub key: String,
}

impl From<Lane> for LaneText {
    fn from(Lane { topic, key }: Lane) -> Self {
        Self { topic, key }
    }
}

/// A dead letter, without its record.
#[derive(Clone, Debug, Serialize)]
pub struct DeadRow {
    /// Its number, for the acts.
    pub id: i64,
    /// Who gave up.
    pub by: String,
    /// Envelope id, or place.
    pub what: String,
    /// Event type, where it could be read.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Topic.
    pub topic: String,
    /// Ordering key, where it could be read.
    pub key: Option<String>,
    /// Where it lay, where that is known.
    pub partition: Option<i32>,
    /// Where it lay, where that is known.
    pub offset: Option<i64>,
    /// Class of the last failure.
    pub class: String,
    /// Why it was given up.
    pub reason: String,
    /// Attempts in all.
    pub attempts: u32,
    /// What happened.
    pub history: History,
    /// The conversation it belongs to.
    pub correlation_id: Option<String>,
    /// The trace in which it was written (`traceparent`).
    pub trace: Option<String>,
    /// When it failed first.
    pub first_at: DateTime<Utc>,
    /// When it was given up.
    pub last_at: DateTime<Utc>,
    /// Whether its key is held until a person decides.
    pub holds_key: bool,
    /// How many messages of its key were handled after it was given up.
    pub newer: u64,
    /// Bytes of its payload; none where nothing is left of it.
    pub payload_bytes: Option<i64>,
}

/// An envelope that is not due yet.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduledRow {
    /// The envelope.
    pub id: String,
    /// Event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Topic.
    pub topic: String,
    /// Ordering key.
    pub key: String,
    /// When it is due.
    pub due_at: DateTime<Utc>,
}

/// What a person did.
#[derive(Clone, Debug, Serialize)]
pub struct AuditRow {
    /// Number.
    pub id: i64,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// Which act, such as `redrive`.
    pub act: String,
    /// To what.
    pub target: String,
    /// Why, in their words.
    pub reason: String,
    /// What came of it.
    pub outcome: String,
}

/// Something that a look at the database found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub grade: Grade,
    /// What was looked at, such as `clock`.
    pub what: String,
    /// What was found, and what to do about it where there is something to do.
    pub says: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be.
    Fine,
    /// It works, and may cost something some day.
    Warning,
    /// It does not work, or loses something.
    Fault,
}

/// A record for a person to look at.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// Headers, as text where they are text.
    pub headers: Vec<(String, String)>,
    /// The payload as text, or in base 16 where it is not text.
    pub payload: Option<String>,
}

impl Shown {
    /// Of a record.
    pub fn of(record: &RawRecord) -> Self {
        let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        Self {
            headers: record.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            payload: record.payload.as_deref().map(text),
        }
    }
}
