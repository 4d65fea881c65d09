//! Rows of the outbox that are sent again.

use super::{
    act::{end, target},
    filtered,
};
use crate::{outbox, store::Inner};
use malote_core::{
    Envelope, StoreError,
    inspect::{Act, Acted, Filter, ONLY_FOR, Refused, Replay},
};
use sqlx::{PgConnection, Row};
use std::{collections::HashSet, sync::Arc};
use uuid::Uuid;

/// Rows that are read and written at a time.
const CHUNK: u32 = 500;

impl Inner {
    /// The copies keep id, time and all else; they are written in one transaction, so they are there
    /// together or not at all. Of an event that the outbox holds twice, from an earlier replay, one goes.
    pub(super) async fn replay(self: &Arc<Self>, act: &Act, filter: &Filter, how: Replay) -> Result<Acted, StoreError> {
        let failed = |error| self.failed("replaying the outbox", error);
        let mut tx = self.begin().await.map_err(failed)?;
        let last = self.sql.last_position.query().fetch_one(&mut *tx).await.map_err(failed)?;
        let last: i64 = last.try_get("last").map_err(failed)?;
        let (mut acted, mut above, mut seen) = (Acted::default(), 0, HashSet::new());
        while acted.done < u64::from(how.most) && above < last {
            let rows = self.kept(&mut tx, filter, above, last).await.map_err(failed)?;
            let Some((seq, _)) = rows.last() else { break };
            above = *seq;
            let envelopes = choose(rows, &how, &mut acted, &mut seen);
            self.append(&mut tx, &envelopes).await?;
        }
        let outcome = format!("{} rows sent again, {} refused", acted.done, acted.refused.len());
        self.note(&mut tx, act, "replay", &aim(filter, &how), &outcome).await.map_err(failed)?;
        end(tx, how.dry).await.map_err(failed)?;
        if acted.done > 0 && !how.dry {
            self.wake.appended(self);
        }
        Ok(acted)
    }

    async fn kept(
        &self,
        connection: &mut PgConnection,
        filter: &Filter,
        above: i64,
        last: i64,
    ) -> Result<Vec<(i64, Result<Envelope, String>)>, sqlx::Error> {
        let query = filtered(self.sql.replay.query(), filter, CHUNK).bind(filter.pending).bind(above).bind(last);
        let rows = query.fetch_all(connection).await?;
        let row = |row| Ok(outbox::decode(row)?.map(|row| (row.seq, row.envelope)));
        rows.iter().filter_map(|shown| row(shown).transpose()).collect()
    }
}

/// The envelopes to send of these rows.
fn choose(
    rows: Vec<(i64, Result<Envelope, String>)>,
    how: &Replay,
    acted: &mut Acted,
    seen: &mut HashSet<Uuid>,
) -> Vec<Envelope> {
    let mut chosen = Vec::new();
    for (seq, row) in rows {
        if acted.done >= u64::from(how.most) {
            break;
        }
        match row {
            Ok(envelope) if !seen.insert(envelope.id) => {}
            Ok(mut envelope) => {
                envelope.headers.retain(|(name, _)| name != ONLY_FOR);
                envelope.headers.extend(how.consumer.clone().map(|consumer| (ONLY_FOR.to_owned(), consumer)));
                envelope.topic = how.topic.clone().unwrap_or(envelope.topic);
                if let Err(unfit) = envelope.check() {
                    acted.refused.push(Refused { id: seq, why: unfit.to_string(), stale: false });
                    continue;
                }
                acted.done += 1;
                chosen.push(envelope);
            }
            Err(why) => acted.refused.push(Refused { id: seq, why, stale: false }),
        }
    }
    chosen
}

fn aim(filter: &Filter, how: &Replay) -> String {
    let mut words = target("outbox rows", filter);
    for (name, to) in [("to topic", &how.topic), ("for consumer", &how.consumer)] {
        if let Some(to) = to {
            words.push_str(&format!(", {name} {to}"));
        }
    }
    words
}
