//! What a relay and its store say to each other.

use crate::{Envelope, relay::Cursor};
use std::time::Duration;
use uuid::Uuid;

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
