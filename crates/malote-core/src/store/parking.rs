//! Messages that wait for another attempt, and those that wait behind them.
//!
//! ```text
//!   a message fails ──▶ its key becomes a lane: [ head · behind · behind ]
//!                                                  │ due: claimed (the attempt is counted first)
//!                       handled ◀──────────────────┤
//!                       again later ◀──────────────┤
//!                       dead letter ◀──────────────┘   the next one is the head; an empty lane goes
//! ```
//!
//! A lane lies in the consumer's own database, so every process of the service sees it and a
//! rebalance moves nothing.

use super::{Admission, Dead, History, Incarnation, Store, StoreError};
use crate::{Class, RawRecord};
use chrono::{DateTime, Utc};
use std::{future::Future, time::Duration};

/// What keeps its order: a topic and a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The topic.
    pub topic: String,
    /// The ordering key.
    pub key: String,
}

/// Whether messages of a lane may be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneState {
    /// They may.
    Free,
    /// They may, and are counted: a dead letter of the lane has been left behind. See [`ParkingStore::pass`].
    Passing,
    /// Something of it is parked, or held for a person: they go behind it.
    Busy,
}

/// A message that is to wait.
#[derive(Clone, Debug)]
pub struct ToPark {
    /// Its lane.
    pub lane: Lane,
    /// Identifies it in the consumer: its envelope id, or its place.
    pub what: String,
    /// The inbox row that it has, and that says from now on that it is parked; none for a record
    /// that cannot be read.
    pub admission: Option<Admission>,
    /// The event's type, where it could be read.
    pub kind: Option<String>,
    /// The record as it came.
    pub record: RawRecord,
    /// Why it waits; none for one that waits behind another.
    pub setback: Option<Failed>,
}

/// How an attempt went wrong, and when the next one may be made.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The class of the failure.
    pub class: Class,
    /// The error, cut by [`super::cut_reason`].
    pub error: String,
    /// How often it was tried so far.
    pub attempts: u32,
    /// What happened so far, this included.
    pub history: History,
    /// The wait before the next attempt, by the database's clock.
    pub wait: Duration,
}

/// The head of a lane, claimed for one attempt. Its count already includes that attempt, so that one
/// which kills the process was counted, too.
#[derive(Clone, Debug)]
pub struct Parked {
    /// The lane.
    pub lane: Lane,
    /// The consumer.
    pub consumer: String,
    /// Its place among the parked.
    pub n: i64,
    /// Grows with each claim of the lane; what an older claim wants to change is refused.
    pub epoch: i64,
    /// For how long the lane is claimed; then somebody else may.
    pub holds: Duration,
    /// See [`ToPark::what`].
    pub what: String,
    /// See [`ToPark::admission`].
    pub admission: Option<Admission>,
    /// The attempt that is about to be made, from 1.
    pub attempts: u32,
    /// How long ago it failed first (zero for one that only waited behind), by the database's clock.
    pub age: Duration,
    /// What happened so far.
    pub history: History,
    /// The record as it came.
    pub record: RawRecord,
}

/// How the attempt at a head came out.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Handled; its inbox row says `done`.
    Done,
    /// To be tried again.
    Again(Failed),
    /// Given up.
    Dead {
        /// The dead letter.
        dead: Box<Dead>,
        /// Whether the key stays held until a person decides.
        hold: bool,
    },
}

/// What is at the head now.
#[derive(Clone, Debug)]
pub enum Settled {
    /// The lane was claimed by somebody else meanwhile; nothing was changed, and the transaction must
    /// not commit.
    Fenced,
    /// The next message, under the same claim, its attempt counted.
    Next(Box<Parked>),
    /// Nothing that can be done now.
    Rest,
}

/// Limits how many second and later attempts a consumer makes, all of its processes together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Attempts a second.
    pub per_second: f64,
    /// Attempts that may come at once after a quiet time.
    pub burst: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { per_second: 100.0, burst: 100.0 }
    }
}

/// Asks for lanes whose head is due.
#[derive(Clone, Debug)]
pub struct ClaimDue {
    /// Who asks.
    pub who: Incarnation,
    /// At most so many lanes.
    pub most: u32,
    /// For how long they are claimed: longer than an attempt may take.
    pub holds: Duration,
    /// What all processes of the consumer may do together.
    pub budget: Budget,
}

/// Lanes that were claimed.
#[derive(Clone, Debug, Default)]
pub struct Due {
    /// Their heads.
    pub heads: Vec<Parked>,
    /// When it is worth asking again, if something waits.
    pub next: Option<Duration>,
}

/// The part of a store in which messages wait.
pub trait ParkingStore: Store {
    /// Says of each lane whether its messages may be handled. Call it after [`Store::admit`], in a
    /// statement of its own: it then sees what was parked by whoever held the same events before.
    /// The lanes that are not free stay as they are until the transaction ends.
    fn lanes(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        lanes: &[Lane],
    ) -> impl Future<Output = Result<Vec<LaneState>, StoreError>> + Send;

    /// Locks lanes of which several are about to change by more than one of [`Self::park`], [`Self::pass`]
    /// and [`Store::set_aside`], in one order for all, so that two transactions never wait for each other in a
    /// circle. Call it before the first of these. Where one transaction writes at a time there is nothing to do.
    fn lock_lanes(
        &self,
        _tx: &mut Self::Tx,
        _consumer: &str,
        _lanes: &[Lane],
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Parks messages, in the order given, at the end of their lanes; their inbox rows say `parked`.
    fn park(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        letters: &[ToPark],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Counts messages that were handled in lanes with a dead letter ([`LaneState::Passing`]), so that
    /// a redrive can tell that something newer has been handled since.
    fn pass(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        lanes: &[Lane],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Claims lanes that are due, the longest overdue first, and counts the attempt at each head, in a
    /// transaction of its own. A lane that somebody is at is left out, not waited for.
    fn claim_due(&self, consumer: &str, ask: &ClaimDue) -> impl Future<Output = Result<Due, StoreError>> + Send;

    /// Takes the head out of its lane, or puts its next attempt off, in the transaction of the
    /// attempt, and says what is the head now.
    fn settle(
        &self,
        tx: &mut Self::Tx,
        head: &Parked,
        ending: &Ending,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Takes partitions (topic, number) for `who`, in a transaction of its own; says of each whether
    /// its last holder never gave it back: it may have died over one of the records that come first.
    fn take_custody(
        &self,
        consumer: &str,
        who: Incarnation,
        partitions: &[(String, i32)],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Gives back whatever `who` holds: nothing of it is under way any more.
    fn give_back(&self, consumer: &str, who: Incarnation) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How many runs of each of these have begun and not ended.
    fn runs(&self, consumer: &str, what: &[String]) -> impl Future<Output = Result<Vec<u32>, StoreError>> + Send;

    /// Counts runs that are about to begin, in a transaction of its own; returns how many runs of each have
    /// begun and not ended, this one included. What is named twice runs once.
    fn runs_begin(&self, consumer: &str, what: &[String]) -> impl Future<Output = Result<Vec<u32>, StoreError>> + Send;

    /// The runs of these have come to an end, whichever, in the transaction that they end with.
    fn runs_ended(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        what: &[String],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl Parked {
    /// When it was parked, for people; by the clock given.
    pub fn since(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        chrono::TimeDelta::from_std(self.age).ok().and_then(|age| now.checked_sub_signed(age)).unwrap_or(now)
    }
}
