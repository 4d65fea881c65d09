//! Messages that wait: parked, and claimed when their lane is due.
//!
//! A claim is one transaction of four short statements: fill the consumer's bucket, which makes its
//! claimers take turns; lock lanes that are due; claim their heads, in a snapshot that is younger than
//! the locks; look when it is worth asking again.

use crate::{
    Postgres, Tx, lane, record,
    record::text,
    store::{Inner, micros},
};
use malote_core::{
    Admission, ClaimDue, Class, Due, Ending, Failed, History, Incarnation, Lane, LaneState, Parked, ParkingStore,
    Settled, StoreError, ToPark, cut_reason, planted,
};
use sqlx::{PgConnection, Row, postgres::PgRow};
use std::{borrow::Cow, collections::BTreeMap, time::Duration};

/// Lanes that are looked at for one that needs no token, when there is none.
const LOOKED_AT: i64 = 2_000;
/// Until somebody who is at a lane that is due has got on with it.
pub(crate) const SOON: Duration = Duration::from_millis(100);

impl ParkingStore for Postgres {
    async fn lanes(&self, tx: &mut Tx, consumer: &str, lanes: &[Lane]) -> Result<Vec<LaneState>, StoreError> {
        self.inner.lanes(tx, consumer, lanes).await
    }

    async fn lock_lanes(&self, tx: &mut Tx, consumer: &str, lanes: &[Lane]) -> Result<(), StoreError> {
        self.inner.lock_lanes(tx, consumer, lanes).await
    }

    async fn park(&self, tx: &mut Tx, consumer: &str, letters: &[ToPark]) -> Result<(), StoreError> {
        let parked = self.inner.park(tx, consumer, letters).await;
        parked.map_err(|error| self.inner.failed(format!("parking {} messages of {consumer}", letters.len()), error))
    }

    async fn pass(&self, tx: &mut Tx, consumer: &str, lanes: &[Lane]) -> Result<(), StoreError> {
        self.inner.pass(tx, consumer, lanes).await
    }

    async fn claim_due(&self, consumer: &str, ask: &ClaimDue) -> Result<Due, StoreError> {
        let claimed = self.inner.claim_due(consumer, ask).await;
        claimed.map_err(|error| self.inner.failed(format!("claiming what is due of {consumer}"), error))
    }

    async fn settle(&self, tx: &mut Tx, head: &Parked, ending: &Ending) -> Result<Settled, StoreError> {
        self.inner.settle(tx, head, ending).await
    }

    async fn take_custody(
        &self,
        consumer: &str,
        who: Incarnation,
        partitions: &[(String, i32)],
    ) -> Result<Vec<bool>, StoreError> {
        self.inner.take_custody(consumer, who, partitions).await
    }

    async fn give_back(&self, consumer: &str, who: Incarnation) -> Result<(), StoreError> {
        self.inner.give_back(consumer, who).await
    }

    async fn runs(&self, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
        self.inner.runs(consumer, what).await
    }

    async fn runs_begin(&self, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
        self.inner.runs_begin(consumer, what).await
    }

    async fn runs_ended(&self, tx: &mut Tx, consumer: &str, what: &[String]) -> Result<(), StoreError> {
        self.inner.runs_ended(tx, consumer, what).await
    }
}

impl Inner {
    async fn park(&self, tx: &mut Tx, consumer: &str, letters: &[ToPark]) -> Result<(), sqlx::Error> {
        if letters.is_empty() {
            return Ok(());
        }
        self.make_lanes(tx, consumer, letters).await?;
        let topics: Vec<String> = letters.iter().map(|l| text(&l.lane.topic)).collect();
        let keys: Vec<Cow<'_, str>> = letters.iter().map(|l| lane::key(&l.lane.key)).collect();
        let failed = || letters.iter().map(|l| l.setback.as_ref());
        let (first, last) = spans(letters);
        let query = self.sql.park.query().bind(consumer).bind(topics);
        let query = query.bind(keys.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
        let query = query.bind(letters.iter().map(|l| text(&l.what)).collect::<Vec<_>>());
        let query = query.bind(letters.iter().map(|l| l.admission.map(|a| a.event_id)).collect::<Vec<_>>());
        let query = query.bind(letters.iter().map(|l| l.admission.map(|a| a.day)).collect::<Vec<_>>());
        let query = query.bind(letters.iter().map(|l| l.kind.as_deref().map(text)).collect::<Vec<_>>());
        let query = query.bind(failed().map(|f| f.map_or(0, |f| count(f.attempts))).collect::<Vec<_>>());
        let query = query.bind(failed().map(|f| f.map(|f| f.class.as_str())).collect::<Vec<_>>());
        let query = query.bind(failed().map(|f| f.map(|f| cut_reason(&f.error))).collect::<Vec<_>>());
        let query = query.bind(failed().map(|f| f.map_or_else(|| "[]".into(), history)).collect::<Vec<_>>());
        let query = query.bind(letters.iter().map(|l| l.record.key.as_deref()).collect::<Vec<_>>());
        let query = query.bind(letters.iter().map(|l| l.record.payload.as_deref()).collect::<Vec<_>>());
        let query = query.bind(first).bind(last);
        let query = query.bind(letters.iter().flat_map(|l| record::names(&l.record)).collect::<Vec<_>>());
        let query = query.bind(letters.iter().flat_map(|l| record::values(&l.record)).collect::<Vec<_>>());
        query.execute(&mut **tx).await?;
        let events: Vec<Admission> = letters.iter().filter_map(|l| l.admission).collect();
        self.mark_inbox(tx, consumer, &events, "parked").await
    }

    /// Lanes that are new are due when their first letter is; a head makes its lane due where nothing waits.
    async fn make_lanes(&self, tx: &mut Tx, consumer: &str, letters: &[ToPark]) -> Result<(), sqlx::Error> {
        let mut lanes = BTreeMap::new();
        for letter in letters {
            let wait = letter.setback.as_ref().map_or(0.0, |failed| micros(failed.wait));
            let lane = (text(&letter.lane.topic), lane::key(&letter.lane.key).into_owned());
            lanes.entry(lane).or_insert((wait, letter.setback.is_some()));
        }
        for (statement, heads) in [(&self.sql.park_lane, false), (&self.sql.park_head, true)] {
            let chosen = || lanes.iter().filter(|(_, (_, head))| *head || !heads);
            let (topics, keys): (Vec<&str>, Vec<&str>) =
                chosen().map(|((topic, key), _)| (topic.as_str(), key.as_str())).unzip();
            if topics.is_empty() {
                continue;
            }
            let waits: Vec<f64> = chosen().map(|(_, (wait, _))| *wait).collect();
            statement.query().bind(consumer).bind(topics).bind(keys).bind(waits).execute(&mut **tx).await?;
        }
        Ok(())
    }

    async fn claim_due(&self, consumer: &str, ask: &ClaimDue) -> Result<Due, sqlx::Error> {
        let mut session = self.session().await?;
        let (overdue, next) = self.due(&mut session, consumer).await?;
        session.done().await?;
        if !overdue || ask.most == 0 {
            return Ok(Due { heads: Vec::new(), next: if overdue { Some(Duration::ZERO) } else { next } });
        }
        let mut tx = self.begin().await?;
        let budget = self.sql.claim_budget.query().bind(consumer);
        let budget = budget.bind(ask.budget.per_second).bind(ask.budget.burst).fetch_one(&mut *tx).await?;
        let tokens: f64 = budget.try_get("tokens")?;
        let heads = self.claim_heads(&mut tx, consumer, ask, tokens).await?;
        let (overdue, next) = self.due(&mut tx, consumer).await?;
        tx.commit().await?;
        let full = heads.len() >= usize::try_from(ask.most).unwrap_or(usize::MAX);
        let next = if !overdue {
            next
        } else if full {
            Some(Duration::ZERO)
        } else {
            // somebody is at it, or the tokens are used up
            let token = Duration::try_from_secs_f64(1.0 / ask.budget.per_second).unwrap_or(Duration::from_secs(1));
            Some(token.clamp(Duration::from_millis(1), SOON.max(token.min(Duration::from_secs(1)))))
        };
        Ok(Due { heads, next })
    }

    /// Whether a lane is due, and how long until the next one is.
    async fn due(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
    ) -> Result<(bool, Option<Duration>), sqlx::Error> {
        let row = self.sql.due.query().bind(consumer).fetch_one(connection).await?;
        let next = row.try_get::<Option<i64>, _>("next")?;
        Ok((row.try_get("overdue")?, next.map(|next| Duration::from_micros(next.max(0).cast_unsigned()))))
    }

    async fn claim_heads(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
        ask: &ClaimDue,
        tokens: f64,
    ) -> Result<Vec<Parked>, sqlx::Error> {
        let lanes = self.sql.claim_due.query().bind(consumer).bind(i64::from(ask.most)).bind(tokens >= 1.0);
        let lanes = lanes.bind(LOOKED_AT.max(i64::from(ask.most))).fetch_all(&mut *connection).await?;
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let mut empty = Vec::new();
        for row in &lanes {
            if row.try_get("empty")? {
                empty.push((row.try_get("topic")?, row.try_get("key")?));
            }
        }
        if !empty.is_empty() && !planted::is("empty-lane-stays") {
            self.end_empty(&mut *connection, consumer, empty).await?;
        }
        let (topics, keys) = columns(&lanes)?;
        let query = self.sql.claim_heads.query().bind(consumer).bind(topics).bind(keys);
        // rounded down: a part of a token is none
        let query = query.bind(tokens.max(0.0).floor() as i64).bind(micros(ask.holds));
        let rows = query.fetch_all(connection).await?;
        rows.iter().map(|row| parked(row, consumer, ask.holds)).collect()
    }
}

/// The lanes of rows, as two columns.
pub(crate) fn columns(rows: &[PgRow]) -> Result<(Vec<String>, Vec<String>), sqlx::Error> {
    let column = |name: &str| rows.iter().map(|row| row.try_get(name)).collect::<Result<Vec<String>, _>>();
    Ok((column("topic")?, column("key")?))
}

/// Where each letter's headers begin and end in the flat arrays, from 1, both included.
fn spans(letters: &[ToPark]) -> (Vec<i32>, Vec<i32>) {
    let mut end = 0;
    let span = |letter: &ToPark| {
        let first = end + 1;
        end += i32::try_from(letter.record.headers.len()).unwrap_or(0);
        (first, end)
    };
    letters.iter().map(span).unzip()
}

pub(crate) fn count(attempts: u32) -> i32 {
    attempts.try_into().unwrap_or(i32::MAX)
}

pub(crate) fn history(failed: &Failed) -> String {
    failed.history.to_json()
}

/// A claimed head.
pub(crate) fn parked(row: &PgRow, consumer: &str, holds: Duration) -> Result<Parked, sqlx::Error> {
    let event = row.try_get::<Option<_>, _>("event_id")?.zip(row.try_get::<Option<_>, _>("day")?);
    Ok(Parked {
        lane: Lane { topic: row.try_get("topic")?, key: row.try_get("key")? },
        consumer: consumer.to_owned(),
        n: row.try_get("n")?,
        epoch: row.try_get("epoch")?,
        holds,
        what: row.try_get("what")?,
        admission: event.map(|(event_id, day)| Admission { event_id, day }),
        attempts: row.try_get::<i32, _>("attempts")?.max(0).cast_unsigned(),
        age: Duration::from_micros(row.try_get::<i64, _>("age")?.max(0).cast_unsigned()),
        history: History::from_json(row.try_get("history")?),
        record: record::read(row)?,
    })
}

/// The class of a row, by its name.
pub(crate) fn class(name: &str) -> Class {
    name.parse().unwrap_or(Class::Final)
}
