//! Reliable messages between services: state and event in one commit, each event once in effect.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")] mod example {
//! use malote::prelude::*;
//! use malote::sqlite::{Embedded, Sqlite, Tx};
//! use serde::{Deserialize, Serialize};
//! use std::sync::Arc;
//!
//! #[derive(Serialize, Deserialize)]
//! struct PaymentApproved { id: String, amount: i64 }
//! impl Event for PaymentApproved {
//!     const TYPE: &'static str = "payment.approved.v1";
//!     fn key(&self) -> String { self.id.clone() }
//! }
//! #[derive(Serialize, Deserialize)]
//! struct PaymentSettled { id: String }
//! impl Event for PaymentSettled {
//!     const TYPE: &'static str = "payment.settled.v1";
//!     fn key(&self) -> String { self.id.clone() }
//! }
//!
//! /// The signature is the service's row in the flow: consumes and emits.
//! async fn settle(payment: PaymentApproved, tx: &mut Tx) -> Outcome<PaymentSettled> {
//!     sqlx::query("update accounts set balance = balance - $1").bind(payment.amount).execute(&mut **tx).await?;
//!     Ok(PaymentSettled { id: payment.id })
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Sqlite::open("ledger.db").await?;
//! store.migrate().await?;
//! let log = Arc::new(Embedded::open("log.db").await?);
//! let ledger = Service::new("ledger", store, log).on(settle).terminal::<PaymentSettled>();
//! Runtime::new().with(ledger).run_until(tokio::signal::ctrl_c()).await?;
//! # Ok(()) }
//! # }
//! ```
//!
//! A [`Service`] has a store of its own, a transport that it shares with others, and handlers. A
//! [`Runtime`] moves what the service writes (the relay) and what it receives (the consumer) until
//! it is told to stop.

mod clock;
mod consumer;
#[cfg(feature = "http")]
pub mod edge;
mod health;
mod janitor;
mod observer;
mod outbox;
mod relay;
mod retention;
mod runtime;
pub mod saga;
mod service;
mod supervise;
pub mod telemetry;
mod timer;

pub use clock::SystemClock;
pub use health::{Health, State};
#[doc(hidden)]
pub use malote_core::planted;
pub use malote_core::{
    Budget, Cause, Class, Clock, Dead, Effect, Envelope, Event, EventType, Events, Failure, FullStore, Handler,
    IdempotencyKey, IdempotencyStore, Message, Outcome, Record, Store, StoreError, Transaction, Transport,
    TransportError, Unfit, When, chain, events, inspect, partition, retry, retrying, topology, with,
};
pub use outbox::Outbox;
pub use relay::ClaimRelay;
pub use retention::Retention;
pub use runtime::{Runtime, RuntimeError};
pub use service::Service;

#[cfg(feature = "kafka")]
pub use malote_kafka as kafka;
#[cfg(feature = "postgres")]
pub use malote_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use malote_sqlite as sqlite;

/// What a service's source needs by name.
pub mod prelude {
    pub use crate::{Event, Failure, IdempotencyKey, Outbox, Outcome, Runtime, Service, events, with};
}
