//! Dead letters that get another chance.
//!
//! A letter of a consumer goes back into its lane: in front when its key was held for it, at the end
//! otherwise. A letter of a relay goes back to the outbox. What happened to it comes along, so that a
//! second failure shows both.

use super::{
    super::{
        Sqlite,
        dead::{self, Letter},
        failed, inbox, outbox, record,
    },
    acts, list,
};
use chrono::{DateTime, Utc};
use malote_core::{
    By, History, Setback, StoreError,
    inspect::{Act, Acted, Filter, Redrive, Refused},
    planted, wire,
};
use serde_json::json;
use sqlx::{SqliteConnection, query};
use std::collections::HashMap;

/// Which lanes were let go so far, so that they become due one after the other.
type Lanes = HashMap<(String, String, String), i64>;

pub(super) async fn redrive(store: &Sqlite, act: &Act, filter: &Filter, how: Redrive) -> Result<Acted, StoreError> {
    act.check("redriving dead letters")?;
    let (mut all, mut above, mut lanes) = (Acted::default(), 0, Lanes::new());
    // one that dies again meanwhile gets a larger number, and is not taken for one that was asked for
    let last = newest(store).await?;
    loop {
        let mut rows = list::dead(store, filter, above, acts::STEP).await?;
        rows.retain(|row| row.id <= last);
        let Some(newest) = rows.last().map(|row| row.id) else { break };
        let mut tx = store.lock().await?;
        let mut sent = false;
        for row in rows {
            let Some(letter) = dead::letter(&mut tx, row.id).await? else { continue };
            let done = match &letter.dead.by {
                By::Relay(_) => to_outbox(&mut tx, &letter).await?.map(|()| sent = true),
                By::Consumer(consumer) => to_lane(&mut tx, act, consumer, &letter, how, &mut lanes).await?,
            };
            acts::write_down(&mut tx, act, "redrive", &letter.target(), outcome(&letter, &done)).await?;
            match done {
                Ok(()) => all.done += 1,
                Err(refused) => all.refused.push(refused),
            }
        }
        let waking = store.clone();
        let then = move || {
            if sent {
                waking.wake()
            }
        };
        acts::end(tx, how.dry, then).await?;
        above = newest;
    }
    Ok(all)
}

async fn newest(store: &Sqlite) -> Result<i64, StoreError> {
    sqlx::query_scalar(include_str!("../../../sql/dead_newest.sql"))
        .fetch_one(&store.0.readers)
        .await
        .map_err(failed("looking for the latest dead letter"))
}

type Done = Result<(), Refused>;

/// What came of it, for the audit.
fn outcome<'a>(letter: &Letter, done: &'a Done) -> &'a str {
    match (done, &letter.dead.by) {
        (Err(refused), _) if refused.stale => "stale",
        (Err(refused), _) => &refused.why,
        (Ok(()), By::Relay(_)) => "sent again",
        (Ok(()), By::Consumer(_)) => "parked",
    }
}

fn refused(letter: &Letter, why: impl Into<String>) -> Refused {
    Refused { id: letter.id, why: why.into(), stale: false }
}

const ERASED: &str = "its record was erased: discard it";

/// Under the same id and with the same time.
async fn to_outbox(tx: &mut SqliteConnection, letter: &Letter) -> Result<Done, StoreError> {
    if letter.is_empty() {
        let why = match letter.dead.reason.as_str() {
            "(erased)" => ERASED.to_owned(),
            reason => format!("its row could not be read ({reason}): mend the row by hand, or discard it"),
        };
        return Ok(Err(refused(letter, why)));
    }
    let mut envelope = match wire::decode(&letter.dead.topic, &letter.dead.record) {
        Ok(envelope) => envelope,
        Err(error) => return Ok(Err(refused(letter, format!("its record cannot be read ({error}): discard it")))),
    };
    if let Err(unfit) = envelope.check() {
        return Ok(Err(refused(letter, format!("it would be refused again: {unfit}"))));
    }
    (envelope.sequence, envelope.hop) = (None, None);
    if planted::is("redrive-new-id") {
        envelope.id = uuid::Uuid::now_v7();
    }
    outbox::append(tx, &[envelope]).await?;
    dead::remove(tx, letter, 0).await?;
    Ok(Ok(()))
}

async fn to_lane(
    tx: &mut SqliteConnection,
    act: &Act,
    consumer: &str,
    letter: &Letter,
    how: Redrive,
    lanes: &mut Lanes,
) -> Result<Done, StoreError> {
    if letter.is_empty() {
        return Ok(Err(refused(letter, ERASED)));
    }
    let name = record::plain(consumer);
    let key = match &letter.dead.key {
        Some(key) => key.clone(),
        None => key_of(letter),
    };
    let newer = passed(tx, &name, &letter.dead.topic, &key).await? - letter.passed_before;
    if newer > 0 && letter.dead.key.is_some() && !how.although_newer && !planted::is("redrive-unchecked") {
        return Ok(Err(Refused::stale(letter.id, newer.unsigned_abs())));
    }
    let next = lanes.len() as i64;
    let i = *lanes.entry((name.clone(), letter.dead.topic.clone(), key.clone())).or_insert(next);
    let wait = if how.per_second == 0 { 0 } else { i.saturating_mul(1000) / i64::from(how.per_second) };
    let lane = json!([{ "topic": letter.dead.topic, "key": key, "wait": wait }]).to_string();
    query(include_str!("../../../sql/park_lane.sql"))
        .bind(&name)
        .bind(lane)
        .execute(&mut *tx)
        .await
        .map_err(failed("making a lane for a dead letter"))?;
    let admission = dead::admission(&letter.dead);
    let place = if letter.holds_key {
        include_str!("../../../sql/redrive_front.sql")
    } else {
        include_str!("../../../sql/redrive_back.sql")
    };
    let parked = query(place)
        .bind(&name)
        .bind(&letter.dead.topic)
        .bind(&key)
        .bind(history(act, letter).to_json())
        .bind(letter.id)
        .bind(admission.map(|a| a.day.to_string()))
        .execute(&mut *tx)
        .await
        .map_err(failed(format!("parking dead letter {}", letter.id)))?;
    if parked.rows_affected() == 0 {
        return Ok(Err(refused(letter, "it is parked already: discard the dead letter")));
    }
    inbox::mark(tx, consumer, admission.as_slice(), inbox::PARKED).await?;
    dead::remove(tx, letter, wait).await?;
    Ok(Ok(()))
}

/// The key of a letter that a version before has kept without it.
fn key_of(letter: &Letter) -> String {
    let decoded = wire::decode(&letter.dead.topic, &letter.dead.record).map(|envelope| envelope.key);
    let raw = || letter.dead.record.key.as_deref().map(|key| String::from_utf8_lossy(key).into_owned());
    record::plain(&decoded.ok().or_else(raw).unwrap_or_default())
}

fn history(act: &Act, letter: &Letter) -> History {
    if planted::is("redrive-forgets") {
        return History::default();
    }
    let mut history = letter.dead.history.clone();
    history.push(Setback::act(now(), "redriven", &format!("{}: {}", act.actor, act.reason)));
    history
}

/// For people; nothing is compared with it.
fn now() -> DateTime<Utc> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    DateTime::from_timestamp(since.as_secs().cast_signed(), since.subsec_nanos()).unwrap_or_default()
}

async fn passed(tx: &mut SqliteConnection, consumer: &str, topic: &str, key: &str) -> Result<i64, StoreError> {
    let passed: Option<i64> = sqlx::query_scalar(include_str!("../../../sql/lane_passed.sql"))
        .bind(consumer)
        .bind(topic)
        .bind(key)
        .fetch_optional(tx)
        .await
        .map_err(failed("looking at the lane of a dead letter"))?;
    Ok(passed.unwrap_or(0))
}
