//! The end of an attempt at the head of a lane.
//!
//! ```text
//!   fence + take the head out ──▶ is there another? ──yes──▶ it is the head
//!        │ again: put off                │ no
//!        ▼                               ▼
//!      rest               lock the lane, look again ──none──▶ the lane goes
//! ```
//!
//! The lane is locked against those who put something behind only when it looks empty, and looked at
//! again in a snapshot that is younger than the lock.

use crate::{
    Tx, lane,
    parked::{count, history, parked},
    store::{Inner, micros},
};
use malote_core::{Dead, Ending, Failed, Parked, Settled, StoreError, cut_reason, planted};
use sqlx::Row;

/// What there is to be done in a lane after its head has gone.
enum Looked {
    Head(Settled),
    Nothing,
}

impl Inner {
    pub(crate) async fn settle(&self, tx: &mut Tx, head: &Parked, ending: &Ending) -> Result<Settled, StoreError> {
        let doing = || format!("settling a message of {}", head.consumer);
        let failed = |error| self.failed(doing(), error);
        match ending {
            Ending::Done => {
                if !self.take_out(tx, head, "done").await.map_err(failed)? {
                    return Ok(Settled::Fenced);
                }
                self.go_on(tx, head).await.map_err(failed)
            }
            Ending::Again(again) => self.put_off(tx, head, again).await.map_err(failed),
            Ending::Dead { dead, hold } => {
                if !self.take_out(tx, head, "dead").await.map_err(failed)? {
                    return Ok(Settled::Fenced);
                }
                self.bury(tx, head, dead, *hold).await?;
                if *hold {
                    let held = self.sql.settle_hold.query().bind(&head.consumer).bind(&head.lane.topic);
                    held.bind(&head.lane.key).execute(&mut **tx).await.map_err(failed)?;
                    return Ok(Settled::Rest);
                }
                self.go_on(tx, head).await.map_err(failed)
            }
        }
    }

    /// False when the lane is somebody else's by now.
    async fn take_out(&self, tx: &mut Tx, head: &Parked, state: &str) -> Result<bool, sqlx::Error> {
        let query = self.sql.settle_gone.query().bind(&head.consumer).bind(&head.lane.topic).bind(&head.lane.key);
        let gone = query.bind(head.epoch).bind(head.n).bind(state).fetch_optional(&mut **tx).await?;
        Ok(gone.is_some())
    }

    async fn put_off(&self, tx: &mut Tx, head: &Parked, again: &Failed) -> Result<Settled, sqlx::Error> {
        let query = self.sql.settle_again.query().bind(&head.consumer).bind(&head.lane.topic).bind(&head.lane.key);
        let query = query.bind(head.epoch).bind(head.n).bind(micros(again.wait)).bind(count(again.attempts));
        let query = query.bind(again.class.as_str()).bind(cut_reason(&again.error)).bind(history(again));
        let done = query.execute(&mut **tx).await?;
        Ok(if done.rows_affected() == 1 { Settled::Rest } else { Settled::Fenced })
    }

    /// The dead letter is its lane's, whatever the record says of its key.
    async fn bury(&self, tx: &mut Tx, head: &Parked, dead: &Dead, hold: bool) -> Result<(), StoreError> {
        let key = dead.key.clone().filter(|key| lane::key(key) == head.lane.key);
        let dead =
            Dead { key: key.or_else(|| Some(head.lane.key.clone())), topic: head.lane.topic.clone(), ..dead.clone() };
        self.lay_aside(tx, &dead, hold).await
    }

    async fn go_on(&self, tx: &mut Tx, head: &Parked) -> Result<Settled, sqlx::Error> {
        if let Looked::Head(settled) = self.look(tx, head).await? {
            return Ok(settled);
        }
        let lane = |query| bind_lane(query, head);
        if !planted::is("lane-goes-with-head") {
            lane(self.sql.settle_lock.query()).execute(&mut **tx).await?;
            if let Looked::Head(settled) = self.look(tx, head).await? {
                return Ok(settled);
            }
        }
        lane(self.sql.settle_end.query()).execute(&mut **tx).await?;
        Ok(Settled::Rest)
    }

    async fn look(&self, tx: &mut Tx, head: &Parked) -> Result<Looked, sqlx::Error> {
        let query = bind_lane(self.sql.settle_next.query(), head).bind(micros(head.holds));
        let Some(row) = query.fetch_optional(&mut **tx).await? else { return Ok(Looked::Nothing) };
        if row.try_get::<Option<i32>, _>("attempts")?.is_none() {
            return Ok(Looked::Head(Settled::Rest));
        }
        Ok(Looked::Head(Settled::Next(Box::new(parked(&row, &head.consumer, head.holds)?))))
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn bind_lane<'q>(query: Query<'q>, head: &'q Parked) -> Query<'q> {
    query.bind(&head.consumer).bind(&head.lane.topic).bind(&head.lane.key)
}
