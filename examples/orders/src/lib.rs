//! An order across four services and an outside payment provider, by orchestration.
//!
//! One service leads: the order service holds the saga, asks the others for one thing after the other,
//! and has undone what was done when one of them says no. The others know their own part and nothing of
//! each other.
//!
//! ```text
//!   step                  service     undone by
//!   create pending order  order       mark it cancelled or rejected
//!   reserve stock         inventory   release the reservation
//!   authorise payment     billing     void the authorisation
//!   keep stock            inventory   (the release)
//!   capture payment       billing     refund, when a person asks       the point of no return
//!   confirm order         order       send a correction, likewise
//!   request delivery      shipping    cancel it, or ask for a return, likewise
//! ```
//!
//! The services are written once and run on SQLite or PostgreSQL, whichever a URL names at start, in
//! one process or in one process each.

pub mod api;
pub mod app;
pub mod config;
pub mod contracts;
#[cfg(feature = "servers")]
pub mod postgres;
pub mod provider;
pub mod saga;
pub mod sqlite;
