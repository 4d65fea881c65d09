//! What was given up, by whom, and what a person may do with it.

use super::{failed, inbox, record};
use malote_core::{Admission, By, Class, Dead, History, StoreError};
use sqlx::{Row, SqliteConnection, query, sqlite::SqliteRow};

/// Sets something aside; `holds_key`: its lane is held because of it.
pub(super) async fn set_aside(tx: &mut SqliteConnection, dead: &Dead, holds_key: bool) -> Result<(), StoreError> {
    let doing = || format!("setting aside {:?}", dead.what);
    let by = dead.by.to_string();
    let (topic, key) = (record::plain(&dead.topic), dead.key.as_deref().map(record::plain));
    let consumer = match &dead.by {
        By::Consumer(name) => Some(record::plain(name)),
        By::Relay(_) => None,
    };
    let known: Option<i64> = sqlx::query_scalar(include_str!("../../sql/dead_known.sql"))
        .bind(&by)
        .bind(&dead.what)
        .fetch_optional(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    query(include_str!("../../sql/set_aside.sql"))
        .bind(&by)
        .bind(&dead.what)
        .bind(dead.admission.map(|a| a.event_id.to_string()))
        .bind(dead.admission.map(|a| a.day.to_string()))
        .bind(&dead.kind)
        .bind(&topic)
        .bind(&key)
        .bind(dead.partition)
        .bind(dead.offset)
        .bind(dead.class.as_str())
        .bind(Dead::reason(&dead.reason))
        .bind(dead.attempts)
        .bind(dead.history.to_json())
        .bind(&dead.correlation_id)
        .bind(&dead.trace)
        .bind(dead.history.entries().first().map(|entry| entry.at.timestamp_millis()))
        .bind(dead.record.key.as_deref())
        .bind(record::headers(&dead.record))
        .bind(dead.record.payload.as_deref())
        .bind(&consumer)
        .bind(holds_key)
        .execute(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    let Some(consumer) = consumer else { return Ok(()) };
    if let (Some(key), None) = (key, known) {
        on_lane(tx, include_str!("../../sql/dead_lane.sql"), &consumer, &topic, &key).await?;
    }
    let By::Consumer(name) = &dead.by else { return Ok(()) };
    inbox::mark(tx, name, dead.admission.as_slice(), inbox::DEAD).await
}

/// A letter as it lies in the table.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) id: i64,
    pub(super) dead: Dead,
    pub(super) passed_before: i64,
    pub(super) holds_key: bool,
}

impl Letter {
    /// Its name in the audit.
    pub(super) fn target(&self) -> String {
        format!("dead letter {} ({}, {})", self.id, self.dead.by, self.dead.what)
    }

    /// Whether nothing is left of its record.
    pub(super) fn is_empty(&self) -> bool {
        self.dead.record.payload.is_none() && self.dead.record.headers.is_empty() && self.dead.record.key.is_none()
    }
}

/// Reads a letter; none when there is none of that number.
pub(super) async fn letter(connection: &mut SqliteConnection, id: i64) -> Result<Option<Letter>, StoreError> {
    let doing = || format!("reading dead letter {id}");
    let row = query(include_str!("../../sql/dead_letter.sql"))
        .bind(id)
        .fetch_optional(connection)
        .await
        .map_err(failed(doing()))?;
    row.map(|row| of_row(&row)).transpose().map_err(failed(doing()))
}

fn of_row(row: &SqliteRow) -> Result<Letter, sqlx::Error> {
    let by: String = row.try_get("by")?;
    let class: String = row.try_get("class")?;
    let dead = Dead {
        // whatever stands there, it can be read and discarded
        by: by.parse().unwrap_or(By::Consumer(by)),
        what: row.try_get("what")?,
        admission: record::admission(row)?,
        kind: row.try_get("type")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        partition: row.try_get("partition")?,
        offset: row.try_get("offset")?,
        class: class.parse().unwrap_or(Class::Final),
        reason: row.try_get("reason")?,
        attempts: row.try_get("attempts")?,
        history: History::from_json(row.try_get("history")?),
        correlation_id: row.try_get("correlation_id")?,
        trace: row.try_get("trace")?,
        record: record::record(row)?,
    };
    let (passed_before, holds_key) = (row.try_get("passed_before")?, row.try_get("holds_key")?);
    Ok(Letter { id: row.try_get("id")?, dead, passed_before, holds_key })
}

/// Takes a letter out of the table, and tells its lane. `wait` is when a lane that was held for it may go
/// on, in milliseconds from now.
pub(super) async fn remove(tx: &mut SqliteConnection, letter: &Letter, wait: i64) -> Result<(), StoreError> {
    query(include_str!("../../sql/dead_remove.sql"))
        .bind(letter.id)
        .execute(&mut *tx)
        .await
        .map_err(failed(format!("taking out dead letter {}", letter.id)))?;
    let (By::Consumer(consumer), Some(key)) = (&letter.dead.by, &letter.dead.key) else { return Ok(()) };
    let (consumer, topic) = (record::plain(consumer), &letter.dead.topic);
    on_lane(tx, include_str!("../../sql/dead_lane_less.sql"), &consumer, topic, key).await?;
    if letter.holds_key {
        query(include_str!("../../sql/lane_release.sql"))
            .bind(&consumer)
            .bind(topic)
            .bind(key)
            .bind(wait)
            .execute(&mut *tx)
            .await
            .map_err(failed(format!("letting a lane of {consumer:?} go on")))?;
    }
    on_lane(tx, include_str!("../../sql/settle_gone.sql"), &consumer, topic, key).await
}

/// Says in the inbox that nobody waits for the event any more.
pub(super) async fn discarded(tx: &mut SqliteConnection, letter: &Letter) -> Result<(), StoreError> {
    let By::Consumer(consumer) = &letter.dead.by else { return Ok(()) };
    inbox::mark(tx, consumer, admission(&letter.dead).as_slice(), inbox::DISCARDED).await
}

/// The inbox row of a letter; a version before kept the event's id alone.
pub(super) fn admission(dead: &Dead) -> Option<Admission> {
    let of_record = || malote_core::wire::decode(&dead.topic, &dead.record).ok().map(|e| Admission::of(&e));
    dead.admission.or_else(of_record)
}

/// Removes old letters; what was in them will not be handled. Says how many.
pub(super) async fn prune(tx: &mut SqliteConnection, keep: i64, most: u32) -> Result<u64, StoreError> {
    let ids: Vec<i64> = sqlx::query_scalar(include_str!("../../sql/prune_dead.sql"))
        .bind(keep)
        .bind(i64::from(most))
        .fetch_all(&mut *tx)
        .await
        .map_err(failed("looking for old dead letters"))?;
    for id in &ids {
        if let Some(letter) = letter(tx, *id).await? {
            remove(tx, &letter, 0).await?;
            discarded(tx, &letter).await?;
        }
    }
    Ok(ids.len() as u64)
}

async fn on_lane(
    tx: &mut SqliteConnection,
    statement: &'static str,
    consumer: &str,
    topic: &str,
    key: &str,
) -> Result<(), StoreError> {
    query(statement)
        .bind(consumer)
        .bind(topic)
        .bind(key)
        .execute(tx)
        .await
        .map_err(failed(format!("changing a lane of {consumer:?}")))?;
    Ok(())
}
