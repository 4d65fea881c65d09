//! Acts, each with its line in the audit, in the transaction that does it.
//!
//! An act on many rows is done in steps, so that a service that writes never waits long behind a person.
//! Each step is whole: rows and audit, or neither. A dry run does the same and rolls it back.

use super::{
    super::{Sqlite, dead, failed, lock::Locked},
    list,
};
use malote_core::{
    Class, StoreError,
    inspect::{Act, Acted, Filter, Refused},
};
use serde_json::json;
use sqlx::{SqliteConnection, query};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Rows of one step.
pub(super) const STEP: u32 = 200;

/// An act needs a name and a reason; both are looked for in the audit one day.
pub(super) fn check(doing: &str, act: &Act) -> Result<(), StoreError> {
    let lacking = |what: &str| StoreError {
        doing: doing.to_owned(),
        class: Class::Final,
        source: format!("{what} is needed: it is written down").into(),
    };
    match (act.actor.trim().is_empty(), act.reason.trim().is_empty()) {
        (true, _) => Err(lacking("who acts")),
        (_, true) => Err(lacking("a reason")),
        _ => Ok(()),
    }
}

/// Writes an act down, and makes it so unless it was only a question.
pub(super) async fn end(
    mut tx: Locked,
    act: &Act,
    name: &str,
    target: &str,
    outcome: &Acted,
    dry: bool,
    then: impl FnOnce() + Send + 'static,
) -> Result<(), StoreError> {
    let doing = format!("writing down: {name}");
    if dry {
        return tx.rollback(&doing).await;
    }
    write_down(&mut tx, act, name, target, &words(outcome)).await?;
    tx.commit(&doing, then).await
}

async fn write_down(
    tx: &mut SqliteConnection,
    act: &Act,
    name: &str,
    target: &str,
    outcome: &str,
) -> Result<(), StoreError> {
    let audit = query(include_str!("../../../sql/audit.sql")).bind(&act.actor).bind(name).bind(target);
    let written = audit.bind(&act.reason).bind(outcome).execute(tx).await;
    written.map(drop).map_err(failed(format!("writing down: {name}")))
}

pub(super) async fn note(store: &Sqlite, act: &Act, name: &str, target: &str, outcome: &str) -> Result<(), StoreError> {
    let doing = format!("writing down: {name}");
    check(&doing, act)?;
    let mut tx = store.lock().await?;
    write_down(&mut tx, act, name, target, outcome).await?;
    tx.commit(&doing, || ()).await
}

/// What came of an act, in words.
fn words(outcome: &Acted) -> String {
    let mut text = outcome.done.to_string();
    for Refused { id, why, stale } in &outcome.refused {
        let why = if *stale { format!("stale: {why}") } else { why.clone() };
        text.push_str(&format!("; not {id}: {why}"));
    }
    malote_core::cut_reason(&text)
}

/// What a filter chooses, in words.
pub(super) fn target(filter: &Filter) -> String {
    let mut words = Vec::new();
    let mut put = |name: &str, value: Option<String>| words.extend(value.map(|value| format!("{name} {value}")));
    put("ids", filter.ids.as_ref().map(|ids| json!(ids).to_string()));
    put("by", filter.by.clone());
    put("type", filter.kind.clone());
    put("topic", filter.topic.clone());
    // what people did is kept longer than what they erased
    put(
        "key with the hash",
        filter.key.as_ref().map(|key| Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).to_string()),
    );
    put("class", filter.class.clone());
    put("event", filter.event.clone());
    put("since", filter.since.map(|at| at.to_rfc3339()));
    put("until", filter.until.map(|at| at.to_rfc3339()));
    if words.is_empty() { "all".into() } else { malote_core::cut_reason(&words.join(", ")) }
}

pub(super) async fn discard(store: &Sqlite, act: &Act, filter: &Filter, dry: bool) -> Result<Acted, StoreError> {
    check("discarding dead letters", act)?;
    let (mut all, mut above) = (Acted::default(), 0);
    loop {
        let rows = list::dead(store, filter, above, STEP).await?;
        let Some(last) = rows.last().map(|row| row.id) else { break };
        let mut tx = store.lock().await?;
        let mut step = Acted::default();
        for row in rows {
            let Some(letter) = dead::letter(&mut tx, row.id).await? else { continue };
            dead::remove(&mut tx, &letter, 0).await?;
            dead::discarded(&mut tx, &letter).await?;
            step.done += 1;
        }
        end(tx, act, "discard", &target(filter), &step, dry, || ()).await?;
        all.done += step.done;
        above = last;
    }
    Ok(all)
}

pub(super) async fn retry_now(store: &Sqlite, act: &Act, filter: &Filter, dry: bool) -> Result<Acted, StoreError> {
    let doing = "making parked messages due";
    check(doing, act)?;
    let rows = list::parked(store, filter, u32::MAX).await?;
    let lanes: BTreeSet<_> = rows
        .into_iter()
        .filter(|row| row.due_at.is_some())
        .map(|row| (row.consumer, row.lane.topic, row.lane.key))
        .collect();
    let mut all = Acted::default();
    let lanes: Vec<_> = lanes.into_iter().collect();
    for lanes in lanes.chunks(STEP as usize) {
        let mut tx = store.lock().await?;
        let done = query(include_str!("../../../sql/retry_now.sql"))
            .bind(json!(lanes).to_string())
            .execute(&mut *tx)
            .await
            .map_err(failed(doing))?;
        let step = Acted { done: done.rows_affected(), refused: Vec::new() };
        end(tx, act, "retry", &target(filter), &step, dry, || ()).await?;
        all.done += step.done;
    }
    Ok(all)
}

/// The key itself is not written down: it may be what has to go.
pub(super) async fn erase(store: &Sqlite, act: &Act, key: &str, dry: bool) -> Result<Acted, StoreError> {
    check("erasing a key", act)?;
    let mut tx = store.lock().await?;
    let mut all = Acted::default();
    all.done += erase_by(&mut tx, include_str!("../../../sql/erase_dead.sql"), key).await?;
    erase_by(&mut tx, include_str!("../../../sql/erase_inbox.sql"), key).await?;
    all.done += erase_by(&mut tx, include_str!("../../../sql/erase_parked.sql"), key).await?;
    erase_by(&mut tx, include_str!("../../../sql/erase_lane.sql"), key).await?;
    end(tx, act, "erase", "a key", &all, dry, || ()).await?;
    Ok(all)
}

async fn erase_by(tx: &mut SqliteConnection, statement: &'static str, key: &str) -> Result<u64, StoreError> {
    let done = query(statement).bind(key).execute(tx).await.map_err(failed("erasing a key"))?;
    Ok(done.rows_affected())
}
