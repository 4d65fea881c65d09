//! Envelopes that are not due yet. Due by the database's clock alone.

use crate::{
    Postgres, Problem, attributes,
    store::{Inner, micros},
};
use malote_core::{Envelope, Fired, StoreError, TimerStore, When, planted};
use sqlx::{PgConnection, Row};
use std::time::Duration;
use uuid::Uuid;

impl TimerStore for Postgres {
    async fn fire(&self, most: u32) -> Result<Fired, StoreError> {
        let fired = self.inner.fire(most).await;
        let fired = fired.map_err(|error| self.inner.failed("sending what is due", error))?;
        if fired.moved > 0 {
            self.inner.wake.appended(&self.inner);
        }
        Ok(fired)
    }
}

impl Inner {
    pub(crate) async fn schedule(
        &self,
        connection: &mut PgConnection,
        when: When,
        envelope: &Envelope,
    ) -> Result<(), StoreError> {
        let doing = || format!("scheduling {}", envelope.kind);
        let headers = attributes::write_untimed(envelope);
        let headers = headers.map_err(|e| Problem::Database(sqlx::Error::Encode(e.into())).while_doing(doing()))?;
        let (at, after) = match when {
            When::At(at) => (Some(at), 0.0),
            When::After(after) => (None, micros(after)),
        };
        let query = self.sql.schedule.query().bind(envelope.id).bind(at).bind(after).bind(&envelope.kind);
        let query = query.bind(&envelope.topic).bind(&envelope.key).bind(headers).bind(envelope.payload.as_ref());
        query.execute(connection).await.map(drop).map_err(|error| self.failed(doing(), error))
    }

    pub(crate) async fn cancel(&self, connection: &mut PgConnection, id: Uuid) -> Result<bool, StoreError> {
        let gone = self.sql.cancel.query().bind(id).execute(connection).await;
        let gone = gone.map_err(|error| self.failed("taking back what was scheduled", error))?;
        Ok(gone.rows_affected() == 1)
    }

    async fn fire(&self, most: u32) -> Result<Fired, sqlx::Error> {
        let mut session = self.session().await?;
        let next = self.next_scheduled(&mut session).await?;
        session.done().await?;
        if most == 0 || next.is_none_or(|next| !next.is_zero() && !planted::is("fire-early")) {
            return Ok(Fired { moved: 0, next });
        }
        let mut tx = self.begin().await?;
        let ours: bool = self.sql.fire_lock.query().fetch_one(&mut *tx).await?.try_get("ours")?;
        let moved =
            if ours { self.sql.fire.query().bind(i64::from(most)).execute(&mut *tx).await?.rows_affected() } else { 0 };
        let next = self.next_scheduled(&mut tx).await?;
        tx.commit().await?;
        // what somebody else is at is not worth asking for again at once
        let pause = if moved == 0 { Duration::from_millis(10) } else { Duration::ZERO };
        Ok(Fired { moved: moved.try_into().unwrap_or(u32::MAX), next: next.map(|next| next.max(pause)) })
    }

    async fn next_scheduled(&self, connection: &mut PgConnection) -> Result<Option<Duration>, sqlx::Error> {
        let row = self.sql.next_scheduled.query().fetch_optional(connection).await?;
        let next: Option<i64> = row.map(|row| row.try_get("next")).transpose()?;
        Ok(next.map(|next| Duration::from_micros(next.max(0).cast_unsigned())))
    }
}
