//! The relay's lease and cursor: one row, and each change of it carries incarnation and epoch.

use crate::{
    outbox::bounds,
    store::{Inner, micros},
};
use malote_core::{Incarnation, Lease, Saved, StoreError, Taken, relay::Cursor};
use sqlx::{Row, postgres::PgRow};
use std::time::Duration;

impl Inner {
    pub(crate) async fn take_lease(&self, name: &str, who: Incarnation, lasts: Duration) -> Result<Taken, StoreError> {
        let taken = self.ask_lease(name, who, lasts).await;
        let taken = taken.map_err(|error| self.failed(format!("taking the lease of relay {name}"), error))?;
        self.wake.leads(matches!(taken, Taken::Mine { .. }).then_some(lasts));
        Ok(taken)
    }

    async fn ask_lease(&self, name: &str, who: Incarnation, lasts: Duration) -> Result<Taken, sqlx::Error> {
        loop {
            let mut session = self.relay_session().await?;
            let ask = self.sql.take_lease.query().bind(name).bind(who.0).bind(micros(lasts));
            if let Some(row) = ask.fetch_optional(&mut *session).await? {
                session.done().await?;
                return answer(&row, name, who, lasts);
            }
            self.sql.make_relay.query().bind(name).execute(&mut *session).await?;
            session.done().await?;
        }
    }

    pub(crate) async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.wake.leads(None);
        let release = async {
            let mut session = self.relay_session().await?;
            let query = self.sql.release_lease.query().bind(&lease.name).bind(lease.who.0).bind(lease.epoch);
            query.execute(&mut *session).await?;
            session.done().await
        };
        release.await.map_err(|error| self.failed(format!("releasing the lease of relay {}", lease.name), error))
    }

    pub(crate) async fn save(&self, lease: &Lease, cursor: &Cursor, lasts: Duration) -> Result<Saved, StoreError> {
        let saved = self.store_cursor(lease, cursor, lasts).await;
        let saved = saved.map_err(|error| self.failed(format!("storing the cursor of relay {}", lease.name), error))?;
        self.wake.leads(matches!(saved, Saved::Kept { .. }).then_some(lasts));
        Ok(saved)
    }

    async fn store_cursor(&self, lease: &Lease, cursor: &Cursor, lasts: Duration) -> Result<Saved, sqlx::Error> {
        let (first, last) = bounds(&cursor.gaps);
        let mut session = self.relay_session().await?;
        let query = self.sql.save.query().bind(&lease.name).bind(lease.who.0).bind(lease.epoch);
        let query = query.bind(cursor.high).bind(first).bind(last).bind(micros(lasts));
        let kept = query.fetch_optional(&mut *session).await?;
        session.done().await?;
        Ok(match kept {
            Some(row) => {
                let bound = row.try_get::<i64, _>("bound")?.cast_unsigned();
                #[cfg(feature = "planted")]
                let bound = crate::planted::bound(bound);
                Saved::Kept { bound }
            }
            None => Saved::Fenced,
        })
    }

    pub(crate) async fn gap_holders(&self) -> Result<Vec<String>, StoreError> {
        let ask = async {
            let mut session = self.relay_session().await?;
            let rows = self.sql.gap_holders.query().fetch_all(&mut *session).await?;
            session.done().await?;
            rows.iter().map(|row| row.try_get("holder")).collect::<Result<Vec<String>, sqlx::Error>>()
        };
        ask.await.map_err(|error| self.failed("asking who holds gaps open", error))
    }
}

fn answer(row: &PgRow, name: &str, who: Incarnation, lasts: Duration) -> Result<Taken, sqlx::Error> {
    let Some(epoch) = row.try_get::<Option<i64>, _>("epoch")? else {
        let held: i64 = row.try_get("held_for")?;
        // Nothing left means that somebody else was faster in this instant.
        let held = Duration::from_micros(held.max(0).cast_unsigned());
        return Ok(Taken::Theirs(held.max(lasts / 10)));
    };
    let first: Vec<i64> = row.try_get("gap_first")?;
    let last: Vec<i64> = row.try_get("gap_last")?;
    Ok(Taken::Mine {
        lease: Lease { name: name.to_owned(), who, epoch },
        cursor: Cursor { high: row.try_get("high")?, gaps: first.into_iter().zip(last).collect() },
        last: row.try_get("last")?,
    })
}
