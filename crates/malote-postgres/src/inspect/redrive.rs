//! Dead letters that are put back.

use super::{
    act::{Letter, MOST, end},
    filtered,
};
use crate::{Problem, lane, store::Inner};
use malote_core::{
    History, Setback, StoreError,
    inspect::{Act, Acted, Filter, Redrive, Refused},
    planted,
};
use sqlx::{PgConnection, Row, postgres::PgRow};
use std::{collections::HashMap, sync::Arc};

/// What became of a letter.
enum Came {
    /// It waits in its lane; true if nothing waited there before.
    Parked(bool),
    /// It is in the outbox again.
    Sent,
    Refused(Refused),
}

impl Inner {
    pub(super) async fn redrive(
        self: &Arc<Self>,
        act: &Act,
        filter: &Filter,
        how: Redrive,
    ) -> Result<Acted, StoreError> {
        let doing = "redriving dead letters";
        let mut acted = Acted::default();
        let (mut lanes, mut sent) = (0, false);
        for group in self.by_lane(filter).await.map_err(|error| self.failed(doing, error))? {
            let mut tx = self.begin().await.map_err(|error| self.failed(doing, error))?;
            // the letters of a lane become due together
            let delay = if how.per_second == 0 { 0.0 } else { f64::from(lanes) * 1e6 / f64::from(how.per_second) };
            let mut opened = false;
            for id in group {
                match self.put_back(&mut tx, act, id, how, delay).await? {
                    None => {}
                    Some(Came::Refused(refused)) => acted.refused.push(refused),
                    Some(Came::Parked(new)) => {
                        acted.done += 1;
                        opened |= new;
                    }
                    Some(Came::Sent) => {
                        acted.done += 1;
                        sent = true;
                    }
                }
            }
            lanes += u32::from(opened);
            end(tx, how.dry).await.map_err(|error| self.failed(doing, error))?;
        }
        if sent && !how.dry {
            self.wake.appended(self);
        }
        Ok(acted)
    }

    /// The letters' numbers in the order in which they were given up, those of one lane together.
    async fn by_lane(&self, filter: &Filter) -> Result<Vec<Vec<i64>>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = filtered(self.sql.list_dead.query(), filter, MOST).fetch_all(&mut *session).await?;
        session.done().await?;
        let (mut groups, mut known) = (Vec::<Vec<i64>>::new(), HashMap::new());
        for row in &rows {
            let id: i64 = row.try_get("id")?;
            let Some(key) = row.try_get::<Option<String>, _>("key")? else {
                groups.push(vec![id]);
                continue;
            };
            let lane: (String, String, String) = (row.try_get("by")?, row.try_get("topic")?, key);
            let at = *known.entry(lane).or_insert(groups.len());
            if at == groups.len() {
                groups.push(Vec::new());
            }
            groups[at].push(id);
        }
        Ok(groups)
    }

    /// `None` when somebody else has acted upon it meanwhile.
    async fn put_back(
        &self,
        connection: &mut PgConnection,
        act: &Act,
        id: i64,
        how: Redrive,
        delay: f64,
    ) -> Result<Option<Came>, StoreError> {
        let failed = |error| self.failed(format!("redriving dead letter {id}"), error);
        let Some(letter) = self.letter(connection, id).await.map_err(failed)? else { return Ok(None) };
        let came = if letter.is_erased() && letter.consumer().is_some() {
            refused(&letter, "its record was erased, so there is nothing to handle: discard it")
        } else if let Some(consumer) = letter.consumer() {
            self.park_again(connection, act, &letter, consumer, how, delay).await.map_err(failed)?
        } else {
            self.send_again(connection, &letter).await?
        };
        let outcome = match &came {
            Came::Parked(_) => "parked",
            Came::Sent => "sent again",
            Came::Refused(refused) => {
                if refused.stale {
                    "stale"
                } else {
                    &refused.why
                }
            }
        };
        self.note(connection, act, "redrive", &letter.target(), outcome).await.map_err(failed)?;
        Ok(Some(came))
    }

    async fn park_again(
        &self,
        connection: &mut PgConnection,
        act: &Act,
        letter: &Letter,
        consumer: &str,
        how: Redrive,
        delay: f64,
    ) -> Result<Came, sqlx::Error> {
        let own = || letter.envelope().map_or_else(|| letter.what.clone(), |envelope| envelope.key);
        let key = letter.key.clone().unwrap_or_else(|| lane::key(&own()).into_owned());
        let row = self.lock_lane(connection, consumer, &letter.topic, &key).await?;
        let newer = row.try_get::<i64, _>("passed")? - letter.passed_before;
        if letter.key.is_some() && newer > 0 && !how.although_newer && !planted::is("redrive-unchecked") {
            return Ok(Came::Refused(Refused::stale(letter.id, newer.unsigned_abs())));
        }
        let mut history = if planted::is("redrive-forgets") { History::default() } else { letter.history.clone() };
        history.push(Setback::act(letter.now, "redriven", &format!("{}: {}", act.actor, act.reason)));
        let admission = letter.admission();
        let parked = self.sql.redrive.query().bind(letter.id).bind(consumer).bind(&key);
        let parked = parked.bind(history.to_json()).bind(admission.map(|event| event.day));
        if parked.execute(&mut *connection).await?.rows_affected() == 0 {
            return Ok(refused(letter, "it is parked already"));
        }
        if let Some(event) = admission {
            let seen = self.sql.redrive_inbox.query().bind(consumer).bind(event.event_id).bind(event.day);
            seen.execute(&mut *connection).await?;
        }
        let lane = self.sql.redrive_lane.query().bind(consumer).bind(&letter.topic).bind(&key);
        let lane = lane.bind(i32::from(letter.key.is_some())).bind(letter.holds_key).bind(delay);
        lane.execute(&mut *connection).await?;
        self.remove_dead(connection, letter.id).await?;
        Ok(Came::Parked(!row.try_get::<bool, _>("waits")?))
    }

    /// A lane that goes in this very instant is made anew.
    async fn lock_lane(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
        topic: &str,
        key: &str,
    ) -> Result<PgRow, sqlx::Error> {
        loop {
            for statement in [&self.sql.make_lane, &self.sql.lock_lane] {
                let query = statement.query().bind(consumer).bind(topic).bind(key);
                if let Some(row) = query.fetch_optional(&mut *connection).await? {
                    return Ok(row);
                }
            }
        }
    }

    /// A letter of a relay goes to the outbox again, under its own id.
    async fn send_again(&self, connection: &mut PgConnection, letter: &Letter) -> Result<Came, StoreError> {
        let Some(envelope) = letter.envelope() else {
            let why = format!(
                "it cannot be read ({}): mend the row by hand and publish it anew, or discard this",
                letter.reason
            );
            return Ok(refused(letter, &why));
        };
        if let Err(unfit) = envelope.check() {
            return Ok(refused(letter, &Problem::from(unfit).to_string()));
        }
        self.append(connection, &[envelope]).await?;
        let removed = self.remove_dead(connection, letter.id).await;
        removed.map_err(|error| self.failed("removing a dead letter that was sent again", error))?;
        Ok(Came::Sent)
    }
}

fn refused(letter: &Letter, why: &str) -> Came {
    Came::Refused(Refused { id: letter.id, why: why.to_owned(), stale: false })
}
