//! What acts have in common, and the small ones: trying again now, and erasing.

use super::filtered;
use crate::{
    lane,
    record::{self, text},
    store::Inner,
};
use chrono::{DateTime, Utc};
use malote_core::{
    Admission, Envelope, History, RawRecord,
    inspect::{Act, Acted, Filter},
    wire,
};
use sqlx::{PgConnection, Postgres as Db, Row, Transaction, postgres::PgRow};
use uuid::Uuid;

/// Most letters, messages or rows of one act that is not bounded otherwise.
pub(super) const MOST: u32 = 1_000_000;

/// A dead letter that is being acted upon.
pub(super) struct Letter {
    pub(super) id: i64,
    pub(super) by: String,
    pub(super) what: String,
    pub(super) topic: String,
    /// The lane that it is counted in.
    pub(super) key: Option<String>,
    pub(super) reason: String,
    pub(super) history: History,
    pub(super) passed_before: i64,
    pub(super) holds_key: bool,
    pub(super) now: DateTime<Utc>,
    pub(super) record: RawRecord,
    admission: Option<Admission>,
}

impl Letter {
    fn read(id: i64, row: &PgRow) -> Result<Self, sqlx::Error> {
        let event = row.try_get::<Option<_>, _>("event_id")?.zip(row.try_get::<Option<_>, _>("day")?);
        Ok(Self {
            id,
            by: row.try_get("by")?,
            what: row.try_get("what")?,
            topic: row.try_get("topic")?,
            key: row.try_get("key")?,
            reason: row.try_get("reason")?,
            history: History::from_json(row.try_get("history")?),
            passed_before: row.try_get("passed_before")?,
            holds_key: row.try_get("holds_key")?,
            now: row.try_get("now")?,
            record: record::read(row)?,
            admission: event.map(|(event_id, day)| Admission { event_id, day }),
        })
    }

    pub(super) fn consumer(&self) -> Option<&str> {
        self.by.strip_prefix("consumer ")
    }

    /// The envelope, where the record can be read as one.
    pub(super) fn envelope(&self) -> Option<Envelope> {
        wire::decode(&self.topic, &self.record).ok()
    }

    /// What the inbox knows it by; the version before this one did not keep the day.
    pub(super) fn admission(&self) -> Option<Admission> {
        self.admission.or_else(|| self.envelope().as_ref().map(Admission::of))
    }

    /// Nothing is left of it.
    pub(super) fn is_erased(&self) -> bool {
        self.record.payload.is_none() && self.record.key.is_none() && self.record.headers.is_empty()
    }

    pub(super) fn target(&self) -> String {
        format!("dead letter {} ({}, {})", self.id, self.by, self.what)
    }
}

impl Inner {
    pub(super) async fn letter(&self, connection: &mut PgConnection, id: i64) -> Result<Option<Letter>, sqlx::Error> {
        let row = self.sql.lock_dead.query().bind(id).fetch_optional(connection).await?;
        row.map(|row| Letter::read(id, &row)).transpose()
    }

    pub(crate) async fn note(
        &self,
        connection: &mut PgConnection,
        act: &Act,
        name: &str,
        target: &str,
        outcome: &str,
    ) -> Result<(), sqlx::Error> {
        let query = self.sql.audit.query().bind(text(&act.actor)).bind(name).bind(text(target));
        query.bind(text(&act.reason)).bind(text(outcome)).execute(connection).await.map(drop)
    }

    pub(super) async fn note_alone(
        &self,
        act: &Act,
        name: &str,
        target: &str,
        outcome: &str,
    ) -> Result<(), sqlx::Error> {
        let mut tx = self.begin().await?;
        self.note(&mut tx, act, name, target, outcome).await?;
        tx.commit().await
    }

    pub(super) async fn remove_dead(&self, connection: &mut PgConnection, id: i64) -> Result<(), sqlx::Error> {
        self.sql.remove_dead.query().bind(id).execute(connection).await.map(drop)
    }

    pub(super) async fn retry_now(&self, act: &Act, filter: &Filter, dry: bool) -> Result<Acted, sqlx::Error> {
        let mut tx = self.begin().await?;
        let rows = filtered(self.sql.list_parked.query(), filter, MOST).fetch_all(&mut *tx).await?;
        let numbers = rows.iter().map(|row| row.try_get("n")).collect::<Result<Vec<i64>, _>>()?;
        let done = self.sql.retry_now.query().bind(numbers).execute(&mut *tx).await?.rows_affected();
        let outcome = format!("the next attempt in {done} lanes is due now");
        self.note(&mut tx, act, "retry", &target("parked messages", filter), &outcome).await?;
        end(tx, dry).await?;
        Ok(Acted { done, refused: Vec::new() })
    }

    pub(super) async fn erase(&self, act: &Act, key: &str, dry: bool) -> Result<Acted, sqlx::Error> {
        let lane = lane::key(key);
        let mut tx = self.begin().await?;
        self.sql.erase_lanes.query().bind(&*lane).execute(&mut *tx).await?;
        let parked: i64 = self.sql.erase_parked.query().bind(&*lane).fetch_one(&mut *tx).await?.try_get("rows")?;
        let dead = self.sql.erase_dead.query().bind(&*lane).bind(text(key)).execute(&mut *tx).await?.rows_affected();
        self.sql.erase_end.query().bind(&*lane).execute(&mut *tx).await?;
        let outcome = format!("{dead} dead letters emptied, {parked} parked messages removed");
        self.note(&mut tx, act, "erase", &hidden(key), &outcome).await?;
        end(tx, dry).await?;
        Ok(Acted { done: dead + parked.max(0).cast_unsigned(), refused: Vec::new() })
    }
}

/// Ends an act; one that only says what it would do leaves nothing behind.
pub(super) async fn end(tx: Transaction<'static, Db>, dry: bool) -> Result<(), sqlx::Error> {
    if dry { tx.rollback().await } else { tx.commit().await }
}

/// A key in words that do not tell it: what people did is kept longer than what they erased.
fn hidden(key: &str) -> String {
    format!("key with the hash {}", Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()))
}

/// What an act was aimed at, in words.
pub(super) fn target(of: &str, filter: &Filter) -> String {
    let mut words = vec![of.to_owned()];
    let mut say = |name: &str, value: Option<String>| words.extend(value.map(|value| format!("{name} {value}")));
    say("numbers", filter.ids.as_ref().map(|ids| format!("{ids:.200?}")));
    say("by", filter.by.clone());
    say("type", filter.kind.clone());
    say("topic", filter.topic.clone());
    say("", filter.key.as_deref().map(hidden));
    say("class", filter.class.clone());
    say("event", filter.event.clone());
    say("since", filter.since.map(|at| at.to_rfc3339()));
    say("until", filter.until.map(|at| at.to_rfc3339()));
    say("that are pending", filter.pending.then(String::new));
    words.join(", ")
}
