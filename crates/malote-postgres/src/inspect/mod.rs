//! What operators ask of the store, and do with it. It works on the database alone.
//!
//! Looks are transactions that read along the indexes and end in bounded time. An act on a dead letter is
//! a transaction of its own, with its row of `audit`, or one for all letters of a lane: the next of them
//! must not look stale because the first was handled meanwhile.

mod act;
mod discard;
mod doctor;
mod doctor_tables;
mod list;
mod redrive;
mod replay;
mod saga;
mod status;

use crate::{
    Postgres, lane, migrate,
    record::text,
    store::{Inner, Session},
};
use malote_core::{
    Dead, StoreError,
    inspect::{
        Act, Acted, Asked, AuditRow, DeadRow, Filter, Finding, Inspect, OutboxRow, ParkedRow, Redrive, Replay,
        ScheduledRow, Status,
    },
    saga::{Deed, DeedOutcome, LogRow, OpenDeed, Outline, SagaFilter, SagaRow, Stored},
};
use sqlx::{Executor, Postgres as Db, Row, postgres::PgArguments, query::Query};
use uuid::Uuid;

impl Inspect for Postgres {
    fn tables(&self) -> Asked<'_, (i64, i64)> {
        Box::pin(async move {
            let version = self.told("looking for malote's tables", self.inner.version().await)?;
            Ok((version, migrate::KNOWN))
        })
    }
    fn status(&self) -> Asked<'_, Status> {
        Box::pin(async move { self.told("asking how everything stands", self.inner.status().await) })
    }
    fn outbox<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<OutboxRow>> {
        Box::pin(async move { self.told("listing the outbox", self.inner.list_outbox(filter, most).await) })
    }
    fn parked<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<ParkedRow>> {
        Box::pin(async move { self.told("listing parked messages", self.inner.list_parked(filter, most).await) })
    }
    fn dead<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<DeadRow>> {
        Box::pin(async move { self.told("listing dead letters", self.inner.list_dead(filter, most).await) })
    }
    fn dead_letter(&self, id: i64) -> Asked<'_, Option<(DeadRow, Dead)>> {
        Box::pin(async move { self.told("looking at a dead letter", self.inner.dead_letter(id).await) })
    }
    fn scheduled(&self, most: u32) -> Asked<'_, Vec<ScheduledRow>> {
        Box::pin(async move { self.told("listing what is scheduled", self.inner.list_scheduled(most).await) })
    }
    fn scheduled_of<'a>(&'a self, ids: &'a [Uuid]) -> Asked<'a, Vec<ScheduledRow>> {
        Box::pin(async move { self.told("looking for timers", self.inner.scheduled_of(ids).await) })
    }
    fn audit(&self, most: u32) -> Asked<'_, Vec<AuditRow>> {
        Box::pin(async move { self.told("listing acts", self.inner.list_audit(most).await) })
    }
    fn sagas<'a>(&'a self, filter: &'a SagaFilter, most: u32) -> Asked<'a, Vec<SagaRow>> {
        Box::pin(async move { self.told("listing sagas", self.inner.list_sagas(filter, most).await) })
    }
    fn saga_ids(&self, first: Uuid, last: Uuid, most: u32) -> Asked<'_, Vec<Uuid>> {
        Box::pin(async move { self.told("finding sagas", self.inner.find_sagas(first, last, most).await) })
    }
    fn saga(&self, id: Uuid) -> Asked<'_, Option<Stored>> {
        Box::pin(async move { self.told("reading a saga", self.inner.show_saga(id).await) })
    }
    fn saga_log(&self, id: Uuid) -> Asked<'_, Vec<LogRow>> {
        Box::pin(async move { self.told("reading the history of a saga", self.inner.list_saga_log(id).await) })
    }
    fn saga_definitions(&self) -> Asked<'_, Vec<Outline>> {
        Box::pin(async move { self.told("listing definitions of sagas", self.inner.list_saga_definitions().await) })
    }
    fn ask_deed<'a>(&'a self, act: &'a Act, saga: Uuid, deed: &'a Deed) -> Asked<'a, i64> {
        Box::pin(async move { self.inner.ask_deed(act, saga, deed).await })
    }
    fn open_deeds(&self, saga: Uuid) -> Asked<'_, Vec<OpenDeed>> {
        Box::pin(async move { self.told("listing acts on a saga", self.inner.list_open_acts(saga).await) })
    }
    fn deed_outcome(&self, id: i64) -> Asked<'_, Option<DeedOutcome>> {
        Box::pin(async move { self.told("asking what came of an act", self.inner.deed_outcome(id).await) })
    }
    fn doctor(&self) -> Asked<'_, Vec<Finding>> {
        Box::pin(async move { Ok(self.inner.doctor().await) })
    }
    fn redrive<'a>(&'a self, act: &'a Act, filter: &'a Filter, how: Redrive) -> Asked<'a, Acted> {
        Box::pin(async move {
            act.check("redriving dead letters")?;
            self.inner.redrive(act, filter, how).await
        })
    }
    fn discard<'a>(&'a self, act: &'a Act, filter: &'a Filter, dry: bool) -> Asked<'a, Acted> {
        Box::pin(async move {
            let doing = "discarding dead letters";
            act.check(doing)?;
            self.told(doing, self.inner.discard(act, filter, dry).await)
        })
    }
    fn retry_now<'a>(&'a self, act: &'a Act, filter: &'a Filter, dry: bool) -> Asked<'a, Acted> {
        Box::pin(async move {
            let doing = "making parked messages due";
            act.check(doing)?;
            self.told(doing, self.inner.retry_now(act, filter, dry).await)
        })
    }
    fn replay<'a>(&'a self, act: &'a Act, filter: &'a Filter, how: Replay) -> Asked<'a, Acted> {
        Box::pin(async move {
            act.check("sending rows of the outbox again")?;
            self.inner.replay(act, filter, how).await
        })
    }
    fn erase<'a>(&'a self, act: &'a Act, key: &'a str, dry: bool) -> Asked<'a, Acted> {
        Box::pin(async move {
            let doing = "erasing a key";
            act.check(doing)?;
            self.told(doing, self.inner.erase(act, key, dry).await)
        })
    }
    fn note<'a>(&'a self, act: &'a Act, name: &'a str, target: &'a str, outcome: &'a str) -> Asked<'a, ()> {
        Box::pin(async move {
            let doing = "writing an act down";
            act.check(doing)?;
            self.told(doing, self.inner.note_alone(act, name, target, outcome).await)
        })
    }
}

impl Postgres {
    fn told<T>(&self, doing: &str, asked: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        asked.map_err(|error| self.inner.failed(doing, error))
    }
}

impl Inner {
    /// The version of the tables; 0 where there are none.
    async fn version(&self) -> Result<i64, sqlx::Error> {
        let mut session = self.session().await?;
        let asked = self.sql.doctor_version.query().fetch_one(&mut *session).await;
        let code = |error: &sqlx::Error| error.as_database_error().and_then(|e| e.code()).map(Into::<String>::into);
        match asked {
            Err(error) if matches!(code(&error).as_deref(), Some("42P01" | "3F000")) => Ok(0),
            Err(error) => Err(error),
            Ok(row) => {
                session.done().await?;
                row.try_get("version")
            }
        }
    }

    /// A transaction to look around in.
    async fn look_around(&self) -> Result<Session, sqlx::Error> {
        let mut tx = self.begin().await?;
        tx.execute(self.sql.look.text()).await?;
        Ok(Session::Within(tx))
    }
}

type Asking<'q> = Query<'q, Db, PgArguments>;

/// Binds a filter as $1 to $9, and the most rows as $10.
fn filtered<'q>(query: Asking<'q>, filter: &'q Filter, most: u32) -> Asking<'q> {
    let words = |word: &'q Option<String>| word.as_deref().map(text);
    query
        .bind(filter.ids.as_deref())
        .bind(words(&filter.by))
        .bind(words(&filter.kind))
        .bind(words(&filter.topic))
        .bind(filter.key.as_deref().map(|key| lane::key(key).into_owned()))
        .bind(words(&filter.class))
        .bind(words(&filter.event))
        .bind(filter.since)
        .bind(filter.until)
        .bind(i64::from(most))
}
