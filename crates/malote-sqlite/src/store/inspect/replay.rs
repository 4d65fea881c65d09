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
    act.check(doing)?;
    let end = last(store).await?;
    let (mut all, mut above, mut sent) = (Acted::default(), 0, HashSet::new());
    while all.done < u64::from(how.most) && above < end {
        let room = u64::from(how.most) - all.done;
        let rows = list::outbox(store, filter, above, acts::STEP.min(u32::try_from(room).unwrap_or(u32::MAX))).await?;
        let Some(newest) = rows.last().map(|(row, _)| row.seq) else { break };
        let (mut which, mut refused) = (Vec::new(), Vec::new());
        for (row, readable) in rows {
            if row.seq > end || (!row.published && !filter.pending) {
                continue;
            }
            if !readable {
                let why = "its headers are not JSON: mend the row by hand".into();
                refused.push(Refused { id: row.seq, why, stale: false });
            } else if sent.insert(row.id) {
                which.push(row.seq);
            }
        }
        above = newest;
        if which.is_empty() && refused.is_empty() {
            continue;
        }
        let mut tx = store.lock().await?;
        let copied = query(include_str!("../../../sql/replay.sql"))
            .bind(json!(which).to_string())
            .bind(&how.topic)
            .bind(&how.consumer)
            .execute(&mut *tx)
            .await
            .map_err(failed(doing))?;
        let outcome = format!("{} rows sent again, {} refused", copied.rows_affected(), refused.len());
        acts::write_down(&mut tx, act, "replay", &target(filter, &how), &outcome).await?;
        let waking = store.clone();
        acts::end(tx, how.dry, move || waking.wake()).await?;
        all.done += copied.rows_affected();
        all.refused.append(&mut refused);
    }
    Ok(all)
}

fn target(filter: &Filter, how: &Replay) -> String {
    let mut text = acts::target("outbox rows", filter);
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
