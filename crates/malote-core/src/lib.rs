//! The words and the decisions of malote.
//!
//! Everything that can be decided without asking anyone is decided here, in plain functions: what
//! the relay publishes and which gap it may close, which members of a batch run alone, when to try
//! again, where a key lives. Nothing here awaits, reads a clock or touches a database, so a
//! simulator can drive the very code that runs in production. The ports ([`Store`], [`Transport`],
//! [`Clock`]) say what the outside must do; adapters do it without deciding.
//!
//! ```text
//!   event ──▶ Message ──seal──▶ Envelope ──▶ outbox ──▶ relay(Plan) ──▶ transport
//!                                                                           │
//!   handler ◀── Envelope::open ◀── inbox (admit) ◀── Isolation ◀── wire ◀───┘
//! ```

mod clock;
mod envelope;
mod event;
mod failure;
mod handler;
pub mod inspect;
pub mod isolation;
pub mod partition;
pub mod planted;
pub mod relay;
pub mod retry;
pub mod saga;
mod store;
pub mod topology;
mod transport;
pub mod wire;

pub use clock::Clock;
pub use envelope::{Cause, Envelope, MAX_ENVELOPE_BYTES, Message, Sealer, TraceContext, Tracer, Unfit};
pub use event::{Event, EventType, Events, unread};
pub use failure::{Class, Failure, Outcome, chain};
pub use handler::{Effect, Handler, IdempotencyKey, Record, Retrying, With, retrying, with};
pub use store::{
    Admission, Answer, Budget, By, Claim, ClaimDue, ClaimSource, ClaimedRow, Dead, Due, Ending, Failed, Fired,
    FullStore, History, IdempotencyStore, Incarnation, KeptStore, Lane, LaneState, Lease, Parked, ParkingStore, Prune,
    Pruned, REASON_BYTES, Read, RequestKey, Row, Saved, Setback, Settled, Store, StoreError, Taken, TimerStore, ToPark,
    Transaction, When, cut_reason,
};
pub use transport::{
    BoxFuture, Delivery, Keeps, Place, Publisher, RawRecord, Report, Reports, Subscription, Transport, TransportError,
};
