//! The outbox: appended to by transactions, read by position, emptied behind the relay.

use super::{Sqlite, failed, relay::millis};
use chrono::{DateTime, SecondsFormat, Utc};
use malote_core::{
    Class, Envelope, Read, Row as OutboxRow, StoreError, TraceContext,
    relay::{Cursor, Ranges, Window},
};
use serde_json::{Map, Value, json};
use sqlx::{Row, SqliteConnection, SqlitePool, sqlite::SqliteRow};
use uuid::Uuid;

/// Rows removed in one transaction, so that nobody waits long behind it.
const REMOVED_AT_ONCE: i64 = 1_000;
/// Transactions of one round of upkeep.
const ROUNDS: u32 = 20;

/// Names of the attributes that [`Envelope`] has fields for, as they stand in `headers`.
pub(super) mod attribute {
    pub const SOURCE: &str = "source";
    pub(in super::super) const TIME: &str = "time";
    pub const CONTENT_TYPE: &str = "datacontenttype";
    pub const CORRELATION: &str = "correlationid";
    pub const CAUSATION: &str = "causationid";
    pub const TRACE_PARENT: &str = "traceparent";
    pub const TRACE_STATE: &str = "tracestate";
}

pub(super) async fn append(tx: &mut SqliteConnection, envelopes: &[Envelope]) -> Result<(), StoreError> {
    let mut payloads = Vec::with_capacity(envelopes.iter().map(|e| e.payload.len()).sum());
    let mut rows = Vec::with_capacity(envelopes.len());
    for envelope in envelopes {
        rows.push(json!({
            "id": envelope.id,
            "type": envelope.kind,
            "topic": envelope.topic,
            "key": envelope.key,
            "headers": headers(envelope),
            "at": payloads.len() + 1,
            "length": envelope.payload.len(),
        }));
        payloads.extend_from_slice(&envelope.payload);
    }
    let appended = sqlx::query(include_str!("../../sql/append.sql"))
        .bind(Value::Array(rows).to_string())
        .bind(payloads)
        .execute(tx)
        .await
        .map_err(failed(format!("writing {} envelopes to the outbox", envelopes.len())))?;
    debug_assert_eq!(appended.rows_affected() as usize, envelopes.len());
    Ok(())
}

/// The attributes of an envelope that have no column.
pub(super) fn headers(envelope: &Envelope) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            all.insert(name.to_owned(), Value::String(value));
        }
    };
    put(attribute::SOURCE, Some(envelope.source.clone()));
    put(attribute::TIME, Some(envelope.time.to_rfc3339_opts(SecondsFormat::Micros, true)));
    put(attribute::CONTENT_TYPE, Some(envelope.content_type.clone()));
    put(attribute::CORRELATION, envelope.correlation_id.clone());
    put(attribute::CAUSATION, envelope.causation_id.map(|id| id.to_string()));
    put(attribute::TRACE_PARENT, envelope.trace.as_ref().map(|t| t.parent.clone()));
    put(attribute::TRACE_STATE, envelope.trace.as_ref().and_then(|t| t.state.clone()));
    for (name, value) in &envelope.headers {
        put(name, Some(value.clone()));
    }
    all
}

pub(super) async fn read(readers: &SqlitePool, window: &Window) -> Result<Read, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/read.sql"))
        .bind(ranges_to_json(&window.gaps))
        .bind(window.high)
        .bind(i64::try_from(window.limit).unwrap_or(i64::MAX))
        .fetch_all(readers)
        .await
        .map_err(failed("reading the outbox"))?;
    let rows = rows.iter().map(|row| {
        let seq = row.try_get("seq")?;
        Ok(OutboxRow { seq, envelope: envelope(seq, row).map_err(|e| e.to_string()) })
    });
    let rows = rows.collect::<Result<_, sqlx::Error>>().map_err(failed("reading the outbox"))?;
    // one writer: whatever has a position and is not visible will never be
    Ok(Read { ended_below: u64::MAX, rows })
}

/// A row as an envelope. A row may have been written by any program, so nothing about it is certain.
fn envelope(seq: i64, row: &SqliteRow) -> Result<Envelope, Box<dyn std::error::Error>> {
    let id: String = row.try_get("id")?;
    let id: Uuid = id.parse().map_err(|e| format!("its id is not a UUID: {e}"))?;
    let kind: String = row.try_get("type")?;
    let headers: String = row.try_get("headers")?;
    let mut headers: Map<String, Value> =
        serde_json::from_str(&headers).map_err(|e| format!("its headers are not a JSON object: {e}"))?;
    let mut take = |name: &str| match headers.remove(name) {
        Some(Value::String(text)) => Some(text),
        Some(Value::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };
    let time = match take(attribute::TIME) {
        Some(text) => {
            DateTime::parse_from_rfc3339(&text).map_err(|e| format!("its time is not RFC 3339: {e}"))?.to_utc()
        }
        None => DateTime::from_timestamp_millis(row.try_get("created_at")?).unwrap_or(DateTime::<Utc>::UNIX_EPOCH),
    };
    let causation_id = take(attribute::CAUSATION).map(|id| id.parse()).transpose();
    let state = take(attribute::TRACE_STATE);
    let envelope = Envelope {
        id,
        topic: row.try_get::<Option<String>, _>("topic")?.unwrap_or_else(|| kind.clone()),
        key: row.try_get::<Option<String>, _>("key")?.unwrap_or_else(|| id.to_string()),
        kind,
        source: take(attribute::SOURCE).unwrap_or_else(|| "outbox".into()),
        time,
        content_type: take(attribute::CONTENT_TYPE).unwrap_or_else(|| "application/json".into()),
        correlation_id: take(attribute::CORRELATION),
        causation_id: causation_id.map_err(|e| format!("its causationid is not a UUID: {e}"))?,
        trace: take(attribute::TRACE_PARENT).map(|parent| TraceContext { parent, state }),
        hop: None,
        sequence: Some(seq),
        headers: headers
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(text) => (name, text),
                other => (name, other.to_string()),
            })
            .collect(),
        payload: row.try_get::<Vec<u8>, _>("payload")?.into(),
    };
    envelope.check()?;
    Ok(envelope)
}

/// Removes rows behind the relay, a bounded number, and folds the log into the file.
pub(super) async fn upkeep(store: &Sqlite, cursor: &Cursor) -> Result<String, StoreError> {
    let mut removed = 0;
    for _ in 0..ROUNDS {
        let doing = "removing published rows from the outbox";
        let mut tx = store.lock().await?;
        let done = sqlx::query(include_str!("../../sql/remove_published.sql"))
            .bind(cursor.floor())
            .bind(REMOVED_AT_ONCE)
            .bind(millis(store.0.keep_outbox))
            .execute(&mut *tx)
            .await
            .map_err(failed(doing))?;
        tx.commit(doing, || ()).await?;
        removed += done.rows_affected();
        if done.rows_affected() < REMOVED_AT_ONCE as u64 {
            break;
        }
    }
    store.fold().await?;
    Ok(format!("{removed} published rows removed"))
}

/// Ranges as `[[from, to], …]`.
pub(super) fn ranges_to_json(ranges: &Ranges) -> String {
    Value::from_iter(ranges.iter().map(|(from, to)| json!([from, to]))).to_string()
}

/// Reads `[[from, to], …]`.
pub(super) fn ranges_from_json(text: &str) -> Result<Ranges, StoreError> {
    serde_json::from_str::<Vec<(i64, i64)>>(text).map(Ranges::from_iter).map_err(|e| StoreError {
        doing: "reading the gaps of a relay".into(),
        class: Class::Final,
        source: e.into(),
    })
}
