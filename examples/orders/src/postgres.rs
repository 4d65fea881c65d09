//! The four services on PostgreSQL: a database for each.

pub use malote::postgres::{Postgres as Db, Tx};

/// Two `CREATE TABLE IF NOT EXISTS` at once may collide; an advisory lock lets one wait for the other.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtextextended('orders schema', 0))";

/// Connects to the database behind a URL.
async fn connect(url: &str) -> Result<Db, malote::StoreError> {
    Db::connect(url).await
}

// one source on two stores: see docs/decisions/0010-one-source-two-stores.md
#[allow(clippy::duplicate_mod)]
#[path = "services/mod.rs"]
mod services;
pub use services::*;
