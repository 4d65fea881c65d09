//! Envelopes that are not due yet.

use super::{Store, StoreError};
use chrono::{DateTime, Utc};
use std::{future::Future, time::Duration};

/// When a scheduled envelope is to be sent; measured by the database's clock, never before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the transaction that schedules it.
    After(Duration),
    /// At this time; at once when it has passed.
    At(DateTime<Utc>),
}

impl From<Duration> for When {
    fn from(after: Duration) -> Self {
        Self::After(after)
    }
}

impl From<DateTime<Utc>> for When {
    fn from(at: DateTime<Utc>) -> Self {
        Self::At(at)
    }
}

/// What a look at the schedule came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// How many envelopes moved to the outbox.
    pub moved: u32,
    /// How long until the next one is due, where there is one.
    pub next: Option<Duration>,
}

/// The part of a store in which envelopes wait for their time.
pub trait TimerStore: Store {
    /// Moves what is due to the outbox, in the order in which it was due, at most `most`, in one
    /// transaction: each envelope is in one place or the other. Any number of processes may do this
    /// at once. The envelope's time becomes the time at which it is moved.
    fn fire(&self, most: u32) -> impl Future<Output = Result<Fired, StoreError>> + Send;
}
