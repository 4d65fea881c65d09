//! What leaves a store, and when.

use super::{Store, StoreError};
use std::{future::Future, time::Duration};

/// Something that grows, and how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prune {
    /// Inbox rows of events that are done, by the day of the event's own time.
    Inbox(Duration),
    /// Answers at the edge.
    Answers(Duration),
    /// Dead letters.
    Dead(Duration),
    /// Acts of people.
    Audit(Duration),
    /// Sagas that have ended: state, steps and history go, a tombstone stays, so that a late second start
    /// meets it.
    Sagas(Duration),
    /// Tombstones of sagas, by when the saga ended.
    Tombstones(Duration),
    /// What participants of sagas were asked, by when it was answered or called off.
    Operations(Duration),
}

impl Prune {
    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inbox(_) => "inbox",
            Self::Answers(_) => "idempotency",
            Self::Dead(_) => "dead",
            Self::Audit(_) => "audit",
            Self::Sagas(_) => "sagas",
            Self::Tombstones(_) => "tombstones",
            Self::Operations(_) => "operations",
        }
    }

    /// How long it is kept.
    pub fn keep(self) -> Duration {
        match self {
            Self::Inbox(keep)
            | Self::Answers(keep)
            | Self::Dead(keep)
            | Self::Audit(keep)
            | Self::Sagas(keep)
            | Self::Tombstones(keep)
            | Self::Operations(keep) => keep,
        }
    }
}

/// What one step of the clean-up came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Rows removed (rows that would be, in a dry run).
    pub rows: u64,
    /// Whether more of the kind is due.
    pub more: bool,
}

/// The part of a store that lets old rows go.
pub trait KeptStore: Store {
    /// Removes rows of one kind that are older than they are kept, at most `most` (a whole partition
    /// counts as one step however many it holds), in one short transaction that keeps nobody waiting.
    /// With `dry`, only counts them.
    fn prune(&self, what: Prune, most: u32, dry: bool) -> impl Future<Output = Result<Pruned, StoreError>> + Send;
}
