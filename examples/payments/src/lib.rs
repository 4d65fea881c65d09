//! A payment across four services, by choreography.
//!
//! Nobody holds the whole sequence: each service owns its database and knows which events it consumes
//! and which it emits. What one service did is undone, where the next cannot go on, by an event that
//! it reacts to.
//!
//! ```text
//!   service       consumes                      emits                owns
//!   payment       settled, rejected, failed,    received, overdue    the payment and its status
//!                 overdue
//!   fraud         received                      approved, rejected   decisions
//!   ledger        approved                      settled, failed      accounts and entries
//!   notification  settled, rejected, failed     nothing              what was sent
//! ```
//!
//! The services are written once and run on SQLite or PostgreSQL, whichever a URL names at start, in
//! one process or in one process each.

pub mod api;
pub mod app;
pub mod channel;
pub mod config;
pub mod contracts;
pub mod money;
#[cfg(feature = "servers")]
pub mod postgres;
pub mod risk;
pub mod sqlite;
