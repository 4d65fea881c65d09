//! malote on SQLite: a store, and a durable log as transport.
//!
//! On the first day there is neither a database server nor a broker. [`Sqlite`] keeps a service's
//! state, outbox and inbox in one file; [`Embedded`] carries envelopes between services in another,
//! for one process or for several on one machine. The promises are those of PostgreSQL and Kafka.
//!
//! ```text
//!   service ──Tx──▶ its own file (state, outbox, inbox) ──relay──▶ Embedded (one log file) ──▶ services
//! ```

pub mod embedded;
mod store;

pub use embedded::Embedded;
pub use store::{Builder, Sqlite, Tx};
