//! What the runtime's tests share: a fresh service on each store, events, and a record of what happened.
#![allow(missing_docs, dead_code)]

use malote::{Event, FullStore, Outcome, Runtime, Transaction, Transport, sqlite::Embedded, sqlite::Sqlite};
use malote_testkit::servers;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

/// Longer than anything here takes; a test that waits so long has failed. Shorter where tests are
/// run that have to fail.
pub const LONG: Duration = Duration::from_secs(if cfg!(feature = "planted") { 15 } else { 60 });

/// Waits until something is so that gives no sign of it.
pub async fn eventually(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await; // between two looks
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Ping {
    pub key: String,
    pub n: i64,
}
impl Event for Ping {
    const TYPE: &'static str = "ping.v1";
    fn key(&self) -> String {
        self.key.clone()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
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

pub fn ping(key: &str, n: i64) -> Ping {
    Ping { key: key.into(), n }
}

/// What happened, in order, with a way to wait for it.
#[derive(Clone)]
pub struct Log<T>(Arc<Mutex<Vec<T>>>, watch::Sender<usize>);

impl<T: Clone + std::fmt::Debug> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default(), watch::Sender::new(0))
    }
}

impl<T: Clone + std::fmt::Debug> Log<T> {
    pub fn add(&self, what: T) {
        let mut log = self.0.lock().unwrap();
        log.push(what);
        self.1.send_replace(log.len());
    }
    pub fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
    /// Waits until something is true of all that happened.
    pub async fn until(&self, what: impl Fn(&[T]) -> bool) -> Vec<T> {
        self.within(LONG, what).await
    }
    /// The same, for what takes its time.
    pub async fn within(&self, time: Duration, what: impl Fn(&[T]) -> bool) -> Vec<T> {
        let mut changes = self.1.subscribe();
        let waited = tokio::time::timeout(time, async {
            while !what(&self.0.lock().unwrap()) {
                changes.changed().await.unwrap();
            }
        });
        assert!(waited.await.is_ok(), "did not come to it: {:?}", self.all());
        self.all()
    }
}

/// Notes what is handled and answers it.
pub async fn answer<T: Transaction>(ping: Ping, _: &mut T, log: &Log<Ping>) -> Outcome<Pong> {
    log.add(ping.clone());
    Ok(Pong { key: ping.key, n: ping.n })
}

pub async fn hear<T: Transaction>(pong: Pong, _: &mut T, log: &Log<Pong>) -> Outcome {
    log.add(pong);
    Ok(())
}

/// A store that a test can make and look into.
#[allow(async_fn_in_trait)]
pub trait TestStore: FullStore {
    /// None where its server cannot be had, which is then counted as skipped.
    async fn fresh(name: &str) -> Option<Self>;
    async fn count(&self, query: &str) -> i64;
    async fn execute(&self, query: &str);
    /// Waits until a count is what is expected; the store gives no sign of it.
    async fn until_count(&self, query: &str, expected: i64) {
        let end = Instant::now() + LONG;
        loop {
            let found = self.count(query).await;
            if found == expected {
                return;
            }
            assert!(Instant::now() < end, "{query}: {found}, not {expected}");
            tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
        }
    }
}

/// Publishes pings as service `asker`.
pub async fn ask<S: TestStore>(store: &S, pings: impl IntoIterator<Item = Ping>) {
    say(store, pings.into_iter().map(|ping| malote::Message::of(&ping).unwrap())).await;
}

/// Publishes as service `asker`, in one transaction.
pub async fn say<S: TestStore>(store: &S, messages: impl IntoIterator<Item = malote::Message>) {
    let outbox = malote::Outbox::new("asker", store.clone());
    let mut tx = outbox.begin().await.unwrap();
    let sealed = messages.into_iter().map(|message| tx.sealer().seal(message).unwrap()).collect();
    tx.append(sealed).await.unwrap();
    tx.commit().await.unwrap();
}

impl TestStore for Sqlite {
    async fn fresh(name: &str) -> Option<Self> {
        let store = Sqlite::open(folder().join(format!("{name}.db")).to_str().unwrap()).await.unwrap();
        store.migrate().await.unwrap();
        Some(store)
    }
    async fn count(&self, query: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(query.replace("malote.", "malote_")))
            .fetch_one(self.pool())
            .await
            .unwrap()
    }
    async fn execute(&self, query: &str) {
        let outbox = malote::Outbox::new("test", self.clone());
        let mut tx = outbox.begin().await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(query.replace("malote.", "malote_"))).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
}

impl TestStore for malote::postgres::Postgres {
    async fn fresh(name: &str) -> Option<Self> {
        let url = servers::fresh_database(name)?;
        let store = malote::postgres::Postgres::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        Some(store)
    }
    async fn count(&self, query: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(self.pool()).await.unwrap()
    }
    async fn execute(&self, query: &str) {
        sqlx::query(sqlx::AssertSqlSafe(query.to_owned())).execute(self.pool()).await.unwrap();
    }
}

/// A folder of this test's own; the system's temporary folder is cleared by the system.
pub fn folder() -> std::path::PathBuf {
    tempfile::Builder::new().prefix("malote-").tempdir().unwrap().keep()
}

pub async fn log() -> Arc<dyn Transport> {
    Arc::new(Embedded::open(folder().join("log.db").to_str().unwrap()).await.unwrap())
}

/// A runtime at work, until it is stopped.
pub struct Running(oneshot::Sender<()>, JoinHandle<()>);

pub async fn start(runtime: Runtime) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let health = runtime.health();
    let task = tokio::spawn(async move { runtime.run_until(stopped).await.unwrap() });
    tokio::time::timeout(LONG, health.ready()).await.unwrap_or_else(|_| panic!("not ready: {:?}", health.parts()));
    Running(stop, task)
}

impl Running {
    pub async fn stop(self) {
        drop(self.0);
        self.1.await.unwrap();
    }
}

/// A test that stands still fails.
pub async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(2 * LONG, test).await.expect("the test stands still");
}

/// Runs each test on every store.
#[macro_export]
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() {
                $crate::common::in_time(super::$test::<malote::sqlite::Sqlite>()).await
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() {
                $crate::common::in_time(super::$test::<malote::postgres::Postgres>()).await
            })+
        }
    };
}
