//! Who has which partition, and which runs have begun: what tells of a process that died over a message.
//!
//! It is written in commits that do not wait for the disk. What is to be noticed is the death of a
//! process; a power cut ends all of them, and then the worst is a message that is tried once more.

use super::{Sqlite, failed, record};
use malote_core::{Incarnation, StoreError, planted};
use serde_json::json;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use std::collections::{HashMap, HashSet};

pub(super) async fn take(
    store: &Sqlite,
    consumer: &str,
    who: Incarnation,
    partitions: &[(String, i32)],
) -> Result<Vec<bool>, StoreError> {
    let doing = || format!("taking {} partitions for {consumer:?}", partitions.len());
    let which = json!(partitions).to_string();
    let mut tx = store.lock_light().await?;
    let left = sqlx::query(include_str!("../../sql/custody.sql"))
        .bind(record::plain(consumer))
        .bind(who.0.to_string())
        .bind(&which)
        .fetch_all(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    let left = left.iter().map(|row| Ok((row.try_get("topic")?, row.try_get("partition")?)));
    let left = left.collect::<Result<HashSet<(String, i32)>, sqlx::Error>>().map_err(failed(doing()))?;
    sqlx::query(include_str!("../../sql/take_custody.sql"))
        .bind(record::plain(consumer))
        .bind(who.0.to_string())
        .bind(&which)
        .execute(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    tx.commit(&doing(), || ()).await?;
    Ok(partitions.iter().map(|partition| left.contains(partition) && !planted::is("deaths-unnoticed")).collect())
}

pub(super) async fn give_back(store: &Sqlite, consumer: &str, who: Incarnation) -> Result<(), StoreError> {
    let doing = format!("giving back the partitions of {consumer:?}");
    let mut tx = store.lock_light().await?;
    sqlx::query(include_str!("../../sql/give_back.sql"))
        .bind(record::plain(consumer))
        .bind(who.0.to_string())
        .execute(&mut *tx)
        .await
        .map_err(failed(&doing))?;
    tx.commit(&doing, || ()).await
}

pub(super) async fn runs(store: &Sqlite, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
    let doing = || format!("looking for runs of {} messages", what.len());
    let rows = sqlx::query(include_str!("../../sql/runs.sql"))
        .bind(record::plain(consumer))
        .bind(json!(what).to_string())
        .fetch_all(&store.0.readers)
        .await;
    counts(&rows.map_err(failed(doing()))?, what).map_err(failed(doing()))
}

pub(super) async fn runs_begin(store: &Sqlite, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
    let doing = || format!("counting runs of {} messages", what.len());
    let mut tx = store.lock_light().await?;
    let rows = sqlx::query(include_str!("../../sql/runs_begin.sql"))
        .bind(record::plain(consumer))
        .bind(json!(what).to_string())
        .fetch_all(&mut *tx)
        .await;
    let begun = counts(&rows.map_err(failed(doing()))?, what).map_err(failed(doing()))?;
    tx.commit(&doing(), || ()).await?;
    Ok(begun)
}

fn counts(rows: &[SqliteRow], what: &[String]) -> Result<Vec<u32>, sqlx::Error> {
    let begun = rows.iter().map(|row| Ok((row.try_get("what")?, row.try_get("begun")?)));
    let begun = begun.collect::<Result<HashMap<String, u32>, sqlx::Error>>()?;
    Ok(what.iter().map(|what| begun.get(what).copied().unwrap_or_default()).collect())
}

pub(super) async fn runs_ended(tx: &mut SqliteConnection, consumer: &str, what: &[String]) -> Result<(), StoreError> {
    sqlx::query(include_str!("../../sql/runs_ended.sql"))
        .bind(record::plain(consumer))
        .bind(json!(what).to_string())
        .execute(tx)
        .await
        .map_err(failed(format!("ending runs of {} messages", what.len())))?;
    Ok(())
}
