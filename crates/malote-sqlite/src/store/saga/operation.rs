//! What this service was asked as a participant of sagas, and what it answered.

use super::super::{Tx, failed, record::plain};
use malote_core::{
    Message, StoreError, planted,
    saga::{OperationId, Recalled},
};
use sqlx::{Row, query, sqlite::SqliteRow};

fn doing(what: &str, operation: &OperationId) -> String {
    format!("{what} operation {operation}")
}

pub(super) async fn recall(tx: &mut Tx, consumer: &str, operation: &OperationId) -> Result<Recalled, StoreError> {
    if planted::is("operation-forgotten") {
        return Ok(Recalled::Unknown);
    }
    let doing = || doing("recalling", operation);
    let row = query(include_str!("../../../sql/recall.sql"))
        .bind(consumer)
        .bind(plain(&operation.to_string()))
        .fetch_optional(&mut **tx)
        .await
        .map_err(failed(doing()))?;
    row.map_or(Ok(Recalled::Unknown), |row| recalled(&row)).map_err(failed(doing()))
}

fn recalled(row: &SqliteRow) -> Result<Recalled, sqlx::Error> {
    let Some(kind) = row.try_get("type")? else { return Ok(Recalled::CalledOff) };
    Ok(Recalled::Answered(Message {
        kind,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get::<Vec<u8>, _>("payload")?.into(),
    }))
}

pub(super) async fn remember(
    tx: &mut Tx,
    consumer: &str,
    operation: &OperationId,
    answer: &Message,
) -> Result<(), StoreError> {
    query(include_str!("../../../sql/remember.sql"))
        .bind(consumer)
        .bind(plain(&operation.to_string()))
        .bind(&answer.kind)
        .bind(&answer.topic)
        .bind(&answer.key)
        .bind(&answer.content_type)
        .bind(answer.payload.as_ref())
        .execute(&mut **tx)
        .await
        .map_err(failed(doing("remembering the answer to", operation)))?;
    Ok(())
}

pub(super) async fn call_off(tx: &mut Tx, consumer: &str, operation: &OperationId) -> Result<(), StoreError> {
    let statement = include_str!("../../../sql/call_off.sql");
    let statement = match planted::is("call-off-overwrites-answer") {
        true => "INSERT OR REPLACE INTO malote_operation (consumer, id, at) VALUES ($1, $2, 0)",
        false => statement,
    };
    query(statement)
        .bind(consumer)
        .bind(plain(&operation.to_string()))
        .execute(&mut **tx)
        .await
        .map_err(failed(doing("calling off", operation)))?;
    Ok(())
}
