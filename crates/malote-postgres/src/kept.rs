//! What leaves the store, and when.
//!
//! A day of the inbox goes as a partition, emptied and then dropped, when all of it is done. A day of which
//! something is parked or dead loses its other rows in batches. Both its own day and the moment at which
//! it was handled have to be old enough: an event may come long after its day, and a duplicate of it
//! as long after that.

use crate::{
    Postgres,
    keeper::{Partition, Step},
    sql::Statement,
    store::{Inner, micros},
};
use chrono::NaiveDate;
use malote_core::{KeptStore, Prune, Pruned, StoreError, planted};
use sqlx::{PgConnection, Row};
use std::time::Duration;

impl KeptStore for Postgres {
    async fn prune(&self, what: Prune, most: u32, dry: bool) -> Result<Pruned, StoreError> {
        let pruned = self.inner.prune(what, most, dry).await;
        pruned.map_err(|error| self.inner.failed(format!("removing old rows of {}", what.name()), error))
    }
}

impl Inner {
    async fn prune(&self, what: Prune, most: u32, dry: bool) -> Result<Pruned, sqlx::Error> {
        if dry {
            return self.count_old(what, most).await;
        }
        match what {
            Prune::Inbox(keep) => self.prune_inbox(keep, most).await,
            Prune::Dead(keep) => {
                let mut tx = self.begin().await?;
                let gone = self.sql.prune_dead.query().bind(micros(keep)).bind(i64::from(most));
                let rows = gone.execute(&mut *tx).await?.rows_affected();
                self.sql.prune_lanes.query().execute(&mut *tx).await?;
                tx.commit().await?;
                Ok(batch(rows, most))
            }
            Prune::Answers(_) => self.prune_by(&self.sql.forget, what, most).await,
            Prune::Audit(_) => self.prune_by(&self.sql.prune_audit, what, most).await,
            Prune::Sagas(_) => self.prune_by(&self.sql.prune_sagas, what, most).await,
            Prune::Tombstones(_) => self.prune_by(&self.sql.prune_tombstones, what, most).await,
            Prune::Operations(_) => self.prune_by(&self.sql.prune_operations, what, most).await,
            _ => Ok(Pruned::default()),
        }
    }

    /// By one statement, which takes microseconds to keep and the most rows.
    async fn prune_by(&self, statement: &Statement, what: Prune, most: u32) -> Result<Pruned, sqlx::Error> {
        let mut session = self.session().await?;
        let gone = statement.query().bind(micros(what.keep())).bind(i64::from(most));
        let rows = gone.execute(&mut *session).await?.rows_affected();
        session.done().await?;
        Ok(batch(rows, most))
    }

    /// Counts what is due, up to `most`.
    async fn count_old(&self, what: Prune, most: u32) -> Result<Pruned, sqlx::Error> {
        let mut session = self.session().await?;
        let query = self.sql.prune_count.query().bind(what.name()).bind(micros(what.keep())).bind(i64::from(most));
        let rows: i64 = query.fetch_one(&mut *session).await?.try_get("rows")?;
        session.done().await?;
        Ok(batch(rows.max(0).cast_unsigned(), most))
    }

    async fn prune_inbox(&self, keep: Duration, most: u32) -> Result<Pruned, sqlx::Error> {
        let mut session = self.session().await?;
        let cutoff = self.sql.prune_cutoff.query().bind(micros(keep)).fetch_one(&mut *session).await?;
        let cutoff: NaiveDate = cutoff.try_get("day")?;
        let partitions = self.partitions(&mut session, "inbox").await?;
        session.done().await?;
        let ended = |partition: &&Partition| partition.beyond.parse::<NaiveDate>().is_ok_and(|beyond| beyond <= cutoff);
        let old: Vec<&Partition> = partitions.iter().filter(ended).collect();
        self.drop_empty("inbox", &old, &mut Vec::new()).await?;
        for partition in old.iter().filter(|partition| partition.has_rows) {
            let pruned = self.prune_day(&partition.name, keep, most, cutoff).await?;
            if pruned.rows > 0 {
                return Ok(Pruned { more: true, ..pruned });
            }
        }
        let mut session = self.session().await?;
        let rows = self.prune_rows(&mut session, "inbox_rest", keep, most, cutoff).await?;
        session.done().await?;
        Ok(batch(rows, most))
    }

    /// Lets one day go, or what is done of it.
    async fn prune_day(&self, name: &str, keep: Duration, most: u32, cutoff: NaiveDate) -> Result<Pruned, sqlx::Error> {
        let word = [("NAME", name)];
        let mut session = self.session().await?;
        let look = self.sql.prune_inbox_look.with(&word);
        let look = look.query().bind(micros(keep)).fetch_one(&mut *session).await?;
        let open = look.try_get::<bool, _>("open")? && !planted::is("prune-what-is-open");
        if open || look.try_get("young")? {
            let rows = self.prune_rows(&mut session, name, keep, most, cutoff).await?;
            session.done().await?;
            return Ok(batch(rows, most));
        }
        let rows = self.sql.prune_inbox_count.with(&word).query().fetch_one(&mut *session).await?;
        let rows: i64 = rows.try_get("rows")?;
        session.done().await?;
        let emptied = if planted::is("prune-what-is-open") {
            self.sql.empty_partition.with(&word)
        } else {
            self.sql.prune_inbox_day.with(&word)
        };
        match self.step(&emptied).await? {
            Step::Done => Ok(Pruned { rows: rows.max(1).cast_unsigned(), more: true }),
            Step::Later => Ok(Pruned::default()),
        }
    }

    async fn prune_rows(
        &self,
        connection: &mut PgConnection,
        name: &str,
        keep: Duration,
        most: u32,
        cutoff: NaiveDate,
    ) -> Result<u64, sqlx::Error> {
        let statement = self.sql.prune_inbox_rows.with(&[("NAME", name)]);
        let query = statement.query().bind(micros(keep)).bind(i64::from(most)).bind(cutoff);
        Ok(query.execute(connection).await?.rows_affected())
    }
}

fn batch(rows: u64, most: u32) -> Pruned {
    Pruned { rows, more: rows > 0 && rows >= u64::from(most) }
}
