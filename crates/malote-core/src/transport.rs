//! The port to whatever carries envelopes between services.

use crate::Envelope;
use bytes::Bytes;
use std::{error::Error, future::Future, pin::Pin};

/// A boxed future, so that the ports can be objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Carries envelopes: at least once, in order per (topic, key).
pub trait Transport: Send + Sync + 'static {
    /// Its name in telemetry (`messaging.system`), such as `kafka`.
    fn system(&self) -> &'static str;

    /// Makes sure that the topics exist. Creates missing ones with the partition count that the
    /// transport was configured with; never changes an existing one.
    fn ensure<'a>(&'a self, topics: &'a [String]) -> BoxFuture<'a, Result<(), TransportError>>;

    /// For how long the longest-kept of the topics keeps a record, and so how late one may come back.
    fn keeps<'a>(&'a self, _topics: &'a [String]) -> BoxFuture<'a, Result<Keeps, TransportError>> {
        Box::pin(std::future::ready(Ok(Keeps::Unknown)))
    }

    /// A new way in. A relay takes a new one after any result that leaves it in doubt.
    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, TransportError>>;

    /// Joins `group` and starts delivering `topics`. A group without a position starts at the
    /// oldest record.
    fn subscribe<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>>;
}

/// How long records are kept; see [`Transport::keeps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// As long as this, at least.
    For(std::time::Duration),
    /// For ever.
    Always,
    /// It cannot be said.
    Unknown,
}

/// One report per envelope of a batch, in the batch's order.
pub type Reports = BoxFuture<'static, Vec<Report>>;

/// What became of one envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is stored as durably as the transport stores anything; also when the transport answers
    /// that it has had it already, from an earlier sending.
    Stored,
    /// It will never be taken, with the reason (too large for the topic, say).
    Refused(String),
    /// Nobody knows, with the reason; it has to be sent again under the same id.
    Unknown(String),
}

/// A way in that keeps the order of its calls.
pub trait Publisher: Send {
    /// Hands a batch over. Resolves when there was room for it and its place behind the earlier
    /// batches is taken; the reports come later, and always come (bounded by the transport's own
    /// time limit, after which they are [`Report::Unknown`]). The next batch may be sent before the
    /// reports of this one are there.
    fn send(&mut self, batch: Vec<Envelope>) -> BoxFuture<'_, Result<Reports, TransportError>>;
}

/// A member of a consumer group.
pub trait Subscription: Send {
    /// Waits for the next records, at most `most`, in order per partition. Giving up on the future
    /// loses nothing. Keeps the membership alive whether or not it is called.
    fn next(&mut self, most: usize) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>>;

    /// Gives no records of these partitions from here on, and again those of all others; ones that are not this
    /// member's are passed over. Their records take no room from the others.
    fn hold(&mut self, partitions: &[(String, i32)]);

    /// Says that everything up to and including these places is handled. Places of partitions that
    /// this member has lost since are ignored.
    fn acknowledge<'a>(&'a mut self, handled: &'a [Place]) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Leaves the group in good order; acknowledgements are flushed first.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// One record and where it came from.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Where it lies.
    pub place: Place,
    /// The record as it came; [`crate::wire::decode`] reads it.
    pub record: RawRecord,
}

/// Where a record lies, and under which assignment it was delivered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset within the partition.
    pub offset: i64,
    /// Counts the assignments of the partition to this member, so that a place from before a
    /// rebalance is recognised.
    pub assignment: u64,
}

/// A record as the transport has it: nothing interpreted.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RawRecord {
    /// The record's key.
    pub key: Option<Bytes>,
    /// The record's headers, in order.
    pub headers: Vec<(String, Bytes)>,
    /// The record's value; none for a tombstone.
    pub payload: Option<Bytes>,
}

impl std::fmt::Debug for RawRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawRecord")
            .field("headers", &self.headers.len())
            .field("payload_bytes", &self.payload.as_ref().map_or(0, Bytes::len))
            .finish_non_exhaustive()
    }
}

/// What went wrong with the transport.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct TransportError {
    /// What was being attempted, such as `joining group "ledger"`.
    pub doing: String,
    /// Whether trying again may help.
    pub transient: bool,
    /// The transport's own error.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

impl TransportError {
    /// An error that may pass.
    pub fn transient(doing: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { doing: doing.into(), transient: true, source: source.into() }
    }
    /// An error that needs a person.
    pub fn lasting(doing: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { doing: doing.into(), transient: false, source: source.into() }
    }
}
