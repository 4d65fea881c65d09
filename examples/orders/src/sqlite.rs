//! The four services on SQLite: a file for each.

pub use malote::sqlite::{Sqlite as Db, Tx};

/// A transaction that can write holds SQLite's only write lock from its start.
const ONE_AT_A_TIME: &str = "SELECT 1";

/// Opens the database at a path.
async fn connect(url: &str) -> Result<Db, malote::StoreError> {
    Db::open(url).await
}

// one source on two stores: see docs/decisions/0010-one-source-two-stores.md
#[allow(clippy::duplicate_mod)]
#[path = "services/mod.rs"]
mod services;
pub use services::*;
