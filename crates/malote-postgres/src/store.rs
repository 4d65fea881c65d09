//! [`Postgres`]: the store.

use crate::{Builder, Problem, Tx, connect::Trust, error, name::Name, sql::Statements, wake::Wake};
use malote_core::{
    Admission, Class, Dead, Incarnation, Lease, Read, Saved, Sealer, Store, StoreError, Taken, planted,
    relay::{Cursor, Window},
};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres as Db, pool::PoolConnection, postgres::PgConnectOptions};
use std::{
    error::Error,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

/// A service's own PostgreSQL database. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct Postgres {
    pub(crate) inner: Arc<Inner>,
}

/// What the clones share.
pub(crate) struct Inner {
    pub(crate) pool: PgPool,
    /// The relay's own connections.
    pub(crate) relay: PgPool,
    /// For connections of their own.
    pub(crate) options: PgConnectOptions,
    pub(crate) sql: Statements,
    pub(crate) schema: Name,
    pub(crate) wake: Wake,
    pub(crate) trust: Arc<Trust>,
    pub(crate) behind_pooler: bool,
    pub(crate) partition_rows: i64,
    pub(crate) keep_outbox: Duration,
}

impl Postgres {
    /// Connects with the settings of [`Builder::new`].
    ///
    /// # Errors
    /// See [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Builder::new(url).connect().await
    }

    /// Settings before the connection.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url)
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The pool, for statements that need no transaction with malote. A connection that comes back
    /// inside a transaction is cleaned before the next borrower gets it.
    pub fn pool(&self) -> &PgPool {
        &self.inner.pool
    }

    /// The schema of malote's tables.
    pub fn schema(&self) -> &str {
        self.inner.schema.as_str()
    }

    /// Begins a transaction (`READ COMMITTED`). Giving up on the future leaves no transaction open.
    ///
    /// # Errors
    /// When no connection can be had.
    pub async fn begin(&self, sealer: Sealer) -> Result<Tx, StoreError> {
        Tx::begin(self.inner.clone(), sealer, None).await
    }
}

impl Inner {
    /// Makes an error of the driver the store's, and takes note of what it says about the connection.
    pub(crate) fn failed(&self, doing: impl Into<String>, error: sqlx::Error) -> StoreError {
        self.trust.learn(&error);
        Problem::from(error).while_doing(doing)
    }

    /// A transaction on a connection of the pool.
    pub(crate) async fn begin(&self) -> Result<sqlx::Transaction<'static, Db>, sqlx::Error> {
        self.begin_bounded(None).await
    }

    /// A transaction on a connection of the pool, of which no statement goes on for longer than that. All in one
    /// message.
    pub(crate) async fn begin_bounded(
        &self,
        most: Option<Duration>,
    ) -> Result<sqlx::Transaction<'static, Db>, sqlx::Error> {
        // Read committed, whatever the database's default is: `admit` and the lanes reason about it.
        let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
        if self.behind_pooler && !planted::is("statements-of-others") {
            // The driver names its statements, and whoever had this server connection before did so, too.
            begin.push_str("; DEALLOCATE ALL");
        }
        if let Some(most) = most.filter(|_| !planted::is("statement-unbounded")) {
            // A limit that the role or the database has set itself stays.
            let most = most.as_millis().clamp(1, i32::MAX as u128);
            begin.push_str(&format!(
                "; SELECT set_config('statement_timeout', '{most}', true) \
                 WHERE current_setting('statement_timeout') = '0'"
            ));
        }
        self.pool.begin_with(AssertSqlSafe(begin)).await
    }

    /// A connection for one verb that is no part of a transaction.
    pub(crate) async fn session(&self) -> Result<Session, sqlx::Error> {
        // Preparing and running are two messages, which a pooler keeps together in a transaction only.
        if self.behind_pooler {
            return Ok(Session::Within(self.begin().await?));
        }
        Ok(Session::Plain(self.pool.acquire().await?))
    }

    /// A connection for one verb of the relay.
    pub(crate) async fn relay_session(&self) -> Result<Session, sqlx::Error> {
        if self.behind_pooler {
            return self.session().await;
        }
        Ok(Session::Plain(self.relay.acquire().await?))
    }
}

/// A connection on which one statement is a transaction.
pub(crate) enum Session {
    Plain(PoolConnection<Db>),
    Within(sqlx::Transaction<'static, Db>),
}

impl Session {
    pub(crate) async fn done(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Within(tx) => tx.commit().await,
        }
    }
}

impl Deref for Session {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        match self {
            Self::Plain(connection) => connection,
            Self::Within(tx) => tx,
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Plain(connection) => connection,
            Self::Within(tx) => tx,
        }
    }
}

impl Store for Postgres {
    type Tx = Tx;

    async fn begin(&self, sealer: Sealer) -> Result<Tx, StoreError> {
        Self::begin(self, sealer).await
    }

    async fn begin_bounded(&self, sealer: Sealer, most: Duration) -> Result<Tx, StoreError> {
        Tx::begin(self.inner.clone(), sealer, Some(most)).await
    }

    fn classify(&self, error: &(dyn Error + Send + Sync + 'static)) -> Class {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            self.inner.trust.learn(error);
        }
        error::classify(error)
    }

    fn blames_rows(&self, error: &StoreError) -> bool {
        error.class == Class::Final || (!planted::is("refusal-is-away") && error::blames_rows(error))
    }

    async fn admit(&self, tx: &mut Tx, consumer: &str, events: &[Admission]) -> Result<Vec<bool>, StoreError> {
        self.inner.admit(tx, consumer, events).await
    }

    async fn seen(&self, consumer: &str, events: &[Admission]) -> Result<Vec<bool>, StoreError> {
        self.inner.seen(consumer, events).await
    }

    async fn set_aside(&self, tx: &mut Tx, dead: &Dead) -> Result<(), StoreError> {
        self.inner.set_aside(tx, dead).await
    }

    async fn take_lease(&self, name: &str, who: Incarnation, lasts: Duration) -> Result<Taken, StoreError> {
        self.inner.take_lease(name, who, lasts).await
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.inner.release_lease(lease).await
    }

    async fn read(&self, window: &Window) -> Result<Read, StoreError> {
        self.inner.read(window).await
    }

    async fn save(&self, lease: &Lease, cursor: &Cursor, lasts: Duration) -> Result<Saved, StoreError> {
        self.inner.save(lease, cursor, lasts).await
    }

    async fn woken(&self) {
        self.inner.wake.woken().await;
    }

    async fn upkeep(&self, cursor: &Cursor) -> Result<String, StoreError> {
        self.inner.upkeep(cursor).await
    }

    async fn gap_holders(&self) -> Result<Vec<String>, StoreError> {
        self.inner.gap_holders().await
    }
}

/// Microseconds, as the statements take a duration; a thousand years at most, which PostgreSQL's times can hold.
pub(crate) fn micros(duration: Duration) -> f64 {
    const LONGEST: f64 = 1e6 * 3600.0 * 24.0 * 365.0 * 1000.0;
    (duration.as_secs_f64() * 1e6).min(LONGEST)
}
