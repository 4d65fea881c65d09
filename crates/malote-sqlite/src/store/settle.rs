//! How the attempt at a head came out, in the transaction that made it.

use super::{claim, dead, failed, fence, inbox, record, relay::millis};
use malote_core::{Ending, Failed, Parked, Settled, StoreError, planted};
use sqlx::{SqliteConnection, query};
use std::time::Duration;

/// What makes a claim that is over powerless.
const FENCE: &str = " AND epoch = $5";

pub(super) async fn settle(tx: &mut SqliteConnection, head: &Parked, ending: &Ending) -> Result<Settled, StoreError> {
    match ending {
        Ending::Again(failed) => again(tx, head, failed).await,
        Ending::Done => {
            if !take(tx, head).await? {
                return Ok(Settled::Fenced);
            }
            mark(tx, head, inbox::DONE).await?;
            passed(tx, head).await?;
            next(tx, head).await
        }
        Ending::Dead { dead, hold } => {
            if !take(tx, head).await? {
                return Ok(Settled::Fenced);
            }
            let mut dead = dead.as_ref().clone();
            (dead.topic, dead.key) = (head.lane.topic.clone(), Some(head.lane.key.clone()));
            dead.admission = dead.admission.or(head.admission);
            dead::set_aside(tx, &dead, *hold).await?;
            if !hold {
                return next(tx, head).await;
            }
            on_lane(tx, head, include_str!("../../sql/settle_hold.sql")).await?;
            Ok(Settled::Rest)
        }
    }
}

/// Takes the head out; false when the lane was claimed by somebody else.
async fn take(tx: &mut SqliteConnection, head: &Parked) -> Result<bool, StoreError> {
    let statement = fence(planted::is("old-claim-settles"), include_str!("../../sql/settle_take.sql"), FENCE);
    let taken = query(statement)
        .bind(head.n)
        .bind(record::plain(&head.consumer))
        .bind(&head.lane.topic)
        .bind(&head.lane.key)
        .bind(head.epoch)
        .execute(tx)
        .await
        .map_err(failed(format!("taking {:?} out of its lane", head.what)))?;
    Ok(taken.rows_affected() > 0)
}

async fn again(tx: &mut SqliteConnection, head: &Parked, setback: &Failed) -> Result<Settled, StoreError> {
    let doing = || format!("putting {:?} off", head.what);
    let statement = fence(planted::is("old-claim-settles"), include_str!("../../sql/settle_again.sql"), FENCE);
    let kept = query(statement)
        .bind(head.n)
        .bind(record::plain(&head.consumer))
        .bind(&head.lane.topic)
        .bind(&head.lane.key)
        .bind(head.epoch)
        .bind(setback.attempts)
        .bind(setback.class.as_str())
        .bind(&setback.error)
        .bind(setback.history.to_json())
        .execute(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    if kept.rows_affected() == 0 {
        return Ok(Settled::Fenced);
    }
    wait(tx, head, setback.wait).await?;
    Ok(Settled::Rest)
}

/// What is at the head now, under the same claim; a lane that is empty goes.
async fn next(tx: &mut SqliteConnection, head: &Parked) -> Result<Settled, StoreError> {
    if planted::is("lane-goes-with-head") {
        query("UPDATE malote_lane SET due_at = NULL").execute(&mut *tx).await.map_err(failed("planted"))?;
        return Ok(Settled::Rest);
    }
    if let Some(next) = claim::head(tx, &head.consumer, &head.lane, head.epoch, head.holds).await? {
        wait(tx, head, head.holds).await?;
        return Ok(Settled::Next(Box::new(next)));
    }
    on_lane(tx, head, include_str!("../../sql/settle_free.sql")).await?;
    on_lane(tx, head, include_str!("../../sql/settle_gone.sql")).await?;
    Ok(Settled::Rest)
}

async fn wait(tx: &mut SqliteConnection, head: &Parked, wait: Duration) -> Result<(), StoreError> {
    query(include_str!("../../sql/settle_wait.sql"))
        .bind(record::plain(&head.consumer))
        .bind(&head.lane.topic)
        .bind(&head.lane.key)
        .bind(millis(wait))
        .execute(tx)
        .await
        .map_err(failed(format!("setting when a lane of {:?} is due", head.consumer)))?;
    Ok(())
}

async fn passed(tx: &mut SqliteConnection, head: &Parked) -> Result<(), StoreError> {
    on_lane(tx, head, include_str!("../../sql/settle_pass.sql")).await
}

async fn mark(tx: &mut SqliteConnection, head: &Parked, state: &str) -> Result<(), StoreError> {
    inbox::mark(tx, &head.consumer, head.admission.as_slice(), state).await
}

async fn on_lane(tx: &mut SqliteConnection, head: &Parked, statement: &'static str) -> Result<(), StoreError> {
    query(statement)
        .bind(record::plain(&head.consumer))
        .bind(&head.lane.topic)
        .bind(&head.lane.key)
        .execute(tx)
        .await
        .map_err(failed(format!("changing a lane of {:?}", head.consumer)))?;
    Ok(())
}
