//! Lanes, and the messages that wait in them.

use super::{Sqlite, Tx, claim, custody, failed, inbox, record, relay::millis, settle};
use malote_core::{
    Admission, ClaimDue, Due, Ending, Incarnation, Lane, LaneState, Parked, ParkingStore, Settled, StoreError, ToPark,
};
use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection};
use std::collections::{BTreeMap, HashMap};

impl ParkingStore for Sqlite {
    async fn lanes(&self, tx: &mut Tx, consumer: &str, lanes: &[Lane]) -> Result<Vec<LaneState>, StoreError> {
        self::lanes(tx, consumer, lanes).await
    }
    async fn park(&self, tx: &mut Tx, consumer: &str, letters: &[ToPark]) -> Result<(), StoreError> {
        self::park(tx, consumer, letters).await
    }
    async fn pass(&self, tx: &mut Tx, consumer: &str, lanes: &[Lane]) -> Result<(), StoreError> {
        self::pass(tx, consumer, lanes).await
    }
    async fn claim_due(&self, consumer: &str, ask: &ClaimDue) -> Result<Due, StoreError> {
        claim::claim_due(self, consumer, ask).await
    }
    async fn settle(&self, tx: &mut Tx, head: &Parked, ending: &Ending) -> Result<Settled, StoreError> {
        settle::settle(tx, head, ending).await
    }
    async fn take_custody(
        &self,
        consumer: &str,
        who: Incarnation,
        partitions: &[(String, i32)],
    ) -> Result<Vec<bool>, StoreError> {
        custody::take(self, consumer, who, partitions).await
    }
    async fn give_back(&self, consumer: &str, who: Incarnation) -> Result<(), StoreError> {
        custody::give_back(self, consumer, who).await
    }
    async fn runs(&self, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
        custody::runs(self, consumer, what).await
    }
    async fn runs_begin(&self, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
        custody::runs_begin(self, consumer, what).await
    }
    async fn runs_ended(&self, tx: &mut Tx, consumer: &str, what: &[String]) -> Result<(), StoreError> {
        custody::runs_ended(tx, consumer, what).await
    }
}

async fn lanes(tx: &mut SqliteConnection, consumer: &str, lanes: &[Lane]) -> Result<Vec<LaneState>, StoreError> {
    let doing = || format!("looking at {} lanes of {consumer:?}", lanes.len());
    let asked: Vec<(String, String)> =
        lanes.iter().map(|lane| (record::plain(&lane.topic), record::plain(&lane.key))).collect();
    let rows = sqlx::query(include_str!("../../sql/lanes.sql"))
        .bind(record::plain(consumer))
        .bind(json!(asked).to_string())
        .fetch_all(tx)
        .await
        .map_err(failed(doing()))?;
    let known = rows.iter().map(|row| {
        let state = match (row.try_get("busy")?, row.try_get("passing")?) {
            (true, _) => LaneState::Busy,
            (false, true) => LaneState::Passing,
            (false, false) => LaneState::Free,
        };
        Ok(((row.try_get("topic")?, row.try_get("key")?), state))
    });
    let known = known.collect::<Result<HashMap<_, _>, sqlx::Error>>().map_err(failed(doing()))?;
    Ok(asked.iter().map(|lane| known.get(lane).copied().unwrap_or(LaneState::Free)).collect())
}

async fn park(tx: &mut SqliteConnection, consumer: &str, letters: &[ToPark]) -> Result<(), StoreError> {
    if letters.is_empty() {
        return Ok(());
    }
    let doing = || format!("parking {} messages of {consumer:?}", letters.len());
    let (rows, bytes) = to_rows(letters);
    let rows = Value::Array(rows).to_string();
    sqlx::query(include_str!("../../sql/park_lane.sql"))
        .bind(record::plain(consumer))
        .bind(&rows)
        .execute(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    sqlx::query(include_str!("../../sql/park.sql"))
        .bind(record::plain(consumer))
        .bind(&rows)
        .bind(bytes)
        .execute(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    let admissions: Vec<Admission> = letters.iter().filter_map(|letter| letter.admission).collect();
    inbox::mark(tx, consumer, &admissions, inbox::PARKED).await
}

/// Messages as JSON, with their bytes beside it.
fn to_rows(letters: &[ToPark]) -> (Vec<Value>, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut put = |part: &Option<bytes::Bytes>| match part {
        Some(part) => {
            bytes.extend_from_slice(part);
            (json!(bytes.len() - part.len() + 1), json!(part.len()))
        }
        None => (Value::Null, Value::Null),
    };
    let rows = letters.iter().map(|letter| {
        let ((key_at, key_length), (at, length)) = (put(&letter.record.key), put(&letter.record.payload));
        let setback = letter.setback.as_ref();
        json!({
            "topic": record::plain(&letter.lane.topic),
            "key": record::plain(&letter.lane.key),
            "what": letter.what,
            "event_id": letter.admission.map(|a| a.event_id),
            "day": letter.admission.map(|a| a.day.to_string()),
            "type": letter.kind,
            "attempts": setback.map_or(0, |s| s.attempts),
            "class": setback.map(|s| s.class.as_str()),
            "error": setback.map(|s| &s.error),
            "history": setback.map_or("[]".into(), |s| s.history.to_json()),
            "wait": setback.map_or(0, |s| millis(s.wait)),
            "headers": record::headers(&letter.record),
            "key_at": key_at, "key_length": key_length, "at": at, "length": length,
        })
    });
    let rows = rows.collect();
    (rows, bytes)
}

async fn pass(tx: &mut SqliteConnection, consumer: &str, lanes: &[Lane]) -> Result<(), StoreError> {
    let mut counts: BTreeMap<&Lane, u32> = BTreeMap::new();
    for lane in lanes {
        *counts.entry(lane).or_default() += 1;
    }
    if counts.is_empty() {
        return Ok(());
    }
    let rows = counts.iter().map(|(lane, n)| json!([record::plain(&lane.topic), record::plain(&lane.key), n]));
    sqlx::query(include_str!("../../sql/pass.sql"))
        .bind(record::plain(consumer))
        .bind(Value::from_iter(rows).to_string())
        .execute(tx)
        .await
        .map_err(failed(format!("counting what passes dead letters of {consumer:?}")))?;
    Ok(())
}
