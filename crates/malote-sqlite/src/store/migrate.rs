//! Numbered steps, forward only, each in one transaction of its own.
//!
//! The transaction takes the write lock at its start and asks only then which step is next, so
//! several processes may do this at once: each step is taken by one of them, and a process that is
//! killed leaves whole steps behind. A file that a newer version has brought further is left as it
//! is; steps are written so that the version before can live with them.

use super::{Sqlite, failed};
use malote_core::StoreError;
use sqlx::Executor;

const STEPS: &[(i64, &str, &str)] = &[
    (1, "first", include_str!("../../sql/migrations/0001_first.sql")),
    (2, "waiting", include_str!("../../sql/migrations/0002_waiting.sql")),
    (3, "sagas", include_str!("../../sql/migrations/0003_sagas.sql")),
];

/// The version of the tables that this library knows.
pub(super) const KNOWN: i64 = STEPS[STEPS.len() - 1].0;

pub(super) async fn migrate(store: &Sqlite) -> Result<u32, StoreError> {
    let mut taken = 0;
    while step(store).await? {
        taken += 1;
    }
    Ok(taken)
}

/// Takes the next step; false when there is none.
async fn step(store: &Sqlite) -> Result<bool, StoreError> {
    let doing = "bringing malote's tables up to date";
    let mut tx = store.lock().await?;
    let connection = &mut *tx;
    connection.execute(include_str!("../../sql/migrations.sql")).await.map_err(failed(doing))?;
    let done: i64 = sqlx::query_scalar("SELECT coalesce(max(number), 0) FROM malote_migration")
        .fetch_one(&mut *connection)
        .await
        .map_err(failed(doing))?;
    let Some((number, name, sql)) = STEPS.iter().find(|(number, ..)| *number > done) else {
        tx.rollback(doing).await?;
        return Ok(false);
    };
    let doing = format!("taking migration {number:04}_{name}");
    sqlx::raw_sql(*sql).execute(&mut *connection).await.map_err(failed(&doing))?;
    sqlx::query("INSERT INTO malote_migration (number, name) VALUES ($1, $2)")
        .bind(number)
        .bind(name)
        .execute(&mut *connection)
        .await
        .map_err(failed(&doing))?;
    tx.commit(&doing, || ()).await?;
    Ok(true)
}
