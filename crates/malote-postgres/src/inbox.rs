//! The inbox: which events a consumer has handled.

use crate::{Tx, store::Inner};
use chrono::NaiveDate;
use malote_core::{Admission, StoreError, planted};
use sqlx::{Row, postgres::PgRow};
use std::collections::{BTreeSet, HashSet};
use uuid::Uuid;

impl Inner {
    pub(crate) async fn admit(
        &self,
        tx: &mut Tx,
        consumer: &str,
        events: &[Admission],
    ) -> Result<Vec<bool>, StoreError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, days) = sorted(events);
        let rows = self.sql.admit.query().bind(consumer).bind(ids).bind(days).fetch_all(&mut **tx).await;
        let admitted = rows.and_then(|rows| rows.iter().map(admission).collect::<Result<HashSet<_>, _>>());
        let mut admitted = admitted
            .map_err(|error| self.failed(format!("admitting {} events for {consumer}", events.len()), error))?;
        // of an event that came twice in one batch, the first is new
        Ok(events.iter().map(|event| admitted.remove(event)).collect())
    }

    pub(crate) async fn seen(&self, consumer: &str, events: &[Admission]) -> Result<Vec<bool>, StoreError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let ask = async {
            let (ids, days) = sorted(events);
            let mut session = self.session().await?;
            let rows = self.sql.seen.query().bind(consumer).bind(ids).bind(days).fetch_all(&mut *session).await?;
            session.done().await?;
            rows.iter().map(admission).collect::<Result<HashSet<_>, sqlx::Error>>()
        };
        let seen = ask.await.map_err(|error| {
            self.failed(format!("asking which of {} events {consumer} has handled", events.len()), error)
        })?;
        Ok(events.iter().map(|event| seen.contains(event)).collect())
    }
}

/// Each event once, in one order for all: two transactions that admit the same events then wait for
/// each other in one direction only.
fn sorted(events: &[Admission]) -> (Vec<Uuid>, Vec<NaiveDate>) {
    if planted::is("admit-unsorted") {
        return events.iter().map(|event| (event.event_id, event.day)).unzip();
    }
    let once: BTreeSet<&Admission> = events.iter().collect();
    once.into_iter().map(|event| (event.event_id, event.day)).unzip()
}

fn admission(row: &PgRow) -> Result<Admission, sqlx::Error> {
    Ok(Admission { event_id: row.try_get("event_id")?, day: row.try_get("day")? })
}
