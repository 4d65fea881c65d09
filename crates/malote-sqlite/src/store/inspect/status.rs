//! How everything stands.

use super::{
    super::{Sqlite, failed, migrate},
    saga,
};
use malote_core::{
    StoreError,
    inspect::{ConsumerStatus, OutboxStatus, RelayStatus, Status},
};
use sqlx::{Row, SqliteConnection, query};

/// Rows that are counted; beyond, the positions say about how many there are.
const COUNTED: i64 = 100_000;
const DOING: &str = "looking how everything stands";

pub(super) async fn status(store: &Sqlite) -> Result<Status, StoreError> {
    let mut reader = store.reader(DOING).await?;
    let rest = query(include_str!("../../../sql/status_rest.sql")).fetch_one(&mut *reader).await;
    let rest = rest.map_err(failed(DOING))?;
    let relay_dead: i64 = rest.try_get("relay_dead").map_err(failed(DOING))?;
    let open_acts: i64 = rest.try_get("open_acts").map_err(failed(DOING))?;
    let scheduled: i64 = rest.try_get("scheduled").map_err(failed(DOING))?;
    Ok(Status {
        outbox: outbox(&mut reader).await.map_err(failed(DOING))?,
        relays: relays(&mut reader).await.map_err(failed(DOING))?,
        consumers: consumers(&mut reader).await.map_err(failed(DOING))?,
        relay_dead: relay_dead.unsigned_abs(),
        sagas: saga::counts(&mut reader).await.map_err(failed(DOING))?,
        saga_versions: saga::versions(&mut reader).await.map_err(failed(DOING))?,
        open_acts: open_acts.unsigned_abs(),
        scheduled: scheduled.unsigned_abs(),
        scheduled_late_seconds: rest.try_get::<Option<i64>, _>("late").map_err(failed(DOING))?.map(seconds),
        // SQLite does not tell who reads; a reader that stays shows in the size of the log
        oldest_transaction: None,
        wal_bytes: Some(store.wal_bytes().unwrap_or(0)),
        tables: (version(&mut reader).await.map_err(failed(DOING))?, migrate::KNOWN),
    })
}

/// The version of malote's tables; 0 where there are none.
pub(super) async fn version(reader: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(include_str!("../../../sql/status_tables.sql")).fetch_one(reader).await
}

async fn outbox(reader: &mut SqliteConnection) -> Result<OutboxStatus, sqlx::Error> {
    let row = query(include_str!("../../../sql/status_outbox.sql")).bind(COUNTED + 1).fetch_one(reader).await?;
    let counted: i64 = row.try_get("pending")?;
    let (last, high, gaps): (i64, i64, i64) = (row.try_get("last")?, row.try_get("high")?, row.try_get("gaps")?);
    let pending = if counted > COUNTED { (last - high + gaps).max(counted) } else { counted };
    let (kind, key): (Option<String>, Option<String>) = (row.try_get("type")?, row.try_get("key")?);
    Ok(OutboxStatus {
        pending: pending.unsigned_abs(),
        oldest_seconds: row.try_get::<Option<i64>, _>("age")?.map(seconds),
        last,
        gaps: gaps.unsigned_abs(),
        oldest: kind.zip(key),
    })
}

async fn relays(reader: &mut SqliteConnection) -> Result<Vec<RelayStatus>, sqlx::Error> {
    let rows = query(include_str!("../../../sql/status_relays.sql")).fetch_all(reader).await?;
    let each = rows.iter().map(|row| {
        let incarnation: Option<String> = row.try_get("incarnation")?;
        let left: i64 = row.try_get("ms_left")?;
        Ok(RelayStatus {
            name: row.try_get("name")?,
            lease_seconds: incarnation.as_ref().filter(|_| left > 0).map(|_| seconds(left)),
            incarnation: incarnation.and_then(|id| id.parse().ok()),
            epoch: row.try_get("epoch")?,
            high: row.try_get("high")?,
            gaps: row.try_get::<i64, _>("gaps")?.unsigned_abs(),
        })
    });
    each.collect()
}

async fn consumers(reader: &mut SqliteConnection) -> Result<Vec<ConsumerStatus>, sqlx::Error> {
    let rows = query(include_str!("../../../sql/status_consumers.sql")).fetch_all(reader).await?;
    let each = rows.iter().map(|row| {
        let count = |name| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(name)?.unsigned_abs());
        Ok(ConsumerStatus {
            name: row.try_get("consumer")?,
            parked_keys: count("parked_keys")?,
            parked_messages: count("parked_messages")?,
            held_keys: count("held_keys")?,
            oldest_parked_seconds: row.try_get::<Option<i64>, _>("age")?.map(seconds),
            dead: count("dead")?,
        })
    });
    each.collect()
}

pub(super) fn seconds(millis: i64) -> f64 {
    millis.max(0) as f64 / 1000.0
}
