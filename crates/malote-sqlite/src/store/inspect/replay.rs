//! Sending again what the outbox still keeps: copies at its end, under their own ids and times, so that
//! whoever has handled them already passes over them.

use super::{
    super::{Sqlite, failed},
    acts, list,
};
use malote_core::{
    StoreError,
    inspect::{Act, Acted, Filter, Refused, Replay},
};
use serde_json::json;
use sqlx::query;
use std::collections::HashSet;

pub(super) async fn replay(store: &Sqlite, act: &Act, filter: &Filter, how: Replay) -> Result<Acted, StoreError> {
    let doing = "sending rows of the outbox again";
    acts::check(doing, act)?;
    let end = last(store).await?;
    let (mut all, mut above, mut sent) = (Acted::default(), 0, HashSet::new());
    while all.done < u64::from(how.most) {
        let room = u64::from(how.most) - all.done;
        let rows = list::outbox(store, filter, above, acts::STEP.min(u32::try_from(room).unwrap_or(u32::MAX))).await?;
        let Some(newest) = rows.last().map(|(row, _)| row.seq) else { break };
        let mut step = Acted::default();
        let mut which = Vec::new();
        for (row, readable) in rows.into_iter().filter(|(row, _)| row.seq <= end) {
            if !row.published && !filter.pending {
                continue;
            }
            if !readable {
                let why = "its headers are not JSON: mend the row by hand".into();
                step.refused.push(Refused { id: row.seq, why, stale: false });
            } else if sent.insert(row.id) {
                which.push(row.seq);
            }
        }
        let mut tx = store.lock().await?;
        let copied = query(include_str!("../../../sql/replay.sql"))
            .bind(json!(which).to_string())
            .bind(&how.topic)
            .bind(&how.consumer)
            .execute(&mut *tx)
            .await
            .map_err(failed(doing))?;
        step.done = copied.rows_affected();
        let waking = store.clone();
        acts::end(tx, act, "replay", &target(filter, &how), &step, how.dry, move || waking.wake()).await?;
        all.done += step.done;
        all.refused.append(&mut step.refused);
        above = newest;
    }
    Ok(all)
}

fn target(filter: &Filter, how: &Replay) -> String {
    let mut text = acts::target(filter);
    if let Some(topic) = &how.topic {
        text.push_str(&format!(", to topic {topic}"));
    }
    if let Some(consumer) = &how.consumer {
        text.push_str(&format!(", for {consumer} only"));
    }
    text
}

/// The last position; what is copied comes behind it, and is not copied again.
async fn last(store: &Sqlite) -> Result<i64, StoreError> {
    sqlx::query_scalar(include_str!("../../../sql/last_position.sql"))
        .fetch_one(&store.0.readers)
        .await
        .map_err(failed("looking for the end of the outbox"))
}
