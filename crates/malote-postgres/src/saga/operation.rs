//! What this service was asked as a participant of sagas, and what it answered.

use crate::{Tx, lane, record::text, store::Inner};
use malote_core::{
    Message, planted,
    saga::{OperationId, Recalled},
};
use sqlx::{Row, postgres::PgRow};

/// An operation as the index takes it, whatever its part is called.
fn id(operation: &OperationId) -> String {
    lane::key(&operation.to_string()).into_owned()
}

impl Inner {
    pub(super) async fn recall(
        &self,
        tx: &mut Tx,
        consumer: &str,
        operation: &OperationId,
    ) -> Result<Recalled, sqlx::Error> {
        self.recall_lock(tx, consumer, operation).await?;
        if planted::is("operation-forgotten") {
            return Ok(Recalled::Unknown);
        }
        let query = self.sql.recall.query().bind(consumer).bind(id(operation));
        query.fetch_optional(&mut **tx).await?.map_or(Ok(Recalled::Unknown), |row| recalled(&row))
    }

    /// Waits for whoever is about the same operation. Not for the answer only: who calls off what somebody is
    /// just doing has to find the answer.
    async fn recall_lock(&self, tx: &mut Tx, consumer: &str, operation: &OperationId) -> Result<(), sqlx::Error> {
        if planted::is("operation-unlocked") {
            return Ok(());
        }
        let query = self.sql.recall_lock.query().bind(consumer).bind(id(operation));
        query.execute(&mut **tx).await.map(drop)
    }

    pub(super) async fn remember(
        &self,
        tx: &mut Tx,
        consumer: &str,
        operation: &OperationId,
        answer: &Message,
    ) -> Result<(), sqlx::Error> {
        let query = self.sql.remember.query().bind(consumer).bind(id(operation)).bind(text(&answer.kind));
        let query = query.bind(text(&answer.topic)).bind(text(&answer.key)).bind(text(&answer.content_type));
        query.bind(answer.payload.as_ref()).execute(&mut **tx).await.map(drop)
    }

    pub(super) async fn call_off(
        &self,
        tx: &mut Tx,
        consumer: &str,
        operation: &OperationId,
    ) -> Result<(), sqlx::Error> {
        self.recall_lock(tx, consumer, operation).await?;
        let query = self.sql.call_off.query().bind(consumer).bind(id(operation));
        query.execute(&mut **tx).await.map(drop)
    }
}

fn recalled(row: &PgRow) -> Result<Recalled, sqlx::Error> {
    let Some(kind) = row.try_get("type")? else { return Ok(Recalled::CalledOff) };
    Ok(Recalled::Answered(Message {
        kind,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get::<Vec<u8>, _>("payload")?.into(),
    }))
}
