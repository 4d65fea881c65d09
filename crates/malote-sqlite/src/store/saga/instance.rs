//! Instances with their history, and the definitions that there is code for.

use super::super::{Sqlite, Tx, failed, fence, record::plain};
use malote_core::{
    StoreError, cut_reason, planted,
    saga::{Entry, Loaded, Outline, Stored},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sqlx::{
    Row, SqliteConnection, query,
    sqlite::{SqliteArguments, SqliteRow},
};
use uuid::Uuid;

pub(super) async fn insert(tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, StoreError> {
    let doing = || format!("writing the new saga {}", instance.id);
    let made = written(query(include_str!("../../../sql/insert_saga.sql")), instance).map_err(failed(doing()))?;
    let made = made.bind(&instance.definition).bind(instance.version);
    let made = made.execute(&mut **tx).await.map_err(failed(doing()))?;
    if made.rows_affected() == 0 {
        return Ok(false);
    }
    tell(tx, instance.id, log).await.map(|()| true)
}

pub(super) async fn load(connection: &mut SqliteConnection, id: Uuid) -> Result<Loaded, StoreError> {
    let doing = || format!("reading saga {id}");
    let row = query(include_str!("../../../sql/load_saga.sql"))
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .map_err(failed(doing()))?;
    let Some(row) = row else { return Ok(Loaded::Absent) };
    loaded(&row).map_err(failed(doing()))
}

pub(super) async fn save(tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, StoreError> {
    let doing = || format!("writing saga {}", instance.id);
    let unchecked = planted::is("saga-revision-unchecked");
    let statement = fence(unchecked, include_str!("../../../sql/save_saga.sql"), " AND revision = $2");
    let saved = written(query(statement), instance).map_err(failed(doing()))?;
    let saved = saved.execute(&mut **tx).await.map_err(failed(doing()))?;
    if saved.rows_affected() == 0 {
        return Ok(false);
    }
    tell(tx, instance.id, log).await.map(|()| true)
}

/// Adds to the history.
async fn tell(tx: &mut Tx, id: Uuid, log: &[Entry]) -> Result<(), StoreError> {
    if log.is_empty() {
        return Ok(());
    }
    let doing = || format!("writing the history of saga {id}");
    let entries = log.iter().map(told).collect::<Result<Vec<Value>, _>>().map_err(failed(doing()))?;
    let trace = tx.sealer().cause.trace.as_ref().map(|trace| trace.parent.clone());
    query(include_str!("../../../sql/tell_saga.sql"))
        .bind(id.to_string())
        .bind(trace)
        .bind(Value::Array(entries).to_string())
        .execute(&mut **tx)
        .await
        .map_err(failed(doing()))?;
    Ok(())
}

fn told(entry: &Entry) -> Result<Value, sqlx::Error> {
    Ok(json!({
        "n": entry.n,
        "what": name(&entry.what)?,
        "leg": entry.leg.as_ref().map(|leg| plain(&leg.to_string())),
        "direction": entry.direction.map(|direction| direction.as_str()),
        "attempt": entry.attempt,
        "envelope": entry.envelope,
        "reason": entry.reason.as_deref().map(cut_reason),
        "actor": entry.actor.as_deref().map(cut_reason),
    }))
}

pub(super) async fn define(store: &Sqlite, outlines: &[Outline]) -> Result<(), StoreError> {
    let doing = "writing down which sagas there is code for";
    let mut tx = store.lock().await?;
    for outline in outlines {
        let text = serde_json::to_string(outline).map_err(unwritable).map_err(failed(doing))?;
        query(include_str!("../../../sql/define_saga.sql"))
            .bind(&outline.saga)
            .bind(outline.version)
            .bind(text)
            .execute(&mut *tx)
            .await
            .map_err(failed(doing))?;
    }
    tx.commit(doing, || ()).await
}

/// Leaves tombstones of sagas that ended long ago. Says of how many.
pub(in super::super) async fn bury(tx: &mut SqliteConnection, keep: i64, most: u32) -> Result<u64, StoreError> {
    let doing = "removing old sagas";
    let ids: Vec<String> = sqlx::query_scalar(include_str!("../../../sql/prune_sagas.sql"))
        .bind(keep)
        .bind(i64::from(most))
        .fetch_all(&mut *tx)
        .await
        .map_err(failed(doing))?;
    let these = json!(ids).to_string();
    for statement in [
        include_str!("../../../sql/bury_log.sql"),
        include_str!("../../../sql/bury_acts.sql"),
        include_str!("../../../sql/bury_saga.sql"),
    ] {
        query(statement).bind(&these).execute(&mut *tx).await.map_err(failed(doing))?;
    }
    Ok(ids.len() as u64)
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, SqliteArguments>;

/// What is written of an instance, new or changed.
fn written<'q>(statement: Query<'q>, instance: &'q Stored) -> Result<Query<'q>, sqlx::Error> {
    let steps: Vec<String> = instance.waiting().iter().map(|leg| plain(&leg.to_string())).collect();
    Ok(statement
        .bind(instance.id.to_string())
        .bind(instance.revision.cast_signed())
        .bind(instance.status.as_str())
        .bind(instance.heading.as_str())
        .bind(instance.on_request)
        .bind(instance.reason.as_deref().map(cut_reason))
        .bind(&instance.state)
        .bind(serde_json::to_string(&instance.legs).map_err(unwritable)?)
        .bind(instance.entries.cast_signed())
        .bind(json!(steps).to_string())
        .bind(instance.status.is_final()))
}

fn loaded(row: &SqliteRow) -> Result<Loaded, sqlx::Error> {
    if row.try_get("removed")? {
        return Ok(Loaded::Tombstone(word(row, "status")?));
    }
    Ok(Loaded::Present(Box::new(whole(row)?)))
}

fn whole(row: &SqliteRow) -> Result<Stored, sqlx::Error> {
    let id: String = row.try_get("id")?;
    Ok(Stored {
        id: id.parse().map_err(unreadable)?,
        definition: row.try_get("definition")?,
        version: row.try_get("version")?,
        state: row.try_get("state")?,
        status: word(row, "status")?,
        heading: word(row, "heading")?,
        on_request: row.try_get("on_request")?,
        reason: row.try_get("reason")?,
        legs: serde_json::from_str(row.try_get("legs")?).map_err(unreadable)?,
        entries: row.try_get::<i64, _>("entries")?.cast_unsigned(),
        revision: row.try_get::<i64, _>("revision")?.cast_unsigned(),
    })
}

/// An instance, without changing it; none where it is not there, or only its tombstone.
pub(in super::super) async fn stored(
    connection: &mut SqliteConnection,
    id: Uuid,
) -> Result<Option<Stored>, StoreError> {
    Ok(match load(connection, id).await? {
        Loaded::Present(instance) => Some(*instance),
        Loaded::Absent | Loaded::Tombstone(_) => None,
    })
}

/// A value that is written as one word, such as a status.
pub(in super::super) fn word<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, sqlx::Error> {
    serde_json::from_value(Value::String(row.try_get(column)?)).map_err(unreadable)
}

fn name(value: &impl Serialize) -> Result<Value, sqlx::Error> {
    serde_json::to_value(value).map_err(unwritable)
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(error.into())
}

fn unwritable(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}
