//! Instances with their history, and the definitions that there is code for.

use crate::{Tx, record::text, sql::Statement, store::Inner};
use malote_core::{
    cut_reason,
    saga::{Entry, Loaded, Outline, Stored},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sqlx::{Row, postgres::PgRow};
use uuid::Uuid;

impl Inner {
    pub(super) async fn insert_saga(&self, tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, sqlx::Error> {
        let made = written(&self.sql.insert_saga, instance)?;
        let made = made.bind(&instance.definition).bind(i64::from(instance.version));
        if made.execute(&mut **tx).await?.rows_affected() == 0 {
            return Ok(false);
        }
        self.tell_saga(tx, instance.id, log).await.map(|()| true)
    }

    pub(super) async fn load_saga(&self, tx: &mut Tx, id: Uuid) -> Result<Loaded, sqlx::Error> {
        let row = self.sql.load_saga.query().bind(id).fetch_optional(&mut **tx).await?;
        row.map_or(Ok(Loaded::Absent), |row| loaded(&row))
    }

    pub(super) async fn save_saga(&self, tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, sqlx::Error> {
        let saved = written(&self.sql.save_saga, instance)?;
        if saved.execute(&mut **tx).await?.rows_affected() == 0 {
            return Ok(false);
        }
        self.tell_saga(tx, instance.id, log).await.map(|()| true)
    }

    /// Adds to the history.
    async fn tell_saga(&self, tx: &mut Tx, id: Uuid, log: &[Entry]) -> Result<(), sqlx::Error> {
        if log.is_empty() {
            return Ok(());
        }
        let trace = tx.sealer().cause.trace.as_ref().map(|trace| text(&trace.parent));
        let told = told(&self.sql.tell_saga, id, trace, log)?;
        told.execute(&mut **tx).await.map(drop)
    }

    pub(super) async fn define_sagas(&self, outlines: &[Outline]) -> Result<(), sqlx::Error> {
        let names: Vec<&str> = outlines.iter().map(|outline| outline.saga.as_str()).collect();
        let versions: Vec<i64> = outlines.iter().map(|outline| i64::from(outline.version)).collect();
        let texts: Vec<String> =
            outlines.iter().map(serde_json::to_string).collect::<Result<_, _>>().map_err(unwritable)?;
        let mut session = self.session().await?;
        self.sql.define_sagas.query().bind(names).bind(versions).bind(texts).execute(&mut *session).await?;
        session.done().await
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// What is written of an instance, new or changed.
fn written<'q>(statement: &'q Statement, instance: &'q Stored) -> Result<Query<'q>, sqlx::Error> {
    Ok(statement
        .query()
        .bind(instance.id)
        .bind(instance.revision.cast_signed())
        .bind(instance.status.as_str())
        .bind(instance.heading.as_str())
        .bind(instance.on_request)
        .bind(instance.reason.as_deref().map(cut_reason))
        .bind(&instance.state)
        .bind(serde_json::to_string(&instance.legs).map_err(unwritable)?)
        .bind(instance.entries.cast_signed())
        .bind(steps(instance))
        .bind(instance.status.is_final()))
}

fn told<'q>(
    statement: &'q Statement,
    id: Uuid,
    trace: Option<String>,
    log: &[Entry],
) -> Result<Query<'q>, sqlx::Error> {
    let words = |word: fn(&Entry) -> Option<String>| log.iter().map(word).collect::<Vec<_>>();
    Ok(statement
        .query()
        .bind(id)
        .bind(trace)
        .bind(log.iter().map(|entry| entry.n.cast_signed()).collect::<Vec<_>>())
        .bind(log.iter().map(|entry| name(&entry.what)).collect::<Result<Vec<_>, _>>()?)
        .bind(words(|entry| entry.leg.as_ref().map(|leg| text(&leg.to_string()))))
        .bind(words(|entry| entry.direction.map(|direction| direction.as_str().to_owned())))
        .bind(log.iter().map(|entry| entry.attempt.map(i64::from)).collect::<Vec<_>>())
        .bind(log.iter().map(|entry| entry.envelope).collect::<Vec<_>>())
        .bind(words(|entry| entry.reason.as_deref().map(cut_reason)))
        .bind(words(|entry| entry.actor.as_deref().map(cut_reason))))
}

/// The names of the steps that wait, as JSON that a statement can look into.
fn steps(instance: &Stored) -> String {
    json!(instance.waiting().iter().map(|leg| text(&leg.to_string())).collect::<Vec<_>>()).to_string()
}

pub(crate) fn loaded(row: &PgRow) -> Result<Loaded, sqlx::Error> {
    if row.try_get("removed")? {
        return Ok(Loaded::Tombstone(word(row, "status")?));
    }
    Ok(Loaded::Present(Box::new(Stored {
        id: row.try_get("id")?,
        definition: row.try_get("definition")?,
        version: u32::try_from(row.try_get::<i64, _>("version")?).map_err(unreadable)?,
        state: row.try_get("state")?,
        status: word(row, "status")?,
        heading: word(row, "heading")?,
        on_request: row.try_get("on_request")?,
        reason: row.try_get("reason")?,
        legs: serde_json::from_str(row.try_get("legs")?).map_err(unreadable)?,
        entries: row.try_get::<i64, _>("entries")?.cast_unsigned(),
        revision: row.try_get::<i64, _>("revision")?.cast_unsigned(),
    })))
}

/// A value that is written as one word, such as a status.
pub(crate) fn word<T: DeserializeOwned>(row: &PgRow, column: &str) -> Result<T, sqlx::Error> {
    serde_json::from_value(Value::String(row.try_get(column)?)).map_err(unreadable)
}

fn name(value: &impl Serialize) -> Result<String, sqlx::Error> {
    match serde_json::to_value(value).map_err(unwritable)? {
        Value::String(name) => Ok(name),
        other => Ok(other.to_string()),
    }
}

pub(crate) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(error.into())
}

pub(crate) fn unwritable(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}
