//! The keeper: partitions ahead, old rows gone.
//!
//! ```text
//!   emptied, dropped │   published   │ floor ▸ being read │ last position ▸   made ahead   │ DEFAULT
//!   ─────────────────┴───────────────┴────────────────────┴────────────────────────────────┴────────
//! ```
//!
//! No step may make a payment wait for longer than an instant, or fail it. So a partition is made
//! apart and attached; an old one is emptied first, which locks nothing but itself, and dropped when
//! the lock on the whole outbox is to be had, both when its rows have been kept for as long as they are
//! to be (a replay sends them again); rows without a partition go to DEFAULT. Each step is a
//! transaction of its own with short limits, under a lock that makes it the only keeper. A step that
//! does not get its lock is left for the next time. Why so: docs/decisions/0007-partitions-of-the-outbox.md.

use crate::{
    sql::Statement,
    store::{Inner, micros},
};
use malote_core::{StoreError, planted, relay::Cursor};
use sqlx::{Executor, PgConnection, Row};

/// Partitions of the outbox that should lie ahead of the last position.
const AHEAD: i64 = 4;
/// Steps of one kind in one run, so that a run ends soon.
const STEPS: usize = 8;
/// Rows of the DEFAULT partition removed in one statement.
const BATCH: i64 = 5_000;
/// Empty partitions are not worth a wait, until there are so many.
const EMPTY: usize = 16;

/// Days of the inbox that should lie ahead.
const DAYS: i32 = 4;

/// The lower bound of a partition and its upper one, which it does not hold.
type Range = (String, String);

/// A partition and its bounds.
pub(crate) struct Partition {
    pub(crate) name: String,
    pub(crate) first: String,
    pub(crate) beyond: String,
    pub(crate) has_rows: bool,
}

impl Partition {
    fn ends_below(&self, floor: i64) -> bool {
        self.beyond.parse::<i64>().is_ok_and(|beyond| beyond <= floor.saturating_add(1))
    }
}

/// What a step came to.
pub(crate) enum Step {
    Done,
    /// Somebody was in the way.
    Later,
}

impl Inner {
    /// Does what is due, in bounded time; says what it did.
    pub(crate) async fn upkeep(&self, cursor: &Cursor) -> Result<String, StoreError> {
        let mut did = Vec::new();
        let kept = async {
            self.make_ahead(&mut did).await?;
            let floor = if planted::is("upkeep-ignores-gaps") { cursor.high } else { cursor.floor() };
            self.let_go(floor, &mut did).await
        };
        kept.await.map_err(|error: sqlx::Error| self.failed("keeping the tables in shape", error))?;
        Ok(did.join(", "))
    }

    /// Makes the first partitions, in the transaction that makes the tables: nobody writes yet.
    pub(crate) async fn make_first(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let ranges = self.ranges(1, self.partition_rows.saturating_mul(AHEAD));
        let days = self.days(connection, -1, DAYS).await?;
        for make in ranges.iter().map(|r| self.outbox_partition(r)).chain(days.iter().map(|d| self.inbox_partition(d)))
        {
            connection.execute(make.text()).await?;
        }
        Ok(())
    }

    /// Makes the partitions that will be needed next.
    async fn make_ahead(&self, did: &mut Vec<String>) -> Result<(), sqlx::Error> {
        for range in self.missing_ranges().await? {
            let Step::Done = self.step(&self.outbox_partition(&range)).await? else { break };
            did.push(format!("made outbox_{}", range.0));
        }
        for day in self.missing_days().await? {
            if let Step::Done = self.step(&self.inbox_partition(&day)).await? {
                did.push(format!("made inbox_{}", day.0));
            }
        }
        Ok(())
    }

    fn outbox_partition(&self, (first, beyond): &Range) -> Statement {
        let margin = if planted::is("attach-without-margin") { i64::MIN / 2 } else { self.partition_rows / 4 };
        let words = [("FIRST", first.as_str()), ("BEYOND", beyond), ("MARGIN", &margin.to_string())];
        self.sql.make_outbox_partition.with(&words)
    }

    fn inbox_partition(&self, (first, beyond): &Range) -> Statement {
        self.sql.make_inbox_partition.with(&[("FIRST", first), ("BEYOND", beyond)])
    }

    /// Ranges of the outbox from `first` up to and including `last`, as far as one run goes.
    fn ranges(&self, mut first: i64, last: i64) -> Vec<Range> {
        let mut ranges = Vec::new();
        while first <= last && ranges.len() < STEPS {
            let beyond = first.saturating_add(self.partition_rows);
            ranges.push((first.to_string(), beyond.to_string()));
            first = beyond;
        }
        ranges
    }

    async fn missing_ranges(&self) -> Result<Vec<Range>, sqlx::Error> {
        let mut session = self.session().await?;
        let last: i64 = self.sql.last_position.query().fetch_one(&mut *session).await?.try_get("last")?;
        let partitions = self.partitions(&mut session, "outbox").await?;
        session.done().await?;
        let rows = self.partition_rows;
        let end = partitions.iter().filter_map(|p| p.beyond.parse().ok()).max().unwrap_or(1);
        // What was not made in time is not made any more; its rows go to DEFAULT.
        let near = last.saturating_add(rows / 2);
        let next = (near / rows + 1).saturating_mul(rows).saturating_add(1);
        let mut first = if end > near { end } else { next };
        if planted::is("attach-without-margin") {
            first = last + 1;
        }
        Ok(self.ranges(first, last.saturating_add(rows.saturating_mul(AHEAD))))
    }

    async fn missing_days(&self) -> Result<Vec<Range>, sqlx::Error> {
        let mut session = self.session().await?;
        let mut days = self.days(&mut session, 2, DAYS).await?;
        let partitions = self.partitions(&mut session, "inbox").await?;
        session.done().await?;
        days.retain(|day| !partitions.iter().any(|p| p.first.replace('-', "") == day.0));
        Ok(days)
    }

    pub(crate) async fn days(
        &self,
        connection: &mut PgConnection,
        from: i32,
        to: i32,
    ) -> Result<Vec<Range>, sqlx::Error> {
        let rows = self.sql.days_ahead.query().bind(from).bind(to).fetch_all(connection).await?;
        rows.iter().map(|row| Ok((row.try_get("first")?, row.try_get("beyond")?))).collect()
    }

    /// Lets go of what lies at or below `floor`.
    async fn let_go(&self, floor: i64, did: &mut Vec<String>) -> Result<(), sqlx::Error> {
        let mut session = self.session().await?;
        let partitions = self.partitions(&mut session, "outbox").await?;
        session.done().await?;
        let old: Vec<&Partition> = partitions.iter().filter(|p| p.ends_below(floor)).collect();
        for partition in old.iter().filter(|p| p.has_rows).take(STEPS) {
            // those behind it are younger still
            if self.is_kept(partition).await? {
                break;
            }
            let Step::Done = self.step(&self.sql.empty_partition.with(&[("NAME", &partition.name)])).await? else {
                break;
            };
            did.push(format!("emptied {}", partition.name));
        }
        self.drop_empty("outbox", &old, did).await?;
        self.remove_strays(floor, did).await
    }

    /// Whether a partition of the outbox holds rows that are kept for a replay.
    async fn is_kept(&self, partition: &Partition) -> Result<bool, sqlx::Error> {
        if self.keep_outbox.is_zero() || planted::is("outbox-not-kept") {
            return Ok(false);
        }
        let mut session = self.session().await?;
        let statement = self.sql.newest_row.with(&[("NAME", &partition.name)]);
        let row = statement.query().bind(micros(self.keep_outbox)).fetch_optional(&mut *session).await?;
        session.done().await?;
        row.map_or(Ok(false), |row| row.try_get("young"))
    }

    /// Drops partitions that were emptied before this run, all at once: it is one lock.
    pub(crate) async fn drop_empty(
        &self,
        parent: &str,
        old: &[&Partition],
        did: &mut Vec<String>,
    ) -> Result<(), sqlx::Error> {
        let empty: Vec<&str> = old.iter().filter(|p| !p.has_rows).map(|p| p.name.as_str()).collect();
        if empty.is_empty() {
            return Ok(());
        }
        let schema = self.schema.quoted();
        let names: Vec<String> = empty.iter().map(|name| format!("{schema}.\"{name}\"")).collect();
        let wait = if empty.len() > EMPTY { "" } else { "NOWAIT" };
        let drop = self.sql.drop_partitions.with(&[("PARENT", parent), ("NAMES", &names.join(", ")), ("NOWAIT", wait)]);
        if let Step::Done = self.step(&drop).await? {
            did.push(format!("dropped {}", empty.join(" ")));
        }
        Ok(())
    }

    async fn remove_strays(&self, floor: i64, did: &mut Vec<String>) -> Result<(), sqlx::Error> {
        let mut removed = 0;
        for _ in 0..STEPS {
            let mut session = self.session().await?;
            let query = self.sql.remove_published.query().bind(floor).bind(BATCH).bind(micros(self.keep_outbox));
            let gone = query.execute(&mut *session).await?.rows_affected();
            session.done().await?;
            removed += gone;
            if gone < BATCH.cast_unsigned() {
                break;
            }
        }
        if removed > 0 {
            did.push(format!("removed {removed} rows from outbox_rest"));
        }
        Ok(())
    }

    pub(crate) async fn partitions(
        &self,
        connection: &mut PgConnection,
        of: &str,
    ) -> Result<Vec<Partition>, sqlx::Error> {
        let rows = self.sql.partitions.query().bind(of).fetch_all(connection).await?;
        let partition = |row: &sqlx::postgres::PgRow| {
            Ok(Partition {
                name: row.try_get("name")?,
                first: row.try_get("first")?,
                beyond: row.try_get("beyond")?,
                has_rows: row.try_get::<i64, _>("bytes")? > 0,
            })
        };
        rows.iter().map(partition).collect()
    }

    /// Runs statements in a transaction of their own, as the only keeper, with short limits.
    pub(crate) async fn step(&self, statements: &Statement) -> Result<Step, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let ours: bool = tx.fetch_one(self.sql.keeper_lock.text()).await?.try_get("ours")?;
        if !ours {
            return Ok(Step::Later);
        }
        tx.execute(self.sql.keeper_limits.text()).await?;
        let done = match tx.execute(statements.text()).await {
            Ok(_) => tx.commit().await,
            Err(error) => tx.rollback().await.and(Err(error)),
        };
        match done {
            Ok(()) => Ok(Step::Done),
            Err(error) if is_in_the_way(&error) => {
                tracing::debug!(%error, "a step of upkeep is left for the next time");
                Ok(Step::Later)
            }
            Err(error) => Err(error),
        }
    }
}

/// A lock that was not to be had in time, rows of the range in DEFAULT, or a keeper of another version.
fn is_in_the_way(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code());
    matches!(code.as_deref(), Some("55P03" | "57014" | "40P01" | "23514" | "42P01" | "42P07" | "42P17"))
}
