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
//! again in a snapshot that is younger than the lock. Somebody who is about to put something there is not
//! waited for: what the attempt has changed stays locked meanwhile, and they may be waiting for just that.
//! Then the lane stays as it is for a moment, and a claim ends it.

use crate::{
    Tx, lane,
    parked::{SOON, columns, count, history, parked},
    store::{Inner, micros},
};
use malote_core::{Dead, Ending, Failed, Parked, Settled, StoreError, cut_reason, planted};
use sqlx::{PgConnection, Row};

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
        if let Some(settled) = self.look(tx, head).await? {
            return Ok(settled);
        }
        self.end_empty(tx, &head.consumer, vec![(head.lane.topic.clone(), head.lane.key.clone())]).await?;
        Ok(Settled::Rest)
    }

    /// Ends lanes that look empty, those of which nobody is at it; the others are due a little later.
    pub(crate) async fn end_empty(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
        lanes: Vec<(String, String)>,
    ) -> Result<(), sqlx::Error> {
        let (topics, keys): (Vec<String>, Vec<String>) = lanes.into_iter().unzip();
        let locked = match planted::is("lane-goes-with-head") {
            true => (topics.clone(), keys.clone()),
            false => {
                let lock = self.sql.lock_empty.query().bind(consumer).bind(&topics).bind(&keys);
                columns(&lock.fetch_all(&mut *connection).await?)?
            }
        };
        if locked.0.len() < topics.len() {
            let put_off = self.sql.put_off_empty.query().bind(consumer).bind(topics).bind(keys).bind(micros(SOON));
            put_off.execute(&mut *connection).await?;
        }
        if !locked.0.is_empty() {
            let end = self.sql.end_empty.query().bind(consumer).bind(locked.0).bind(locked.1);
            end.execute(&mut *connection).await?;
        }
        Ok(())
    }

    /// What is to be done in a lane after its head has gone; nothing when it looks empty.
    async fn look(&self, tx: &mut Tx, head: &Parked) -> Result<Option<Settled>, sqlx::Error> {
        let query = self.sql.settle_next.query().bind(&head.consumer).bind(&head.lane.topic).bind(&head.lane.key);
        let Some(row) = query.bind(micros(head.holds)).fetch_optional(&mut **tx).await? else { return Ok(None) };
        if row.try_get::<Option<i32>, _>("attempts")?.is_none() {
            return Ok(Some(Settled::Rest));
        }
        Ok(Some(Settled::Next(Box::new(parked(&row, &head.consumer, head.holds)?))))
    }
}
