//! The one thing that moves.
//!
//! A [`Message`] is what somebody wants to say. Sealing gives it an id, a time, a source and its
//! place in a conversation, once, in the transaction that says it; from then on it is an
//! [`Envelope`] and nothing about it changes, through re-sends, dead letters and redrives.

use crate::{Clock, Event};
use bytes::Bytes;
use chrono::{DateTime, SubsecRound, Utc};
use std::{fmt, sync::Arc};
use uuid::Uuid;

/// The largest envelope that may be written, in bytes of key, payload and headers together.
///
/// Kafka refuses records above 1 MiB by default, and a refusal after the commit is too late, so the
/// size is checked when the row is written, with room left for the record's own framing.
pub const MAX_ENVELOPE_BYTES: usize = 1_000_000;

/// What somebody wants to say, not sealed yet.
#[derive(Clone, PartialEq)]
pub struct Message {
    /// The event's type, such as `payment.settled.v1`.
    pub kind: String,
    /// Where it is published; types that must keep order among themselves share a topic.
    pub topic: String,
    /// Messages of one topic and key are delivered in order.
    pub key: String,
    /// Media type of the payload.
    pub content_type: String,
    /// The bytes as they were written; nobody re-writes them on the way.
    pub payload: Bytes,
}

/// A sealed message: a CloudEvent with a topic.
#[derive(Clone, PartialEq)]
pub struct Envelope {
    /// Names this message for ever; what the inbox remembers.
    pub id: Uuid,
    /// The event's type.
    pub kind: String,
    /// Where it is published.
    pub topic: String,
    /// Ordering key.
    pub key: String,
    /// The service that wrote it.
    pub source: String,
    /// When it was written, by the writer's clock, to the microsecond.
    pub time: DateTime<Utc>,
    /// Media type of the payload.
    pub content_type: String,
    /// Names the conversation: the id of its first message unless the writer chose another.
    pub correlation_id: Option<String>,
    /// The message that made the writer say this.
    pub causation_id: Option<Uuid>,
    /// The trace in which it was written.
    pub trace: Option<TraceContext>,
    /// The trace of the hop that carried it last; what the receiver continues.
    pub hop: Option<TraceContext>,
    /// Position in its outbox, where one is known.
    pub sequence: Option<i64>,
    /// Further attributes, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// The bytes as they were written.
    pub payload: Bytes,
}

/// W3C Trace Context, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The `traceparent` header.
    pub parent: String,
    /// The `tracestate` header.
    pub state: Option<String>,
}

/// Why something is said: what came before, and under which trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// The conversation it belongs to.
    pub correlation_id: Option<String>,
    /// The message that led to it.
    pub causation_id: Option<Uuid>,
    /// The trace that is open.
    pub trace: Option<TraceContext>,
}

impl Cause {
    /// The cause of whatever is said while `envelope` is handled.
    pub fn of(envelope: &Envelope) -> Self {
        Self {
            correlation_id: Some(envelope.correlation_id.clone().unwrap_or_else(|| envelope.id.to_string())),
            causation_id: Some(envelope.id),
            trace: envelope.hop.clone().or_else(|| envelope.trace.clone()),
        }
    }
}

/// Seals what is said within one transaction.
#[derive(Clone)]
pub struct Sealer {
    /// The service that speaks.
    pub source: Arc<str>,
    /// Why it speaks.
    pub cause: Cause,
    /// Where ids and times come from.
    pub clock: Arc<dyn Clock>,
    /// Who is told of each envelope, so that its making shows in the trace.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// Told when an envelope is made.
pub trait Tracer: Send + Sync + 'static {
    /// Records the making of an envelope as a span under its `trace`, and returns that span's own
    /// context for it to carry; none where nothing is traced.
    fn created(&self, envelope: &Envelope) -> Option<TraceContext>;
}

impl Sealer {
    /// Speaks for `source` with no cause yet, and without traces.
    pub fn new(source: &str, clock: Arc<dyn Clock>) -> Self {
        Self { source: source.into(), cause: Cause::default(), clock, tracer: None }
    }

    /// Makes an envelope of a message, or says why it could never be delivered.
    pub fn seal(&self, message: Message) -> Result<Envelope, Unfit> {
        let id = self.clock.new_id();
        let mut envelope = Envelope {
            id,
            kind: message.kind,
            topic: message.topic,
            key: message.key,
            source: self.source.to_string(),
            time: self.clock.now().trunc_subsecs(6),
            content_type: message.content_type,
            correlation_id: Some(self.cause.correlation_id.clone().unwrap_or_else(|| id.to_string())),
            causation_id: self.cause.causation_id,
            trace: self.cause.trace.clone(),
            hop: None,
            sequence: None,
            headers: Vec::new(),
            payload: message.payload,
        };
        envelope.check()?;
        if let Some(created) = self.tracer.as_ref().and_then(|t| t.created(&envelope)) {
            envelope.trace = Some(created);
        }
        Ok(envelope)
    }
}

/// A message that no store or broker could carry; found when it is written, not when it is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The topic's name is not one that Kafka takes.
    #[error(
        "the topic {0:?} of an event of type {1:?} is not a valid name: use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    )]
    Topic(String, String),
    /// A NUL character, which PostgreSQL cannot hold in text.
    #[error("the {0} of an event of type {1:?} holds a NUL character: remove it, or carry it in the payload")]
    Nul(&'static str, String),
    /// Too large for a broker with default settings.
    #[error(
        "an event of type {kind:?} takes {size} bytes, {limit} are allowed: store the bulk elsewhere and send a reference"
    )]
    Large {
        /// The event's type.
        kind: String,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The event could not be written as JSON.
    #[error("an event of type {0:?} could not be written as JSON: {1}")]
    Encode(String, String),
    /// The payload is not an event of the expected type.
    #[error("the payload is not a {0}: {1}")]
    Decode(&'static str, String),
}

impl Message {
    /// Writes an event as JSON.
    pub fn of<E: Event>(event: &E) -> Result<Self, Unfit> {
        let payload = serde_json::to_vec(event).map_err(|e| Unfit::Encode(E::TYPE.into(), e.to_string()))?;
        Ok(Self {
            kind: E::TYPE.into(),
            topic: E::topic().into(),
            key: event.key(),
            content_type: "application/json".into(),
            payload: payload.into(),
        })
    }
}

impl Envelope {
    /// Reads it as an event.
    pub fn open<E: Event>(&self) -> Result<E, Unfit> {
        E::open(self)
    }

    /// Bytes of key, payload and headers together.
    pub fn size(&self) -> usize {
        const FIXED: usize = 512; // names and fixed-size values of the attributes on the wire
        let text = |t: &Option<TraceContext>| {
            t.as_ref().map_or(0, |t| t.parent.len() + t.state.as_ref().map_or(0, String::len))
        };
        FIXED
            + self.kind.len()
            + 2 * self.key.len()
            + self.source.len()
            + self.correlation_id.as_ref().map_or(0, String::len)
            + 2 * text(&self.trace)
            + self.headers.iter().map(|(k, v)| k.len() + v.len() + 4).sum::<usize>()
            + self.payload.len()
    }

    /// Says why this could never be delivered, if so.
    pub fn check(&self) -> Result<(), Unfit> {
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.topic.is_empty()
            || self.topic.len() > 249
            || !self.topic.chars().all(name)
            || self.topic == "."
            || self.topic == ".."
        {
            return Err(Unfit::Topic(self.topic.clone(), self.kind.clone()));
        }
        for (what, text) in [("type", &self.kind), ("key", &self.key), ("source", &self.source)] {
            if text.contains('\0') && !crate::planted::is("accept-nul") {
                return Err(Unfit::Nul(what, self.kind.replace('\0', "\u{fffd}")));
            }
        }
        let size = self.size();
        if size > MAX_ENVELOPE_BYTES && !crate::planted::is("accept-large") {
            return Err(Unfit::Large { kind: self.kind.clone(), size, limit: MAX_ENVELOPE_BYTES });
        }
        Ok(())
    }
}

/// Shows everything but the payload, which may hold what nobody should read in a log.
impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("topic", &self.topic)
            .field("key", &self.key)
            .field("source", &self.source)
            .field("sequence", &self.sequence)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("kind", &self.kind)
            .field("topic", &self.topic)
            .field("key", &self.key)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
