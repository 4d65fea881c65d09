//! Records in columns: bytes as they came, headers as `[[name, hex], …]`, since a value need not be text.

use malote_core::{Admission, RawRecord};
use serde_json::{Value, json};
use sqlx::{Row, sqlite::SqliteRow};
use std::fmt::Write as _;

/// The headers of a record, as they are stored.
pub(super) fn headers(record: &RawRecord) -> String {
    Value::from_iter(record.headers.iter().map(|(name, value)| json!([name, hex(value)]))).to_string()
}

/// The record of a row with the columns `record_key`, `record_headers` and `record_payload`.
pub(super) fn record(row: &SqliteRow) -> Result<RawRecord, sqlx::Error> {
    let headers: String = row.try_get("record_headers")?;
    let headers: Vec<(String, String)> = serde_json::from_str(&headers).unwrap_or_default();
    Ok(RawRecord {
        key: row.try_get::<Option<Vec<u8>>, _>("record_key")?.map(Into::into),
        headers: headers.into_iter().map(|(name, value)| (name, unhex(&value).into())).collect(),
        payload: row.try_get::<Option<Vec<u8>>, _>("record_payload")?.map(Into::into),
    })
}

/// The inbox row that a row with `event_id` and `day` belongs to.
pub(super) fn admission(row: &SqliteRow) -> Result<Option<Admission>, sqlx::Error> {
    let event_id: Option<String> = row.try_get("event_id")?;
    let day: Option<String> = row.try_get("day")?;
    let both = event_id.and_then(|id| id.parse().ok()).zip(day.and_then(|day| day.parse().ok()));
    Ok(both.map(|(event_id, day)| Admission { event_id, day }))
}

/// A name as lanes have it: whatever a foreign record holds, it can be passed through JSON and to
/// another store.
pub(super) fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes().chunks_exact(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)), all);
    }
}
