//! A service's own database as one SQLite file.
//!
//! SQLite lets one connection write at a time. A second writer is told "locked", and a reader that
//! becomes a writer after somebody else has committed is told so for ever. None of this is the
//! caller's business, so here it cannot happen: every transaction that can write takes the write lock
//! at its start, those of one process stand in a fair queue for one connection, and those of other
//! processes are waited for.
//!
//! ```text
//!   begin ──▶ turn (fair queue) ──▶ writer ──BEGIN IMMEDIATE──▶ Tx ──COMMIT──▶ relay is woken
//!   pool() ─────────────────────▶ readers (cannot write)
//! ```

mod claim;
mod classify;
mod custody;
mod dead;
mod ended;
mod idempotency;
mod inbox;
mod inspect;
mod keep;
mod lock;
mod migrate;
mod outbox;
mod parking;
mod probe;
mod record;
mod relay;
mod saga;
mod settle;
mod timer;
mod tx;
mod wal;

pub use tx::Tx;

use classify::failed;
use malote_core::{
    Admission, Class, Dead, Incarnation, Lease, Read, Saved, Sealer, Store, StoreError, Taken, planted,
    relay::{Cursor, Window},
};
use sqlx::{
    AssertSqlSafe, SqlSafeStr, SqlStr, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{error::Error, path::PathBuf, str::FromStr, sync::Arc, time::Duration};
use tokio::sync::{Notify, Semaphore};

/// A service's own database: one SQLite file.
#[derive(Clone)]
pub struct Sqlite(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// One connection, used under `turn` only.
    writer: SqlitePool,
    writing: ended::Watch,
    /// One connection whose commits do not wait for the disk, under `turn`, too.
    light: SqlitePool,
    writing_light: ended::Watch,
    turn: Arc<Semaphore>,
    readers: SqlitePool,
    appended: Notify,
    lock_wait: Duration,
    keep_outbox: Duration,
    folding: wal::Folding,
}

/// How to open a [`Sqlite`].
#[derive(Clone, Debug)]
pub struct Builder {
    sync_every_commit: bool,
    readers: u32,
    lock_wait: Duration,
    keep_outbox: Duration,
    create: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            sync_every_commit: true,
            readers: 4,
            lock_wait: Duration::from_secs(60),
            keep_outbox: Duration::from_secs(24 * 3600),
            create: true,
        }
    }
}

impl Builder {
    /// Whether a commit waits for the disk (`synchronous=FULL`, the default). Without it a power cut
    /// may take back the last commits; a crash of the process takes back nothing either way.
    pub fn sync_every_commit(mut self, yes: bool) -> Self {
        self.sync_every_commit = yes;
        self
    }

    /// How many connections read beside the writer; 4 by default.
    pub fn readers(mut self, readers: u32) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// How long to wait while another process holds the write lock; 60 s by default. After it a
    /// begin fails with [`Class::Conflict`].
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// How long the rows of the outbox are kept after they were written, published ones, so that they
    /// can be sent again; 24 h by default, and zero removes them as soon as they are published.
    pub fn keep_outbox(mut self, keep: Duration) -> Self {
        self.keep_outbox = keep;
        self
    }

    /// Whether a file that is not there is made, which is the default. A tool that looks at a service
    /// from outside makes none.
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Opens the file, and makes it when it is not there. Takes a path or a `sqlite:` URL.
    pub async fn open(self, url_or_path: &str) -> Result<Sqlite, StoreError> {
        let doing = || format!("opening the SQLite file {url_or_path:?}");
        let options = if url_or_path.starts_with("sqlite:") {
            SqliteConnectOptions::from_str(url_or_path).map_err(failed(doing()))?
        } else {
            SqliteConnectOptions::new().filename(url_or_path)
        };
        if [":memory:", "mode=memory"].iter().any(|memory| url_or_path.contains(memory)) {
            let source = "several connections share the database, so it has to be a file".into();
            return Err(StoreError { doing: doing(), class: Class::Final, source });
        }
        let synchronous = if self.sync_every_commit { SqliteSynchronous::Full } else { SqliteSynchronous::Normal };
        let options = options
            .create_if_missing(self.create)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .foreign_keys(true)
            // a WAL that grew under a long reader gives its space back
            .pragma("journal_size_limit", (64 << 20).to_string())
            // the own retry at BEGIN does the waiting, with jitter and in the queue's order
            .busy_timeout(Duration::from_millis(10));
        let whole = SqlitePoolOptions::new()
            .max_lifetime(None)
            .idle_timeout(None)
            .test_before_acquire(false)
            .acquire_timeout(self.lock_wait);
        let writer = whole.clone().max_connections(1).after_release(|connection, _| {
            // a transaction that could not be rolled back takes its connection with it
            Box::pin(async move {
                sqlx::Connection::ping(connection).await?;
                Ok(!sqlx::Connection::is_in_transaction(connection))
            })
        });
        let path = options.get_filename().to_owned();
        let watched = |watch: &ended::Watch| {
            let watch = watch.clone();
            writer.clone().after_connect(move |connection, _| Box::pin(watch.clone().over(connection)))
        };
        let (writing, writing_light) = (ended::Watch::default(), ended::Watch::default());
        let light = options.clone().synchronous(SqliteSynchronous::Normal);
        let light = watched(&writing_light).connect_lazy_with(light);
        let reading = options.clone().busy_timeout(self.lock_wait).pragma("query_only", "on");
        let store = Sqlite(Arc::new(Inner {
            path,
            writer: watched(&writing).connect_lazy_with(options),
            writing,
            light,
            writing_light,
            turn: Arc::new(Semaphore::new(1)),
            readers: own(whole.max_connections(self.readers).connect_lazy_with(reading)),
            appended: Notify::new(),
            lock_wait: self.lock_wait,
            keep_outbox: self.keep_outbox,
            folding: wal::Folding::default(),
        }));
        // the first connection makes the file and turns the WAL on
        store.connect().await.map_err(|e| StoreError { doing: doing(), ..e })?;
        Ok(store)
    }
}

impl Sqlite {
    /// Opens a file as [`Builder::default`] does. Call [`Sqlite::migrate`] before the first use.
    pub async fn open(url_or_path: &str) -> Result<Self, StoreError> {
        Builder::default().open(url_or_path).await
    }

    /// Whether a file is there and has malote's tables, in whichever version. Changes and makes nothing.
    ///
    /// # Errors
    /// When there is no such file, or it cannot be read as a database.
    pub async fn holds_tables(url_or_path: &str) -> Result<bool, StoreError> {
        probe::holds_tables(url_or_path).await
    }

    /// Opens a file with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connections for the service's own queries outside of a transaction. They read only: writing
    /// is what [`Store::begin`] is for.
    pub fn pool(&self) -> &SqlitePool {
        &self.0.readers
    }

    /// Brings malote's tables up to this version of the library. May be run by several processes at
    /// once, and again at any time. Returns how many steps it took.
    pub async fn migrate(&self) -> Result<u32, StoreError> {
        migrate::migrate(self).await
    }

    /// Closes the connections after the transactions that are under way. What was written goes from
    /// the WAL into the file, and the WAL goes away, unless another process has the file open.
    pub async fn close(&self) {
        if malote_core::planted::is("leave-wal") {
            // not even a drop closes them
            std::mem::forget(self.0.clone());
            return;
        }
        let _turn = self.0.turn.acquire().await;
        self.0.light.close().await;
        self.0.readers.close().await;
        self.0.writer.close().await;
    }
}

impl Store for Sqlite {
    type Tx = Tx;

    async fn begin(&self, sealer: Sealer) -> Result<Tx, StoreError> {
        tx::begin(self, sealer).await
    }
    fn classify(&self, error: &(dyn Error + Send + Sync + 'static)) -> Class {
        classify::of(error)
    }
    fn blames_rows(&self, error: &StoreError) -> bool {
        error.class == Class::Final || (!planted::is("refusal-is-away") && classify::blames_rows(error))
    }
    async fn admit(&self, tx: &mut Tx, consumer: &str, events: &[Admission]) -> Result<Vec<bool>, StoreError> {
        inbox::admit(tx, consumer, events).await
    }
    async fn seen(&self, consumer: &str, events: &[Admission]) -> Result<Vec<bool>, StoreError> {
        inbox::seen(&self.0.readers, consumer, events).await
    }
    async fn set_aside(&self, tx: &mut Tx, dead: &Dead) -> Result<(), StoreError> {
        dead::set_aside(tx, dead, false).await
    }
    async fn take_lease(&self, name: &str, who: Incarnation, lasts: Duration) -> Result<Taken, StoreError> {
        relay::take_lease(self, name, who, lasts).await
    }
    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        relay::release_lease(self, lease).await
    }
    async fn read(&self, window: &Window) -> Result<Read, StoreError> {
        outbox::read(&self.0.readers, window).await
    }
    async fn save(&self, lease: &Lease, cursor: &Cursor, lasts: Duration) -> Result<Saved, StoreError> {
        relay::save(self, lease, cursor, lasts).await
    }
    async fn woken(&self) {
        self.0.appended.notified().await;
    }
    async fn upkeep(&self, cursor: &Cursor) -> Result<String, StoreError> {
        outbox::upkeep(self, cursor).await
    }
}

/// Connections belong to a file, and nothing that was prepared on them is used for another.
fn own(pool: SqlitePool) -> SqlitePool {
    static FIRST: std::sync::OnceLock<SqlitePool> = std::sync::OnceLock::new();
    if planted::is("one-pool-for-all") { FIRST.get_or_init(|| pool).clone() } else { pool }
}

/// A statement without one of its protections, where the test for that protection asks for it.
fn fence(taken_out: bool, statement: &'static str, protection: &str) -> SqlStr {
    if !taken_out {
        return statement.into_sql_str();
    }
    debug_assert!(statement.contains(protection), "nothing is taken out");
    AssertSqlSafe(statement.replace(protection, "")).into_sql_str()
}
