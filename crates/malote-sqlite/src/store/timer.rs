//! Envelopes that are not due yet, by the database's clock alone.

use super::{Sqlite, failed, fence, outbox, relay::millis};
use malote_core::{Class, Envelope, Fired, StoreError, TimerStore, When, planted};
use serde_json::Value;
use sqlx::SqliteConnection;
use std::time::Duration;
use uuid::Uuid;

pub(super) async fn schedule(tx: &mut SqliteConnection, when: When, envelope: &Envelope) -> Result<(), StoreError> {
    let doing = || format!("scheduling an event of type {:?}", envelope.kind);
    envelope.check().map_err(|e| StoreError { doing: doing(), class: Class::Final, source: e.into() })?;
    let mut headers = outbox::headers(envelope);
    headers.remove(outbox::attribute::TIME);
    let (mut after, mut at) = match when {
        // what is less than a millisecond counts as one
        When::After(after) => (Some(millis(after.saturating_add(Duration::from_nanos(999_999)))), None),
        When::At(at) => (None, Some(at.timestamp_millis().saturating_add(1))),
    };
    if planted::is("timer-by-own-clock") {
        at = at.or(after.map(|after| envelope.time.timestamp_millis() + after));
        after = None;
    }
    sqlx::query(include_str!("../../sql/schedule.sql"))
        .bind(envelope.id.to_string())
        .bind(&envelope.kind)
        .bind(&envelope.topic)
        .bind(&envelope.key)
        .bind(Value::Object(headers).to_string())
        .bind(envelope.payload.as_ref())
        .bind(after)
        .bind(at)
        .execute(tx)
        .await
        .map_err(failed(doing()))?;
    Ok(())
}

pub(super) async fn cancel(tx: &mut SqliteConnection, id: Uuid) -> Result<bool, StoreError> {
    let gone = sqlx::query(include_str!("../../sql/cancel.sql"))
        .bind(id.to_string())
        .execute(tx)
        .await
        .map_err(failed(format!("taking back the scheduled event {id}")))?;
    Ok(gone.rows_affected() > 0)
}

impl TimerStore for Sqlite {
    async fn fire(&self, most: u32) -> Result<Fired, StoreError> {
        let next = next(self).await?;
        if next.is_none_or(|wait| !wait.is_zero()) && !planted::is("fire-early") {
            return Ok(Fired { moved: 0, next });
        }
        let doing = "moving what is due to the outbox";
        let statement = fence(
            planted::is("fire-early"),
            include_str!("../../sql/fire.sql"),
            "WHERE s.due_at <= (SELECT now FROM malote_clock)",
        );
        let mut tx = self.lock().await?;
        let moved = sqlx::query(statement).bind(i64::from(most)).execute(&mut *tx).await.map_err(failed(doing))?;
        let moved = u32::try_from(moved.rows_affected()).unwrap_or(u32::MAX);
        if !planted::is("fire-again") {
            sqlx::query(include_str!("../../sql/fire_remove.sql"))
                .bind(moved)
                .execute(&mut *tx)
                .await
                .map_err(failed(doing))?;
        }
        let store = self.clone();
        tx.commit(doing, move || {
            if moved > 0 {
                store.wake()
            }
        })
        .await?;
        Ok(Fired { moved, next: self::next(self).await? })
    }
}

async fn next(store: &Sqlite) -> Result<Option<Duration>, StoreError> {
    let left: Option<i64> = sqlx::query_scalar(include_str!("../../sql/next_scheduled.sql"))
        .fetch_one(&store.0.readers)
        .await
        .map_err(failed("looking for what is due"))?;
    Ok(left.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0))))
}
