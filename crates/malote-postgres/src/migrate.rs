//! Migrations: numbered, forward only, each one transaction.

use crate::{Postgres, sql::Statement, store::Inner};
use malote_core::{StoreError, planted};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

/// In order; a migration that was released is never changed.
const MIGRATIONS: &[(i32, &str, &str)] = &[
    (1, "first", include_str!("../sql/migrations/0001_first.sql")),
    (2, "waiting", include_str!("../sql/migrations/0002_waiting.sql")),
    (3, "sagas", include_str!("../sql/migrations/0003_sagas.sql")),
];

/// The version of the tables that this library knows.
pub(crate) const KNOWN: i64 = 3;

impl Postgres {
    /// Brings malote's tables to this version. Any number of processes may do it at once and as often
    /// as they like; one that is killed half-way leaves nothing behind. A database that is ahead of
    /// this version is left as it is. Returns how many steps this call took.
    ///
    /// # Errors
    /// When a statement fails, a missing right for one: it must be allowed to create the schema, or
    /// the schema must be its own.
    pub async fn migrate(&self) -> Result<u32, StoreError> {
        let mut taken = 0;
        for (version, name, sql) in MIGRATIONS {
            let step = self.inner.migrate(*version, name, sql).await;
            let took =
                step.map_err(|error| self.inner.failed(format!("running migration {version:04}_{name}"), error))?;
            taken += u32::from(took);
        }
        Ok(taken)
    }
}

impl Inner {
    /// False when it was taken before.
    async fn migrate(&self, version: i32, name: &str, sql: &str) -> Result<bool, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let mut tx = connection.begin().await?;
        self.lock(&mut tx).await?;
        let schema = self.schema.quoted();
        let new = !self.is_applied(&mut tx, version).await?;
        if new {
            tx.execute(Statement::new(sql, &self.schema).text()).await?;
            if version == 1 {
                self.make_first(&mut tx).await?;
            }
            // version and name are this file's own
            let note = format!("INSERT INTO {schema}.migration (version, name) VALUES ({version}, '{name}')");
            tx.execute(AssertSqlSafe(note)).await?;
        }
        tx.commit().await?;
        Ok(new)
    }

    /// One at a time: by a lock that ends with the transaction, however that ends.
    async fn lock(&self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        if planted::is("migrate-together") {
            return Ok(());
        }
        let schema = self.schema.as_str();
        let lock = format!("SELECT pg_advisory_xact_lock(hashtextextended('malote migration {schema}', 0))");
        tx.execute(AssertSqlSafe(lock)).await.map(drop)
    }

    async fn is_applied(&self, tx: &mut PgConnection, version: i32) -> Result<bool, sqlx::Error> {
        let (schema, plain) = (self.schema.quoted(), self.schema.as_str());
        // The schema may have been made for us by somebody with more rights.
        let exists = format!("SELECT FROM pg_namespace WHERE nspname = '{plain}'");
        if tx.fetch_optional(AssertSqlSafe(exists)).await?.is_none() {
            tx.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await?;
        }
        let table = format!(
            "CREATE TABLE IF NOT EXISTS {schema}.migration \
             (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        );
        tx.execute(AssertSqlSafe(table)).await?;
        let asked = format!("SELECT count(*) FROM {schema}.migration WHERE version = {version}");
        let row = tx.fetch_one(AssertSqlSafe(asked)).await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }
}
