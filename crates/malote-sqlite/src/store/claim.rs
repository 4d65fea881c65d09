//! Which lanes are tried next, and how many.
//!
//! The longest overdue comes first, so what always fails cannot keep anybody else waiting: its own next
//! attempt is behind everything that is due by then. Second and later attempts take from a bucket that
//! all processes of the consumer share; a message that only waited for its turn takes nothing.

use super::{Sqlite, failed, fence, record, relay::millis};
use malote_core::{Budget, ClaimDue, Due, History, Lane, Parked, StoreError, planted};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use std::time::Duration;

/// How many lanes are looked at beyond those asked for, for one that may run when the bucket is empty.
const LOOK_FURTHER: u32 = 256;

/// What a head may cost.
struct Candidate {
    lane: Lane,
    retry: bool,
}

pub(super) async fn claim_due(store: &Sqlite, consumer: &str, ask: &ClaimDue) -> Result<Due, StoreError> {
    let doing = || format!("claiming lanes of {consumer:?}");
    // most looks find nothing due, and need no lock for that
    let next = next_due(store, consumer).await?;
    if next.is_none_or(|wait| !wait.is_zero()) {
        return Ok(Due { heads: Vec::new(), next });
    }
    let mut tx = store.lock_light().await?;
    let candidates = candidates(&mut tx, consumer, ask.most).await?;
    let tokens = tokens(&mut tx, consumer, ask.budget).await?;
    let (mut heads, mut spent, mut short) = (Vec::new(), 0.0, false);
    for Candidate { lane, retry } in candidates {
        if heads.len() >= ask.most as usize {
            break;
        }
        if retry && tokens - spent < 1.0 && !planted::is("budget-unchecked") {
            short = true;
            continue;
        }
        let epoch = claim_lane(&mut tx, consumer, &lane, ask.holds).await?;
        heads.extend(head(&mut tx, consumer, &lane, epoch, ask.holds).await?);
        spent += if retry { 1.0 } else { 0.0 };
    }
    sqlx::query(include_str!("../../sql/spend.sql"))
        .bind(record::plain(consumer))
        .bind(spent)
        .execute(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    tx.commit(&doing(), || ()).await?;
    let mut next = next_due(store, consumer).await?;
    if short && next.is_some_and(|wait| wait.is_zero()) {
        let lacking = (1.0 - (tokens - spent)).max(0.0) / ask.budget.per_second.max(f64::MIN_POSITIVE);
        next = Some(Duration::try_from_secs_f64(lacking).unwrap_or(ask.holds).max(Duration::from_millis(1)));
    }
    Ok(Due { heads, next })
}

async fn next_due(store: &Sqlite, consumer: &str) -> Result<Option<Duration>, StoreError> {
    let left: Option<i64> = sqlx::query_scalar(include_str!("../../sql/next_due.sql"))
        .bind(record::plain(consumer))
        .fetch_one(&store.0.readers)
        .await
        .map_err(failed(format!("looking for lanes of {consumer:?} that are due")))?;
    Ok(left.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0))))
}

async fn candidates(tx: &mut SqliteConnection, consumer: &str, most: u32) -> Result<Vec<Candidate>, StoreError> {
    let doing = || format!("looking for lanes of {consumer:?} that are due");
    let statement = fence(planted::is("claim-any-order"), include_str!("../../sql/claim_due.sql"), "l.due_at, ");
    let rows = sqlx::query(statement)
        .bind(record::plain(consumer))
        .bind(i64::from(most.saturating_add(LOOK_FURTHER)))
        .fetch_all(tx)
        .await
        .map_err(failed(doing()))?;
    let each = rows.iter().map(|row| {
        let attempts: Option<i64> = row.try_get("attempts")?;
        let lane = Lane { topic: row.try_get("topic")?, key: row.try_get("key")? };
        Ok(Candidate { lane, retry: attempts.unwrap_or(0) > 0 })
    });
    each.collect::<Result<_, sqlx::Error>>().map_err(failed(doing()))
}

async fn tokens(tx: &mut SqliteConnection, consumer: &str, budget: Budget) -> Result<f64, StoreError> {
    sqlx::query_scalar(include_str!("../../sql/budget.sql"))
        .bind(record::plain(consumer))
        .bind(budget.per_second)
        .bind(budget.burst)
        .fetch_one(tx)
        .await
        .map_err(failed(format!("looking at the retry budget of {consumer:?}")))
}

async fn claim_lane(
    tx: &mut SqliteConnection,
    consumer: &str,
    lane: &Lane,
    holds: Duration,
) -> Result<i64, StoreError> {
    sqlx::query_scalar(include_str!("../../sql/claim_lane.sql"))
        .bind(record::plain(consumer))
        .bind(&lane.topic)
        .bind(&lane.key)
        .bind(millis(holds))
        .fetch_one(tx)
        .await
        .map_err(failed(format!("claiming a lane of {consumer:?}")))
}

/// The head of a lane, its attempt counted; none when nothing is parked.
pub(super) async fn head(
    tx: &mut SqliteConnection,
    consumer: &str,
    lane: &Lane,
    epoch: i64,
    holds: Duration,
) -> Result<Option<Parked>, StoreError> {
    let doing = || format!("taking the head of a lane of {consumer:?}");
    let statement = fence(planted::is("attempt-uncounted"), include_str!("../../sql/head.sql"), " + 1");
    let row = sqlx::query(statement)
        .bind(record::plain(consumer))
        .bind(&lane.topic)
        .bind(&lane.key)
        .fetch_optional(tx)
        .await
        .map_err(failed(doing()))?;
    let parked = row.map(|row| parked(&row, consumer, lane, epoch, holds)).transpose();
    parked.map_err(failed(doing()))
}

fn parked(row: &SqliteRow, consumer: &str, lane: &Lane, epoch: i64, holds: Duration) -> Result<Parked, sqlx::Error> {
    let age: Option<i64> = row.try_get("age")?;
    Ok(Parked {
        lane: lane.clone(),
        consumer: consumer.to_owned(),
        n: row.try_get("n")?,
        epoch,
        holds,
        what: row.try_get("what")?,
        admission: record::admission(row)?,
        attempts: row.try_get("attempts")?,
        age: Duration::from_millis(age.unwrap_or(0).unsigned_abs()),
        history: History::from_json(row.try_get("history")?),
        record: record::record(row)?,
    })
}
