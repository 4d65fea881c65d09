//! The outbox: rows in by statement, rows out by position.

use crate::{Problem, attributes, store::Inner};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use malote_core::{
    Envelope, Read, Row, StoreError,
    relay::{Ranges, Window},
};
use sqlx::{PgConnection, Row as _, ValueRef, postgres::PgRow};
use uuid::Uuid;

impl Inner {
    /// Writes sealed envelopes, in the order given.
    pub(crate) async fn append(&self, connection: &mut PgConnection, envelopes: &[Envelope]) -> Result<(), StoreError> {
        let doing = || format!("writing {} envelopes to the outbox", envelopes.len());
        let headers: Result<Vec<String>, _> = envelopes.iter().map(attributes::write).collect();
        let headers = headers.map_err(|e| Problem::Database(sqlx::Error::Encode(e.into())).while_doing(doing()))?;
        let all = || envelopes.iter();
        self.sql
            .append
            .query()
            .bind(all().map(|e| e.id).collect::<Vec<_>>())
            .bind(all().map(|e| e.kind.as_str()).collect::<Vec<_>>())
            .bind(all().map(|e| e.topic.as_str()).collect::<Vec<_>>())
            .bind(all().map(|e| e.key.as_str()).collect::<Vec<_>>())
            .bind(headers)
            .bind(all().map(|e| e.payload.as_ref()).collect::<Vec<_>>())
            .execute(&mut *connection)
            .await
            .map_err(|error| self.failed(doing(), error))?;
        #[cfg(feature = "planted")]
        crate::planted::tell(connection, envelopes).await.map_err(|error| self.failed(doing(), error))?;
        Ok(())
    }

    pub(crate) async fn read(&self, window: &Window) -> Result<Read, StoreError> {
        let read = async {
            #[cfg(feature = "planted")]
            if let Some(read) = self.misread(window).await? {
                return Ok(read);
            }
            let mut session = self.relay_session().await?;
            let read = self.show(&mut session, window).await?;
            session.done().await.map(|()| read)
        };
        read.await.map_err(|error| self.failed("reading the outbox", error))
    }

    pub(crate) async fn show(&self, connection: &mut PgConnection, window: &Window) -> Result<Read, sqlx::Error> {
        let (first, last) = bounds(&window.gaps);
        let limit = i64::try_from(window.limit).unwrap_or(i64::MAX);
        let query = self.sql.read.query().bind(window.high).bind(first).bind(last).bind(limit);
        let shown = query.fetch_all(connection).await?;
        let ended_below = shown.first().map_or(Ok(0), |row| row.try_get::<i64, _>(0))?.cast_unsigned();
        let rows: Result<Vec<Row>, _> = shown.iter().filter_map(|row| decode(row).transpose()).collect();
        Ok(Read { ended_below, rows: rows? })
    }
}

/// The ends of ranges, each in an array of its own.
pub(crate) fn bounds(ranges: &Ranges) -> (Vec<i64>, Vec<i64>) {
    ranges.iter().unzip()
}

/// A row of `read.sql`; `None` for the one that only tells which transactions have ended.
pub(crate) fn decode(row: &PgRow) -> Result<Option<Row>, sqlx::Error> {
    let Some(seq) = row.try_get::<Option<i64>, _>(1)? else { return Ok(None) };
    Ok(Some(Row { seq, envelope: envelope(seq, row) }))
}

/// Anybody may write to the table, so whatever a row holds must not stop the rows behind it.
fn envelope(seq: i64, row: &PgRow) -> Result<Envelope, String> {
    let say = |error: sqlx::Error| format!("the row cannot be read: {error}");
    let id: Uuid = row.try_get(2).map_err(say)?;
    let kind: String = row.try_get(3).map_err(say)?;
    let topic: Option<String> = row.try_get(4).map_err(say)?;
    let key: Option<String> = row.try_get(5).map_err(say)?;
    let written: DateTime<Utc> = row.try_get(8).map_err(say)?;
    let headers = row.try_get_raw(6).map_err(say)?;
    let payload = row.try_get_raw(7).map_err(say)?;
    let mut envelope = Envelope {
        id,
        topic: topic.unwrap_or_else(|| kind.clone()),
        key: key.unwrap_or_else(|| id.to_string()),
        kind,
        source: String::new(),
        time: written,
        content_type: "application/json".into(),
        correlation_id: None,
        causation_id: None,
        trace: None,
        hop: None,
        sequence: Some(seq),
        headers: Vec::new(),
        payload: Bytes::copy_from_slice(payload.as_bytes().map_err(|e| e.to_string())?),
    };
    if !headers.is_null() {
        attributes::read(headers.as_str().map_err(|e| e.to_string())?, &mut envelope)?;
    }
    if envelope.source.is_empty() {
        envelope.source = row.try_get(9).map_err(say)?;
    }
    envelope.check().map_err(|unfit| unfit.to_string())?;
    Ok(envelope)
}
