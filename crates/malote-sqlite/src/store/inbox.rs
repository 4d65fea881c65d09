//! What a consumer has handled.

use super::{failed, fence};
use malote_core::{Admission, StoreError, planted};
use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection, SqlitePool, sqlite::SqliteRow};
use std::collections::HashSet;

type Key = (String, String);

/// Handled.
pub(super) const DONE: &str = "done";
/// Waits in a lane.
pub(super) const PARKED: &str = "parked";
/// Waits for a person.
pub(super) const DEAD: &str = "dead";
/// Given up for good.
pub(super) const DISCARDED: &str = "discarded";

pub(super) async fn admit(
    tx: &mut SqliteConnection,
    consumer: &str,
    events: &[Admission],
) -> Result<Vec<bool>, StoreError> {
    let doing = || format!("admitting {} events to the inbox of {consumer:?}", events.len());
    let statement =
        fence(planted::is("any-conflict-is-known"), include_str!("../../sql/admit.sql"), " (consumer, event_id, day)");
    let new =
        sqlx::query(statement).bind(consumer).bind(to_json(events)).fetch_all(tx).await.map_err(failed(doing()))?;
    let mut new = keys(&new).map_err(failed(doing()))?;
    // removed when found: the second delivery of an event within one batch is not new
    Ok(events.iter().map(|e| new.remove(&key(e))).collect())
}

/// Says what became of events. Ones that are not in the inbox are passed over.
pub(super) async fn mark(
    tx: &mut SqliteConnection,
    consumer: &str,
    events: &[Admission],
    state: &str,
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let renewed = ", at = (SELECT now FROM malote_clock)";
    let statement = fence(planted::is("handled-when-admitted"), include_str!("../../sql/mark_inbox.sql"), renewed);
    sqlx::query(statement)
        .bind(consumer)
        .bind(to_json(events))
        .bind(state)
        .execute(tx)
        .await
        .map_err(failed(format!("marking {} events in the inbox of {consumer:?}", events.len())))?;
    Ok(())
}

pub(super) async fn seen(readers: &SqlitePool, consumer: &str, events: &[Admission]) -> Result<Vec<bool>, StoreError> {
    let doing = || format!("looking for {} events in the inbox of {consumer:?}", events.len());
    let seen = sqlx::query(include_str!("../../sql/seen.sql"))
        .bind(consumer)
        .bind(to_json(events))
        .fetch_all(readers)
        .await
        .map_err(failed(doing()))?;
    let seen = keys(&seen).map_err(failed(doing()))?;
    Ok(events.iter().map(|e| seen.contains(&key(e))).collect())
}

fn key(event: &Admission) -> Key {
    (event.event_id.to_string(), event.day.to_string())
}

fn keys(rows: &[SqliteRow]) -> Result<HashSet<Key>, sqlx::Error> {
    rows.iter().map(|row| Ok((row.try_get("event_id")?, row.try_get("day")?))).collect()
}

fn to_json(events: &[Admission]) -> String {
    Value::from_iter(events.iter().map(|e| json!([e.event_id, e.day.to_string()]))).to_string()
}
