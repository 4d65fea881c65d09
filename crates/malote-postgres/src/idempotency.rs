//! Requests at the HTTP edge: a short committed claim, and an answer in the request's own transaction.

use crate::{
    Postgres, Problem, Tx,
    store::{Inner, micros},
};
use bytes::Bytes;
use malote_core::{Answer, Claim, IdempotencyStore, RequestKey, StoreError};
use sqlx::{Row, ValueRef, postgres::PgRow};
use std::time::Duration;
use uuid::Uuid;

impl IdempotencyStore for Postgres {
    async fn claim(
        &self,
        request: &RequestKey,
        fingerprint: &[u8; 32],
        owner: Uuid,
        lease: Duration,
    ) -> Result<Claim, StoreError> {
        let claimed = self.inner.claim(request, fingerprint, owner, lease).await;
        claimed.map_err(|error| self.inner.failed("claiming a request", error))
    }

    async fn finish(
        &self,
        tx: &mut Tx,
        request: &RequestKey,
        owner: Uuid,
        answer: &Answer,
    ) -> Result<bool, StoreError> {
        let doing = "recording the answer to a request";
        let headers = serde_json::to_string(&answer.headers);
        let headers = headers.map_err(|e| Problem::Database(sqlx::Error::Encode(e.into())).while_doing(doing))?;
        let query = self.inner.sql.finish.query().bind(name(request)).bind(owner);
        let query = query.bind(answer.status.cast_signed()).bind(headers).bind(answer.body.as_ref());
        let done = query.execute(&mut **tx).await.map_err(|error| self.inner.failed(doing, error))?;
        Ok(done.rows_affected() == 1)
    }

    async fn release(&self, request: &RequestKey, owner: Uuid) -> Result<bool, StoreError> {
        let release = async {
            let mut session = self.inner.session().await?;
            let query = self.inner.sql.release.query().bind(name(request)).bind(owner);
            let freed = query.execute(&mut *session).await?.rows_affected();
            session.done().await.map(|()| freed == 1)
        };
        release.await.map_err(|error| self.inner.failed("releasing a request", error))
    }

    async fn forget(&self, keep: Duration, most: u32) -> Result<u64, StoreError> {
        let forget = async {
            let mut session = self.inner.session().await?;
            let query = self.inner.sql.forget.query().bind(micros(keep)).bind(i64::from(most));
            let gone = query.execute(&mut *session).await?.rows_affected();
            session.done().await.map(|()| gone)
        };
        forget.await.map_err(|error| self.inner.failed("removing old answers", error))
    }
}

impl Inner {
    async fn claim(
        &self,
        request: &RequestKey,
        fingerprint: &[u8; 32],
        owner: Uuid,
        lease: Duration,
    ) -> Result<Claim, sqlx::Error> {
        let text = |text: &str| text.replace('\0', "\u{fffd}");
        loop {
            let mut session = self.session().await?;
            let query = self.sql.claim.query().bind(name(request));
            let query = query.bind(text(&request.caller)).bind(text(&request.scope)).bind(text(&request.key));
            let query = query.bind(fingerprint.as_slice()).bind(owner).bind(micros(lease));
            let found = query.fetch_optional(&mut *session).await?;
            let decided = found.map(|row| decide(&row, fingerprint)).transpose()?;
            let decided = match decided {
                Some(Claim::Running(left)) if left.is_zero() => {
                    let query = self.sql.take_over.query().bind(name(request)).bind(fingerprint.as_slice());
                    let taken = query.bind(owner).bind(micros(lease)).execute(&mut *session).await?;
                    // Nothing was taken when its owner, or another heir, was faster: ask what came of it.
                    (taken.rows_affected() == 1).then_some(Claim::Won)
                }
                decided => decided,
            };
            session.done().await?;
            if let Some(claim) = decided {
                return Ok(claim);
            }
        }
    }
}

/// A request's name: each part with its length before it, so that no part can reach into the next.
/// Hashed by the statement, since an index takes no long keys.
fn name(request: &RequestKey) -> Vec<u8> {
    let parts = [&request.caller, &request.scope, &request.key];
    let mut name = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        name.extend_from_slice(&(part.len() as u64).to_be_bytes());
        name.extend_from_slice(part.as_bytes());
    }
    name
}

/// In this order: another request, an answer, a claim that lives (for no time: whose lease has passed).
fn decide(row: &PgRow, fingerprint: &[u8; 32]) -> Result<Claim, sqlx::Error> {
    if row.try_get("won")? {
        return Ok(Claim::Won);
    }
    if row.try_get::<&[u8], _>("fingerprint")? != fingerprint {
        return Ok(Claim::Mismatch);
    }
    let Some(status) = row.try_get::<Option<i16>, _>("status")? else {
        let left: i64 = row.try_get("held_for")?;
        return Ok(Claim::Running(Duration::from_micros(left.max(0).cast_unsigned())));
    };
    let headers = row.try_get_raw("headers")?;
    let headers = if headers.is_null() {
        Vec::new()
    } else {
        serde_json::from_str(headers.as_str().map_err(sqlx::Error::Decode)?)
            .map_err(|e| sqlx::Error::Decode(e.into()))?
    };
    let body: Option<&[u8]> = row.try_get("body")?;
    Ok(Claim::Done(Answer {
        status: status.cast_unsigned(),
        headers,
        body: Bytes::copy_from_slice(body.unwrap_or_default()),
    }))
}
