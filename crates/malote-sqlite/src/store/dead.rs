//! What was given up.

use super::failed;
use malote_core::{Dead, StoreError};
use serde_json::{Value, json};
use sqlx::SqliteConnection;

pub(super) async fn set_aside(tx: &mut SqliteConnection, dead: &Dead) -> Result<(), StoreError> {
    let headers = dead.record.headers.iter().map(|(name, value)| json!([name, hex(value)]));
    sqlx::query(include_str!("../../sql/set_aside.sql"))
        .bind(&dead.by)
        .bind(&dead.what)
        .bind(dead.event_id.map(|id| id.to_string()))
        .bind(&dead.kind)
        .bind(&dead.topic)
        .bind(dead.partition)
        .bind(dead.offset)
        .bind(Dead::reason(&dead.reason))
        .bind(dead.attempts)
        .bind(dead.record.key.as_deref())
        .bind(Value::from_iter(headers).to_string())
        .bind(dead.record.payload.as_deref())
        .execute(tx)
        .await
        .map_err(failed(format!("setting aside {:?}", dead.what)))?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
