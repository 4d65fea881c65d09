//! Where a measurement takes place: a fresh store, a fresh log, and the events that pass.

use crate::Fallible;
use malote::{
    Event, FullStore, Message, Runtime, Transaction, Transport,
    postgres::Postgres,
    sqlite::{Embedded, Sqlite},
};
use malote_testkit::servers::{self, PostgresAt};
use serde::{Deserialize, Serialize};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// Something to be handled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ping {
    pub key: String,
    pub n: i64,
    /// As long as a business event is.
    pub filler: String,
}

impl Event for Ping {
    const TYPE: &'static str = "ping.v1";
    fn key(&self) -> String {
        self.key.clone()
    }
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pong {
    pub key: String,
    pub n: i64,
}

impl Event for Pong {
    const TYPE: &'static str = "pong.v1";
    fn key(&self) -> String {
        self.key.clone()
    }
}

pub fn ping(key: i64, n: i64) -> Ping {
    Ping { key: format!("k{key}"), n, filler: "x".repeat(250) }
}

/// A transaction that a service's own statements can run in.
pub trait Runs: Transaction {
    fn run(&mut self, statement: &str) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

impl Runs for malote::sqlite::Tx {
    async fn run(&mut self, statement: &str) -> Result<(), sqlx::Error> {
        sqlx::query(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut **self).await.map(drop)
    }
}

impl Runs for malote::postgres::Tx {
    async fn run(&mut self, statement: &str) -> Result<(), sqlx::Error> {
        sqlx::query(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut **self).await.map(drop)
    }
}

/// A store that can be made, and asked for a number.
#[allow(async_fn_in_trait)]
pub trait Place: FullStore<Tx: Runs> {
    /// Where fresh ones are made.
    type Home: ?Sized;
    const NAME: &'static str;
    async fn fresh(home: &Self::Home, name: &str) -> Fallible<Self>;
    async fn count(&self, query: &str) -> Fallible<i64>;

    /// Runs a statement in a transaction of its own.
    async fn once(&self, statement: &str) -> Fallible<()> {
        let mut tx = malote::Outbox::new("bench", self.clone()).begin().await?;
        tx.run(statement).await?;
        Ok(tx.commit().await?)
    }

    /// Waits until a count has come to what is expected; returns when it had.
    async fn until(&self, query: &str, expected: i64) -> Fallible<Instant> {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let (found, now) = (self.count(query).await?, Instant::now());
            if found >= expected {
                return Ok(now);
            }
            if now > end {
                return Err(format!("{query}: {found} after two minutes, not {expected}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
        }
    }
}

impl Place for Sqlite {
    type Home = Path;
    const NAME: &'static str = "SQLite";
    async fn fresh(home: &Path, name: &str) -> Fallible<Self> {
        let path = home.join(format!("{}.db", servers::unique(name)));
        let store = Sqlite::open(path.to_str().ok_or("a path that is no text")?).await?;
        store.migrate().await?;
        Ok(store)
    }
    async fn count(&self, query: &str) -> Fallible<i64> {
        let query = query.replace("malote.", "malote_");
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(self.pool()).await?)
    }
}

impl Place for Postgres {
    type Home = PostgresAt;
    const NAME: &'static str = "PostgreSQL";
    async fn fresh(home: &PostgresAt, name: &str) -> Fallible<Self> {
        let (home, name) = (home.clone(), servers::unique(name));
        let url = tokio::task::spawn_blocking(move || home.create_database(&name)).await??;
        let store = Postgres::connect(&url).await?;
        store.migrate().await?;
        Ok(store)
    }
    async fn count(&self, query: &str) -> Fallible<i64> {
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(self.pool()).await?)
    }
}

/// A log of its own, in a folder that goes with it.
pub async fn log(folder: &Path) -> Fallible<Arc<dyn Transport>> {
    let log = Embedded::open(folder.join("log.db").to_str().ok_or("a path that is no text")?).await?;
    log.ensure(&["ping.v1".into(), "pong.v1".into()]).await?;
    Ok(Arc::new(log))
}

/// Writes pings to an outbox, in one transaction.
pub async fn write<S: Place>(store: &S, pings: impl Iterator<Item = Ping>) -> Fallible<()> {
    let mut tx = malote::Outbox::new("asker", store.clone()).begin().await?;
    let mut sealed = Vec::new();
    for ping in pings {
        sealed.push(tx.sealer().seal(Message::of(&ping)?)?);
    }
    tx.append(sealed).await?;
    Ok(tx.commit().await?)
}

/// Puts pings on a log past every outbox.
pub async fn fill<S: Place>(log: &Arc<dyn Transport>, maker: &S, pings: impl Iterator<Item = Ping>) -> Fallible<()> {
    let mut tx = malote::Outbox::new("maker", maker.clone()).begin().await?;
    let mut publisher = log.publisher().await?;
    let mut batch = Vec::new();
    for ping in pings {
        batch.push(tx.sealer().seal(Message::of(&ping)?)?);
        if batch.len() == 1_000 {
            publisher.send(std::mem::take(&mut batch)).await?.await;
        }
    }
    publisher.send(batch).await?.await;
    tx.rollback().await?;
    Ok(())
}

/// A runtime at work, until it is stopped.
pub struct Running(oneshot::Sender<()>, JoinHandle<Result<(), malote::RuntimeError>>);

pub fn start(runtime: Runtime) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    Running(stop, tokio::spawn(async move { runtime.run_until(stopped).await }))
}

impl Running {
    pub async fn stop(self) -> Fallible<()> {
        drop(self.0);
        Ok(self.1.await??)
    }
}
