//! Rows, chosen by a filter.

use super::super::{Sqlite, failed, record};
use chrono::{DateTime, Utc};
use malote_core::{
    History, StoreError,
    inspect::{AuditRow, DeadRow, Filter, LaneText, OutboxRow, ParkedRow, ScheduledRow},
};
use serde_json::json;
use sqlx::{Row, query, sqlite::SqliteRow};
use uuid::Uuid;

fn millis(at: &Option<DateTime<Utc>>) -> Option<i64> {
    at.map(|at| at.timestamp_millis())
}

pub(super) fn time(row: &SqliteRow, column: &str) -> Result<DateTime<Utc>, sqlx::Error> {
    Ok(DateTime::from_timestamp_millis(row.try_get(column)?).unwrap_or(DateTime::UNIX_EPOCH))
}

fn ids(filter: &Filter) -> Option<String> {
    filter.ids.as_ref().map(|ids| json!(ids).to_string())
}

impl Sqlite {
    /// A connection that reads.
    pub(super) async fn reader(&self, doing: &str) -> Result<sqlx::pool::PoolConnection<sqlx::Sqlite>, StoreError> {
        self.0.readers.acquire().await.map_err(failed(doing))
    }
}

/// Rows above a position, each with whether its headers can be read.
pub(super) async fn outbox(
    store: &Sqlite,
    filter: &Filter,
    above: i64,
    most: u32,
) -> Result<Vec<(OutboxRow, bool)>, StoreError> {
    let doing = "listing rows of the outbox";
    // nobody gave a row up, and no row has failed
    if filter.by.is_some() || filter.class.is_some() {
        return Ok(Vec::new());
    }
    let rows = query(include_str!("../../../sql/list_outbox.sql"))
        .bind(&filter.kind)
        .bind(&filter.topic)
        .bind(&filter.key)
        .bind(&filter.event)
        .bind(millis(&filter.since))
        .bind(millis(&filter.until))
        .bind(filter.pending.then_some(true))
        .bind(above)
        .bind(most)
        .bind(ids(filter))
        .fetch_all(&store.0.readers)
        .await
        .map_err(failed(doing))?;
    let each = rows.iter().map(|row| {
        let shown = OutboxRow {
            seq: row.try_get("seq")?,
            id: row.try_get("id")?,
            kind: row.try_get("type")?,
            topic: row.try_get("topic")?,
            key: row.try_get("key")?,
            created_at: time(row, "created_at")?,
            payload_bytes: row.try_get("payload_bytes")?,
            published: row.try_get("published")?,
        };
        Ok((shown, row.try_get("readable")?))
    });
    each.collect::<Result<_, sqlx::Error>>().map_err(failed(doing))
}

pub(super) async fn parked(store: &Sqlite, filter: &Filter, most: u32) -> Result<Vec<ParkedRow>, StoreError> {
    let doing = "listing parked messages";
    let consumer = filter.by.as_deref().map(|by| record::plain(by.strip_prefix("consumer ").unwrap_or(by)));
    let rows = query(include_str!("../../../sql/list_parked.sql"))
        .bind(consumer)
        .bind(&filter.kind)
        .bind(&filter.topic)
        .bind(&filter.key)
        .bind(&filter.class)
        .bind(&filter.event)
        .bind(millis(&filter.since))
        .bind(millis(&filter.until))
        .bind(most)
        .fetch_all(&store.0.readers)
        .await
        .map_err(failed(doing))?;
    let each = rows.iter().map(|row| {
        let due_at: Option<i64> = row.try_get("due_at")?;
        Ok(ParkedRow {
            consumer: row.try_get("consumer")?,
            lane: LaneText { topic: row.try_get("topic")?, key: row.try_get("key")? },
            what: row.try_get("what")?,
            kind: row.try_get("type")?,
            attempts: row.try_get("attempts")?,
            parked_at: time(row, "parked_at")?,
            due_at: due_at.and_then(DateTime::from_timestamp_millis),
            held: row.try_get("held")?,
            class: row.try_get("class")?,
            error: row.try_get("error")?,
        })
    });
    each.collect::<Result<_, sqlx::Error>>().map_err(failed(doing))
}

/// Dead letters with a number above the one given.
pub(super) async fn dead(store: &Sqlite, filter: &Filter, above: i64, most: u32) -> Result<Vec<DeadRow>, StoreError> {
    let doing = "listing dead letters";
    let rows = query(include_str!("../../../sql/list_dead.sql"))
        .bind(ids(filter))
        .bind(&filter.by)
        .bind(&filter.kind)
        .bind(&filter.topic)
        .bind(&filter.key)
        .bind(&filter.class)
        .bind(&filter.event)
        .bind(millis(&filter.since))
        .bind(millis(&filter.until))
        .bind(above)
        .bind(most)
        .fetch_all(&store.0.readers)
        .await
        .map_err(failed(doing))?;
    rows.iter().map(dead_row).collect::<Result<_, sqlx::Error>>().map_err(failed(doing))
}

fn dead_row(row: &SqliteRow) -> Result<DeadRow, sqlx::Error> {
    Ok(DeadRow {
        id: row.try_get("id")?,
        by: row.try_get("by")?,
        what: row.try_get("what")?,
        kind: row.try_get("type")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        partition: row.try_get("partition")?,
        offset: row.try_get("offset")?,
        class: row.try_get("class")?,
        reason: row.try_get("reason")?,
        attempts: row.try_get("attempts")?,
        history: History::from_json(row.try_get("history")?),
        correlation_id: row.try_get("correlation_id")?,
        trace: row.try_get("trace")?,
        first_at: time(row, "first_at")?,
        last_at: time(row, "last_at")?,
        holds_key: row.try_get("holds_key")?,
        newer: row.try_get::<i64, _>("newer")?.unsigned_abs(),
        payload_bytes: row.try_get("payload_bytes")?,
    })
}

pub(super) async fn scheduled(store: &Sqlite, most: u32) -> Result<Vec<ScheduledRow>, StoreError> {
    let doing = "listing scheduled envelopes";
    let rows = query(include_str!("../../../sql/list_scheduled.sql")).bind(most).fetch_all(&store.0.readers).await;
    rows.map_err(failed(doing))?.iter().map(scheduled_row).collect::<Result<_, _>>().map_err(failed(doing))
}

pub(super) async fn scheduled_of(store: &Sqlite, ids: &[Uuid]) -> Result<Vec<ScheduledRow>, StoreError> {
    let doing = "looking for timers";
    let ids = json!(ids.iter().map(Uuid::to_string).collect::<Vec<_>>()).to_string();
    let rows = query(include_str!("../../../sql/scheduled_of.sql")).bind(ids).fetch_all(&store.0.readers).await;
    rows.map_err(failed(doing))?.iter().map(scheduled_row).collect::<Result<_, _>>().map_err(failed(doing))
}

fn scheduled_row(row: &SqliteRow) -> Result<ScheduledRow, sqlx::Error> {
    Ok(ScheduledRow {
        id: row.try_get("id")?,
        kind: row.try_get("type")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        due_at: time(row, "due_at")?,
    })
}

pub(super) async fn audit(store: &Sqlite, most: u32) -> Result<Vec<AuditRow>, StoreError> {
    let doing = "listing acts";
    let rows = query(include_str!("../../../sql/list_audit.sql")).bind(most).fetch_all(&store.0.readers).await;
    let rows = rows.map_err(failed(doing))?;
    let each = rows.iter().map(|row| {
        Ok(AuditRow {
            id: row.try_get("id")?,
            at: time(row, "at")?,
            actor: row.try_get("actor")?,
            act: row.try_get("act")?,
            target: row.try_get("target")?,
            reason: row.try_get("reason")?,
            outcome: row.try_get("outcome")?,
        })
    });
    each.collect::<Result<_, sqlx::Error>>().map_err(failed(doing))
}
