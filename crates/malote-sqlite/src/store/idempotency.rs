//! Requests at the HTTP edge: claimed, then answered, each by its own owner only.

use super::{Sqlite, Tx, failed, fence, relay::millis};
use malote_core::{Answer, Claim, Class, IdempotencyStore, KeptStore, Prune, RequestKey, StoreError, planted};
use sqlx::{Row, sqlite::SqliteRow};
use std::time::Duration;
use uuid::Uuid;

/// The part of a statement that lets an owner change its own claim only.
const OWN: &str = "AND owner = $4 ";

impl IdempotencyStore for Sqlite {
    async fn claim(
        &self,
        request: &RequestKey,
        fingerprint: &[u8; 32],
        owner: Uuid,
        lease: Duration,
    ) -> Result<Claim, StoreError> {
        let doing = "claiming a request";
        let mut tx = self.lock().await?;
        let statement = fence(
            planted::is("claim-overwrites"),
            include_str!("../../sql/claim.sql"),
            "WHERE held.fingerprint = excluded.fingerprint\n  AND held.status IS NULL\n  AND held.lease_until <= (SELECT now FROM malote_clock)",
        );
        let won = sqlx::query(statement)
            .bind(&request.caller)
            .bind(&request.scope)
            .bind(&request.key)
            .bind(fingerprint.as_slice())
            .bind(owner.to_string())
            .bind(millis(lease))
            .fetch_optional(&mut *tx)
            .await
            .map_err(failed(doing))?;
        if won.is_some() {
            tx.commit(doing, || ()).await?;
            return Ok(Claim::Won);
        }
        let row = sqlx::query(include_str!("../../sql/claimed.sql"))
            .bind(&request.caller)
            .bind(&request.scope)
            .bind(&request.key)
            .bind(fingerprint.as_slice())
            .fetch_one(&mut *tx)
            .await
            .map_err(failed(doing))?;
        tx.rollback(doing).await?;
        standing(&row)
    }

    async fn finish(
        &self,
        tx: &mut Tx,
        request: &RequestKey,
        owner: Uuid,
        answer: &Answer,
    ) -> Result<bool, StoreError> {
        let doing = "recording the answer to a request";
        let headers = serde_json::to_string(&answer.headers).map_err(|e| unreadable(doing, e))?;
        let done = sqlx::query(fence(planted::is("foreign-owner-finishes"), include_str!("../../sql/finish.sql"), OWN))
            .bind(&request.caller)
            .bind(&request.scope)
            .bind(&request.key)
            .bind(owner.to_string())
            .bind(i64::from(answer.status))
            .bind(headers)
            .bind(answer.body.as_ref())
            .execute(&mut **tx)
            .await
            .map_err(failed(doing))?;
        Ok(done.rows_affected() == 1)
    }

    async fn release(&self, request: &RequestKey, owner: Uuid) -> Result<bool, StoreError> {
        let doing = "freeing a claim";
        let mut tx = self.lock().await?;
        let freed =
            sqlx::query(fence(planted::is("foreign-owner-releases"), include_str!("../../sql/release.sql"), OWN))
                .bind(&request.caller)
                .bind(&request.scope)
                .bind(&request.key)
                .bind(owner.to_string())
                .execute(&mut *tx)
                .await
                .map_err(failed(doing))?;
        tx.commit(doing, || ()).await?;
        Ok(freed.rows_affected() == 1)
    }

    async fn forget(&self, keep: Duration, most: u32) -> Result<u64, StoreError> {
        Ok(self.prune(Prune::Answers(keep), most, false).await?.rows)
    }
}

/// What stands in the way of a claim: another request, an answer, or somebody who is at it.
fn standing(row: &SqliteRow) -> Result<Claim, StoreError> {
    let doing = "reading a claim";
    let same: bool = row.try_get("same").map_err(failed(doing))?;
    if !same {
        return Ok(Claim::Mismatch);
    }
    let status: Option<i64> = row.try_get("status").map_err(failed(doing))?;
    let Some(status) = status else {
        let left: i64 = row.try_get("ms_left").map_err(failed(doing))?;
        return Ok(Claim::Running(Duration::from_millis(left.unsigned_abs())));
    };
    let headers: String = row.try_get("headers").map_err(failed(doing))?;
    Ok(Claim::Done(Answer {
        status: u16::try_from(status).map_err(|e| unreadable(doing, e))?,
        headers: serde_json::from_str(&headers).map_err(|e| unreadable(doing, e))?,
        body: row.try_get::<Vec<u8>, _>("body").map_err(failed(doing))?.into(),
    }))
}

fn unreadable(doing: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError { doing: doing.into(), class: Class::Final, source: error.into() }
}
