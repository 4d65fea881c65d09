//! Acts, each with its line in the audit, in the transaction that does it.
//!
//! An act on many rows is done in steps, so that a service that writes never waits long behind a person.
//! Each step is whole: rows and audit, or neither. A dry run does the same and rolls it back.

use super::{
    super::{Sqlite, dead, failed, lock::Locked},
    list,
};
use malote_core::{
    StoreError,
    inspect::{Act, Acted, Filter},
};
use serde_json::json;
use sqlx::{SqliteConnection, query};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Rows of one step.
pub(super) const STEP: u32 = 200;

/// Writes an act down, in the transaction that does it.
pub(in super::super) async fn write_down(
    tx: &mut SqliteConnection,
    act: &Act,
    name: &str,
    target: &str,
    outcome: &str,
) -> Result<(), StoreError> {
    let audit = query(include_str!("../../../sql/audit.sql")).bind(&act.actor).bind(name).bind(target);
    let written = audit.bind(&act.reason).bind(malote_core::cut_reason(outcome)).execute(tx).await;
    written.map(drop).map_err(failed(format!("writing down: {name}")))
}

/// Writes an act down that was many transactions of its own.
pub(super) async fn note(store: &Sqlite, act: &Act, name: &str, target: &str, outcome: &str) -> Result<(), StoreError> {
    act.check("writing an act down")?;
    let mut tx = store.lock().await?;
    write_down(&mut tx, act, name, target, outcome).await?;
    end(tx, false, || ()).await
}

/// Makes an act so, unless it was only a question.
pub(super) async fn end(tx: Locked, dry: bool, then: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let doing = "ending an act";
    if dry { tx.rollback(doing).await } else { tx.commit(doing, then).await }
}

/// A key in words that do not tell it: what people did is kept longer than what they erased.
fn hidden(key: &str) -> String {
    format!("key with the hash {}", Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()))
}

/// What an act was aimed at, in words.
pub(super) fn target(of: &str, filter: &Filter) -> String {
    let mut words = vec![of.to_owned()];
    words.extend(filter.key.as_deref().map(hidden));
    let mut say = |name: &str, value: Option<String>| words.extend(value.map(|value| format!("{name} {value}")));
    say("numbers", filter.ids.as_ref().map(|ids| format!("{ids:.200?}")));
    say("by", filter.by.clone());
    say("type", filter.kind.clone());
    say("topic", filter.topic.clone());
    say("class", filter.class.clone());
    say("event", filter.event.clone());
    say("since", filter.since.map(|at| at.to_rfc3339()));
    say("until", filter.until.map(|at| at.to_rfc3339()));
    malote_core::cut_reason(&words.join(", "))
}

pub(super) async fn discard(store: &Sqlite, act: &Act, filter: &Filter, dry: bool) -> Result<Acted, StoreError> {
    act.check("discarding dead letters")?;
    let (mut all, mut above) = (Acted::default(), 0);
    loop {
        let rows = list::dead(store, filter, above, STEP).await?;
        let Some(last) = rows.last().map(|row| row.id) else { break };
        let mut tx = store.lock().await?;
        for row in rows {
            let Some(letter) = dead::letter(&mut tx, row.id).await? else { continue };
            dead::remove(&mut tx, &letter, 0).await?;
            dead::discarded(&mut tx, &letter).await?;
            write_down(&mut tx, act, "discard", &letter.target(), "discarded").await?;
            all.done += 1;
        }
        end(tx, dry, || ()).await?;
        above = last;
    }
    Ok(all)
}

pub(super) async fn retry_now(store: &Sqlite, act: &Act, filter: &Filter, dry: bool) -> Result<Acted, StoreError> {
    let doing = "making parked messages due";
    act.check(doing)?;
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
        let outcome = format!("the next attempt in {} lanes is due now", done.rows_affected());
        write_down(&mut tx, act, "retry", &target("parked messages", filter), &outcome).await?;
        end(tx, dry, || ()).await?;
        all.done += done.rows_affected();
    }
    Ok(all)
}

pub(super) async fn erase(store: &Sqlite, act: &Act, key: &str, dry: bool) -> Result<Acted, StoreError> {
    act.check("erasing a key")?;
    let mut tx = store.lock().await?;
    let dead = erase_by(&mut tx, include_str!("../../../sql/erase_dead.sql"), key).await?;
    erase_by(&mut tx, include_str!("../../../sql/erase_inbox.sql"), key).await?;
    let parked = erase_by(&mut tx, include_str!("../../../sql/erase_parked.sql"), key).await?;
    erase_by(&mut tx, include_str!("../../../sql/erase_lane.sql"), key).await?;
    let outcome = format!("{dead} dead letters emptied, {parked} parked messages removed");
    write_down(&mut tx, act, "erase", &hidden(key), &outcome).await?;
    end(tx, dry, || ()).await?;
    Ok(Acted { done: dead + parked, refused: Vec::new() })
}

async fn erase_by(tx: &mut SqliteConnection, statement: &'static str, key: &str) -> Result<u64, StoreError> {
    let done = query(statement).bind(key).execute(tx).await.map_err(failed("erasing a key"))?;
    Ok(done.rows_affected())
}
