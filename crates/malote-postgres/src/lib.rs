//! malote on PostgreSQL 15 and newer.
//!
//! One database holds a service's own tables and malote's, so a change and the message about it are
//! one transaction. The outbox is a log that is appended to and read by position; its rows are never
//! updated. `sql/migrations/0001_first.sql` explains the tables, the other files in `sql/` hold one
//! statement each, with its reason.
//!
//! ```text
//!   Tx (tx.rs) ── publish ──▶ outbox ──▶ read, save (relay.rs) ──▶ the relay in crate `malote`
//!     │ commit ── wake.rs ──▶ wakes the relay, here or in another process
//!     └─ admit (inbox.rs), finish (idempotency.rs)
//! ```
//!
//! ```no_run
//! # async fn f(sealer: malote_core::Sealer, account: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use malote_postgres::Postgres;
//!
//! let store = Postgres::connect("postgres://ledger@localhost/ledger").await?;
//! store.migrate().await?;
//! let mut tx = store.begin(sealer).await?;
//! sqlx::query("UPDATE account SET balance = balance - 1 WHERE id = $1").bind(account).execute(&mut *tx).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

mod adopted;
mod attributes;
mod connect;
mod custody;
mod dead;
mod error;
mod idempotency;
mod inbox;
mod inspect;
mod keeper;
mod kept;
mod lane;
mod migrate;
mod name;
mod outbox;
mod parked;
#[cfg(feature = "planted")]
mod planted;
mod record;
mod relay;
mod saga;
mod scheduled;
mod settle;
mod sql;
mod store;
mod tx;
mod wake;

pub use adopted::{Adopted, Layout, Mark, Topic};
pub use connect::Builder;
pub use error::Problem;
pub use store::Postgres;
pub use tx::Tx;
