//! Rows for people.

use super::filtered;
use crate::{parked, record, store::Inner};
use malote_core::{
    Admission, Dead, History, Lane,
    inspect::{AuditRow, DeadRow, Filter, OutboxRow, ParkedRow, ScheduledRow},
};
use sqlx::{Row, postgres::PgRow};
use uuid::Uuid;

impl Inner {
    pub(super) async fn list_outbox(&self, filter: &Filter, most: u32) -> Result<Vec<OutboxRow>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let query = filtered(self.sql.list_outbox.query(), filter, most).bind(filter.pending);
        let rows = query.fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(outbox).collect()
    }

    pub(super) async fn list_parked(&self, filter: &Filter, most: u32) -> Result<Vec<ParkedRow>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = filtered(self.sql.list_parked.query(), filter, most).fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(parked_row).collect()
    }

    pub(super) async fn list_dead(&self, filter: &Filter, most: u32) -> Result<Vec<DeadRow>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = filtered(self.sql.list_dead.query(), filter, most).fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(dead_row).collect()
    }

    pub(super) async fn dead_letter(&self, id: i64) -> Result<Option<(DeadRow, Dead)>, sqlx::Error> {
        let filter = Filter { ids: Some(vec![id]), ..Filter::default() };
        let Some(row) = self.list_dead(&filter, 1).await?.pop() else { return Ok(None) };
        let mut session = self.session().await?;
        let letter = self.sql.dead_letter.query().bind(id).fetch_optional(&mut *session).await?;
        session.done().await?;
        letter.map(|letter| Ok((row.clone(), dead(&row, &letter)?))).transpose()
    }

    pub(super) async fn list_scheduled(&self, most: u32) -> Result<Vec<ScheduledRow>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = self.sql.list_scheduled.query().bind(i64::from(most)).fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(scheduled).collect()
    }

    pub(super) async fn scheduled_of(&self, ids: &[Uuid]) -> Result<Vec<ScheduledRow>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = self.sql.scheduled_of.query().bind(ids).fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(scheduled).collect()
    }

    pub(super) async fn list_audit(&self, most: u32) -> Result<Vec<AuditRow>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = self.sql.list_audit.query().bind(i64::from(most)).fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(audit).collect()
    }
}

fn attempts(row: &PgRow) -> Result<u32, sqlx::Error> {
    Ok(row.try_get::<i32, _>("attempts")?.max(0).cast_unsigned())
}

fn outbox(row: &PgRow) -> Result<OutboxRow, sqlx::Error> {
    Ok(OutboxRow {
        seq: row.try_get("seq")?,
        id: row.try_get("id")?,
        kind: row.try_get("type")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        created_at: row.try_get("created_at")?,
        payload_bytes: row.try_get("payload_bytes")?,
        published: row.try_get("published")?,
    })
}

fn parked_row(row: &PgRow) -> Result<ParkedRow, sqlx::Error> {
    Ok(ParkedRow {
        consumer: row.try_get("consumer")?,
        lane: Lane { topic: row.try_get("topic")?, key: row.try_get("key")? }.into(),
        what: row.try_get("what")?,
        kind: row.try_get("type")?,
        attempts: attempts(row)?,
        parked_at: row.try_get("parked_at")?,
        due_at: row.try_get("due_at")?,
        held: row.try_get("held")?,
        class: row.try_get("class")?,
        error: row.try_get("error")?,
    })
}

fn dead_row(row: &PgRow) -> Result<DeadRow, sqlx::Error> {
    Ok(DeadRow {
        id: row.try_get("id")?,
        by: row.try_get("by")?,
        what: row.try_get("what")?,
        kind: row.try_get("type")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        partition: row.try_get("partition")?,
        offset: row.try_get("offset")?,
        class: row.try_get("class")?,
        reason: row.try_get("reason")?,
        attempts: attempts(row)?,
        history: History::from_json(row.try_get("history")?),
        correlation_id: row.try_get("correlation_id")?,
        trace: row.try_get("trace")?,
        first_at: row.try_get("first_at")?,
        last_at: row.try_get("last_at")?,
        holds_key: row.try_get("holds_key")?,
        newer: super::status::number(row, "newer")?,
        payload_bytes: row.try_get("payload_bytes")?,
    })
}

fn dead(shown: &DeadRow, row: &PgRow) -> Result<Dead, sqlx::Error> {
    let event = row.try_get::<Option<_>, _>("event_id")?.zip(row.try_get::<Option<_>, _>("day")?);
    Ok(Dead {
        by: shown.by.parse().map_err(|error: String| sqlx::Error::Decode(error.into()))?,
        what: shown.what.clone(),
        admission: event.map(|(event_id, day)| Admission { event_id, day }),
        kind: shown.kind.clone(),
        topic: shown.topic.clone(),
        key: shown.key.clone(),
        partition: shown.partition,
        offset: shown.offset,
        class: parked::class(&shown.class),
        reason: shown.reason.clone(),
        attempts: shown.attempts,
        history: shown.history.clone(),
        correlation_id: shown.correlation_id.clone(),
        trace: shown.trace.clone(),
        record: record::read(row)?,
    })
}

fn scheduled(row: &PgRow) -> Result<ScheduledRow, sqlx::Error> {
    Ok(ScheduledRow {
        id: row.try_get("id")?,
        kind: row.try_get("type")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        due_at: row.try_get("due_at")?,
    })
}

fn audit(row: &PgRow) -> Result<AuditRow, sqlx::Error> {
    Ok(AuditRow {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        actor: row.try_get("actor")?,
        act: row.try_get("act")?,
        target: row.try_get("target")?,
        reason: row.try_get("reason")?,
        outcome: row.try_get("outcome")?,
    })
}
