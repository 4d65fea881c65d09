//! What the example programs share: how settings are read, databases are opened and waited for, and
//! several services run in one process.
//!
//! A program is a list of [`Part`](app::Part)s, one for each service. An [`App`](app::App) opens them,
//! says over HTTP what it waits for meanwhile, and runs them until it is told to stop.

pub mod app;
pub mod config;
pub mod faults;
pub mod http;
pub mod mailbox;
pub mod program;
#[cfg(feature = "testing")]
pub mod testing;
