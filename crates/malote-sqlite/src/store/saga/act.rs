//! What people ask to be done to an instance, and what came of it.

use super::super::{Sqlite, Tx, failed, fence, inspect};
use malote_core::{
    StoreError, cut_reason,
    inspect::Act,
    planted,
    saga::{AskedDeed, DeedOutcome},
};
use sqlx::{Row, query, sqlite::SqliteRow};

pub(super) async fn open(store: &Sqlite, after: i64, most: u32) -> Result<Vec<i64>, StoreError> {
    let numbers = sqlx::query_scalar(include_str!("../../../sql/open_acts.sql")).bind(after).bind(most);
    numbers.fetch_all(&store.0.readers).await.map_err(failed("looking for acts on sagas"))
}

pub(super) async fn take(tx: &mut Tx, id: i64) -> Result<Option<AskedDeed>, StoreError> {
    let doing = || format!("taking act {id} on a saga");
    let twice = planted::is("act-taken-twice");
    let statement = fence(twice, include_str!("../../../sql/take_act.sql"), " AND done_at IS NULL");
    let row = query(statement).bind(id).fetch_optional(&mut **tx).await.map_err(failed(doing()))?;
    row.map(|row| asked(id, &row)).transpose().map_err(failed(doing()))
}

fn asked(id: i64, row: &SqliteRow) -> Result<AskedDeed, sqlx::Error> {
    let decode = |error: Box<dyn std::error::Error + Send + Sync>| sqlx::Error::Decode(error);
    let saga: String = row.try_get("saga")?;
    let deed: String = row.try_get("deed")?;
    Ok(AskedDeed {
        id,
        saga: saga.parse().map_err(|error: uuid::Error| decode(error.into()))?,
        act: Act { actor: row.try_get("actor")?, reason: row.try_get("reason")? },
        deed: serde_json::from_str(&deed).map_err(|error| decode(error.into()))?,
    })
}

pub(super) async fn answer(tx: &mut Tx, asked: &AskedDeed, outcome: &DeedOutcome) -> Result<(), StoreError> {
    query(include_str!("../../../sql/answer_act.sql"))
        .bind(asked.id)
        .bind(cut_reason(&outcome.says))
        .bind(outcome.denied)
        .execute(&mut **tx)
        .await
        .map_err(failed(format!("answering act {} on a saga", asked.id)))?;
    let (name, target, came) = (asked.name(), asked.target(), outcome.to_string());
    inspect::write_down(tx, &asked.act, &name, &target, &came).await
}
