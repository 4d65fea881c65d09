//! The connection pool, and how a connection gets back into it.
//!
//! Two things are checked when a connection returns, whoever borrowed it:
//!
//! * It must not be inside a transaction. A `begin` that was given up half-way leaves one open that
//!   nobody will ever commit (launchbadge/sqlx 4385), and the next borrower's writes would go into it.
//!   The check is `BEGIN; ROLLBACK` in one message: it ends whatever was open, and warns of nothing
//!   where nothing was. It costs the borrower no time; the connection comes back a little later.
//! * It must be younger than the last sign that the server was gone, stopping or demoted. One failed
//!   statement so replaces all connections of its age, and they are not tested before each use.
//!   Beside that none gets older than a quarter of an hour.

use crate::{
    Problem,
    error::spoils_connection,
    name::Name,
    sql::Statements,
    store::{Inner, Postgres},
    wake::Wake,
};
use malote_core::{StoreError, planted};
use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// No connection is older: what a failover moved behind a name is found by a new one.
pub(crate) const OLDEST: Duration = Duration::from_secs(15 * 60);

/// How long a connection may take to end what was left running on it, before it is thrown away.
const CLEANING: Duration = Duration::from_secs(10);

/// For one more connection, made to hear why there is none.
const SINGLE: Duration = Duration::from_secs(2);

/// Settings of a [`Postgres`].
#[derive(Clone)]
pub struct Builder {
    url: String,
    schema: String,
    connections: u32,
    patience: Duration,
    behind_pooler: bool,
    partition_rows: i64,
    keep_outbox: Duration,
}

impl Builder {
    /// For a database, by `postgres://user:password@host:port/database`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "malote".into(),
            connections: 10,
            patience: Duration::from_secs(10),
            behind_pooler: false,
            partition_rows: 250_000,
            keep_outbox: Duration::from_secs(24 * 3600),
        }
    }

    /// The schema of malote's tables; `malote` by default.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// At most so many connections, 10 by default. Beside these the relay has up to two of its own, and
    /// one listens for the wake-up.
    #[must_use]
    pub fn connections(mut self, most: u32) -> Self {
        self.connections = most.max(1);
        self
    }

    /// How long to wait for a free connection; 10 seconds by default.
    #[must_use]
    pub fn patience(mut self, longest: Duration) -> Self {
        self.patience = longest;
        self
    }

    /// Says that a pooler in transaction mode (PgBouncer) stands between. Then each verb runs in a
    /// transaction of its own, which forgets the prepared statements of whoever had the server
    /// connection before; and there is no `LISTEN`, so the relay relies on its polling when the writer
    /// is another process. A service's own statements work inside a `Tx`; on [`Postgres::pool`] only
    /// those without arguments do. Slower; off by default.
    #[must_use]
    pub fn behind_pooler(mut self, is: bool) -> Self {
        self.behind_pooler = is;
        self
    }

    /// Positions per partition of the outbox; 250,000 by default. Rows leave a partition at a time. It
    /// should be more than a service writes in a few seconds.
    #[must_use]
    pub fn partition_rows(mut self, rows: i64) -> Self {
        self.partition_rows = rows.max(1);
        self
    }

    /// For how long rows of the outbox stay after they were published, so that they can be replayed; a day by
    /// default, zero for not at all. They leave a partition at a time, so it is at least so long.
    #[must_use]
    pub fn keep_outbox(mut self, long: Duration) -> Self {
        self.keep_outbox = long;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When the URL or the schema's name is invalid, the server cannot be reached or is too old, or a
    /// pooler in transaction mode stands between without [`Builder::behind_pooler`].
    pub async fn connect(self) -> Result<Postgres, StoreError> {
        let doing = "connecting to PostgreSQL";
        let schema = Name::new("the schema", &self.schema).map_err(|e| e.while_doing(doing))?;
        let options = self.options().map_err(|e| e.while_doing(doing))?;
        let trust = Arc::new(Trust::default());
        let pool = self.pool(&options, &trust);
        let relay = self.relay_pool(&options, &trust);
        self.check(&pool, &options).await.map_err(|e| e.while_doing(format!("{doing}{}", place(&options))))?;
        Ok(Postgres::new(Inner {
            pool,
            relay,
            sql: statements(&schema),
            wake: Wake::new(&schema, (!self.behind_pooler).then(|| options.clone())),
            options,
            schema,
            trust,
            behind_pooler: self.behind_pooler,
            partition_rows: self.partition_rows,
            keep_outbox: self.keep_outbox,
        }))
    }

    fn options(&self) -> Result<PgConnectOptions, Problem> {
        let known = ["postgres://", "postgresql://"].iter().any(|scheme| self.url.starts_with(scheme));
        let options = PgConnectOptions::from_str(&self.url).ok().filter(|_| known).ok_or(Problem::Url)?;
        let options =
            if options.get_application_name().is_none() { options.application_name("malote") } else { options };
        let options = if self.behind_pooler { options.statement_cache_capacity(0) } else { options };
        Ok(options.disable_statement_logging())
    }

    fn pool(&self, options: &PgConnectOptions, trust: &Arc<Trust>) -> PgPool {
        let (before, after) = (trust.clone(), trust.clone());
        PgPoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(self.patience)
            .max_lifetime(OLDEST)
            .test_before_acquire(false)
            .before_acquire(move |_, is| {
                let trusted = before.covers(is.age);
                Box::pin(async move { Ok(trusted) })
            })
            .after_release(move |connection, is| {
                let trusted = after.covers(is.age);
                Box::pin(async move { if trusted { clean(connection).await.map(|()| true) } else { Ok(false) } })
            })
            .connect_lazy_with(options.clone())
    }

    /// The relay's own connections: it must get on while the handlers use all others. Nothing but its
    /// few statements runs on them, so they need no check when they return, and the planner can be told
    /// what it cannot know: a partition that is empty now will be large when the same plan is used again.
    fn relay_pool(&self, options: &PgConnectOptions, trust: &Arc<Trust>) -> PgPool {
        let before = trust.clone();
        let options = options.clone().options([("enable_seqscan", "off"), ("enable_bitmapscan", "off")]);
        PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(self.patience)
            .max_lifetime(OLDEST)
            .test_before_acquire(false)
            .before_acquire(move |_, is| {
                let trusted = before.covers(is.age);
                Box::pin(async move { Ok(trusted) })
            })
            .connect_lazy_with(options)
    }

    async fn check(&self, pool: &PgPool, options: &PgConnectOptions) -> Result<(), Problem> {
        let mut connection = match pool.acquire().await {
            // the pool went on trying, and does not say what came of it
            Err(sqlx::Error::PoolTimedOut) if !planted::is("refused-is-timed-out") => {
                return Err(why_not(options).await.into());
            }
            done => done?,
        };
        let version = connection.server_version_num().unwrap_or(0) / 10_000;
        if version < 15 {
            return Err(Problem::Old(version));
        }
        if !self.behind_pooler && !planted::is("pooler-unseen") && shares_backend(&mut connection, options).await? {
            return Err(Problem::Pooler);
        }
        Ok(())
    }
}

/// Where a server is looked for, in words. A URL in which the password was not written as it has to be may be read
/// in a way that takes a part of it for something else; then nothing is said.
fn place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    let at = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    if at.contains('@') || database.contains('@') {
        return String::new();
    }
    format!(" at {at}, database {database:?}")
}

/// What stands in the way of a connection.
async fn why_not(options: &PgConnectOptions) -> sqlx::Error {
    match tokio::time::timeout(SINGLE, options.connect()).await {
        Ok(Err(error)) => error,
        _ => sqlx::Error::PoolTimedOut,
    }
}

/// Each store has its own, for its own schema.
fn statements(schema: &Name) -> Statements {
    #[cfg(feature = "planted")]
    if planted::is("shared-statements") {
        static FIRST: std::sync::OnceLock<Statements> = std::sync::OnceLock::new();
        return FIRST.get_or_init(|| Statements::new(schema)).clone();
    }
    Statements::new(schema)
}

/// Whether two sessions meet the same server process, or one session meets two: then what a session
/// prepares is lost or found by somebody else.
pub(crate) async fn shares_backend(first: &mut PgConnection, options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let before = backend(first).await?;
    let mut second = options.connect().await?;
    second.execute("BEGIN").await?;
    let other = backend(&mut second).await?;
    second.execute("ROLLBACK").await?;
    second.close().await?;
    Ok(other == before || backend(first).await? != before)
}

/// The server process behind a session; by the simple protocol, which prepares nothing.
async fn backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let row = connection.fetch_one("SELECT pg_backend_pid()").await?;
    sqlx::Row::try_get(&row, 0)
}

/// Ends whatever the last borrower left open.
async fn clean(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    if planted::is("begin-unchecked") {
        return Ok(());
    }
    let ended = tokio::time::timeout(CLEANING, connection.execute("BEGIN; ROLLBACK")).await;
    ended.map_err(|late| sqlx::Error::Io(late.into()))?.map(drop)
}

/// Connections made before a certain moment are not to be trusted.
#[derive(Debug)]
pub(crate) struct Trust {
    start: Instant,
    /// Microseconds since `start`.
    since: AtomicU64,
}

impl Default for Trust {
    fn default() -> Self {
        Self { start: Instant::now(), since: AtomicU64::new(0) }
    }
}

impl Trust {
    fn covers(&self, age: Duration) -> bool {
        let made = self.start.elapsed().saturating_sub(age);
        made >= Duration::from_micros(self.since.load(Ordering::Relaxed)) || planted::is("trust-old-connections")
    }

    /// Takes note of an error: if it says that the server is gone, what is older than now is replaced.
    pub(crate) fn learn(&self, error: &sqlx::Error) {
        if spoils_connection(error) {
            let now = self.start.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
            self.since.fetch_max(now, Ordering::Relaxed);
        }
    }
}
