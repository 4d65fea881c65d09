//! For the examples' own tests: waiting, stores of their own, and a look into databases by plain SQL. What cannot be
//! had or read fails the test.
#![allow(clippy::missing_panics_doc, clippy::expect_used, clippy::panic)]

use malote_testkit::servers;
use sqlx::{AssertSqlSafe, PgPool, SqlitePool, sqlite::SqliteConnectOptions};
use std::{
    future::Future,
    path::Path,
    time::{Duration, Instant},
};

/// How long anything may take that has to happen: far more than it does. Where a protection is taken
/// out, it is expected not to happen, and need not be waited for as long.
pub fn patience() -> Duration {
    let planted = std::env::var("MALOTE_PLANTED").is_ok_and(|switch| !switch.is_empty());
    Duration::from_secs(if planted { 20 } else { 120 })
}

/// Asks until the answer is there.
///
/// # Panics
/// When it never is, with what was asked for.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let end = Instant::now() + patience();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
    }
}

/// Where services keep their state.
#[derive(Clone, Debug)]
pub enum Store {
    /// In SQLite files, in their folder.
    Files,
    /// In PostgreSQL databases of their own, by a URL in which `{service}` stands for the service.
    Postgres(String),
}

impl Store {
    /// Both stores, as far as they are there.
    pub fn both(services: &[&str]) -> Vec<Self> {
        [Some(Self::Files), Self::postgres(services)].into_iter().flatten().collect()
    }

    /// New databases, or nothing after a `malote-skip:` line.
    pub fn postgres(services: &[&str]) -> Option<Self> {
        let (server, ending) = (servers::postgres()?, servers::unique("examples"));
        for service in services {
            server.create_database(&format!("{service}_{ending}")).expect("a database");
        }
        Some(Self::Postgres(server.url(&format!("{{service}}_{ending}"))))
    }

    /// As `MALOTE_STORE` has it.
    pub fn setting(&self) -> Option<String> {
        match self {
            Self::Files => None,
            Self::Postgres(url) => Some(url.clone()),
        }
    }
    /// Where a service's database is; files are in `folder`.
    pub fn place(&self, folder: &Path, service: &str) -> String {
        match self {
            Self::Files => folder.join(format!("{service}.db")).to_str().expect("a plain path").to_owned(),
            Self::Postgres(url) => url.replace("{service}", service),
        }
    }

    /// A look into a service's database.
    pub async fn book(&self, folder: &Path, service: &str) -> Book {
        let place = self.place(folder, service);
        match self {
            Self::Files => Book::file(Path::new(&place)).await,
            Self::Postgres(_) => Book::url(&place).await,
        }
    }
}

/// A database to look into.
pub enum Book {
    /// A file.
    Sqlite(SqlitePool),
    /// On a server.
    Postgres(PgPool),
}

impl Book {
    /// A SQLite file; it keeps to foreign keys, as services do.
    pub async fn file(path: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(path).foreign_keys(true);
        Self::Sqlite(SqlitePool::connect_with(options).await.expect("opens"))
    }

    /// A PostgreSQL database.
    pub async fn url(url: &str) -> Self {
        Self::Postgres(PgPool::connect(url).await.expect("connects"))
    }

    /// A query for this database. Malote's own tables are written `malote.x`; SQLite has no schemas.
    fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Sqlite(_) => sql.replace("malote.", "malote_"),
            Self::Postgres(_) => sql.to_owned(),
        })
    }

    /// The one number that a query gives.
    pub async fn number(&self, sql: &str) -> i64 {
        let number = match self {
            Self::Sqlite(pool) => sqlx::query_scalar(self.sql(sql)).fetch_one(pool).await,
            Self::Postgres(pool) => sqlx::query_scalar(self.sql(sql)).fetch_one(pool).await,
        };
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// A text column.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let texts = match self {
            Self::Sqlite(pool) => sqlx::query_scalar(self.sql(sql)).fetch_all(pool).await,
            Self::Postgres(pool) => sqlx::query_scalar(self.sql(sql)).fetch_all(pool).await,
        };
        texts.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs a statement.
    pub async fn run(&self, sql: &str) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(pool) => sqlx::query(self.sql(sql)).execute(pool).await.map(|done| done.rows_affected()),
            Self::Postgres(pool) => sqlx::query(self.sql(sql)).execute(pool).await.map(|done| done.rows_affected()),
        }
    }
}
