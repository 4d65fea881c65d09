//! A relay's lease and cursor.

use super::{Sqlite, failed, fence, outbox};
use malote_core::{Incarnation, Lease, Saved, StoreError, Taken, planted, relay::Cursor};
use sqlx::Row;
use std::time::Duration;

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

pub(super) async fn take_lease(
    store: &Sqlite,
    name: &str,
    who: Incarnation,
    lasts: Duration,
) -> Result<Taken, StoreError> {
    let doing = || format!("taking the lease of relay {name:?}");
    let mut tx = store.lock().await?;
    let taken = sqlx::query(include_str!("../../sql/take_lease.sql"))
        .bind(name)
        .bind(who.0.to_string())
        .bind(millis(lasts))
        .fetch_optional(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    let Some(row) = taken else {
        let left: Option<i64> = sqlx::query_scalar(include_str!("../../sql/lease_left.sql"))
            .bind(name)
            .fetch_optional(&mut *tx)
            .await
            .map_err(failed(doing()))?;
        tx.rollback(&doing()).await?;
        return Ok(Taken::Theirs(Duration::from_millis(left.unwrap_or(0).unsigned_abs())));
    };
    let epoch = row.try_get("epoch").map_err(failed(doing()))?;
    let high = row.try_get("high").map_err(failed(doing()))?;
    let gaps: String = row.try_get("gaps").map_err(failed(doing()))?;
    let last = row.try_get("last").map_err(failed(doing()))?;
    tx.commit(&doing(), || ()).await?;
    let lease = Lease { name: name.to_owned(), who, epoch };
    Ok(Taken::Mine { lease, cursor: Cursor { high, gaps: outbox::ranges_from_json(&gaps)? }, last })
}

pub(super) async fn release_lease(store: &Sqlite, lease: &Lease) -> Result<(), StoreError> {
    let doing = format!("giving back the lease of relay {:?}", lease.name);
    let mut tx = store.lock().await?;
    sqlx::query(include_str!("../../sql/release_lease.sql"))
        .bind(&lease.name)
        .bind(lease.who.0.to_string())
        .bind(lease.epoch)
        .execute(&mut *tx)
        .await
        .map_err(failed(&doing))?;
    tx.commit(&doing, || ()).await
}

pub(super) async fn save(store: &Sqlite, lease: &Lease, cursor: &Cursor, lasts: Duration) -> Result<Saved, StoreError> {
    let doing = format!("storing the cursor of relay {:?}", lease.name);
    let statement = fence(
        planted::is("old-epoch-saves"),
        include_str!("../../sql/save.sql"),
        "AND incarnation = $2 AND epoch = $3",
    );
    let mut tx = store.lock().await?;
    let saved = sqlx::query(statement)
        .bind(&lease.name)
        .bind(lease.who.0.to_string())
        .bind(lease.epoch)
        .bind(cursor.high)
        .bind(outbox::ranges_to_json(&cursor.gaps))
        .bind(millis(lasts))
        .execute(&mut *tx)
        .await
        .map_err(failed(&doing))?;
    tx.commit(&doing, || ()).await?;
    // one writer: there is no transaction that could still fill a gap, so any bound will do
    Ok(if saved.rows_affected() == 1 { Saved::Kept { bound: 0 } } else { Saved::Fenced })
}
