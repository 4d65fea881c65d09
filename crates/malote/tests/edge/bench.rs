//! A small bank behind the edge, and a client for it.

#[path = "../common/mod.rs"]
#[allow(unused_macros)]
pub mod common;

use crate::desk::{Desk, busy, pay};
use axum::{Router, routing::post};
use common::TestStore;
use malote::{
    IdempotencyStore, Outbox,
    edge::{self, Body, Idempotency, Limits, Redis, Server},
    postgres::Postgres,
    sqlite::Sqlite,
};
use malote_testkit::servers;
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub use common::LONG;

/// Makes a test of each function for each store, alone and with Redis in front.
macro_rules! on_each_edge {
    ($($test:ident),+ $(,)?) => {
        on_each_edge!(@ sqlite, malote::sqlite::Sqlite, Alone, $($test),+);
        on_each_edge!(@ postgres, malote::postgres::Postgres, Alone, $($test),+);
        on_each_edge!(@ sqlite_redis, malote::sqlite::Sqlite, Redis, $($test),+);
        on_each_edge!(@ postgres_redis, malote::postgres::Postgres, Redis, $($test),+);
    };
    (@ $name:ident, $store:ty, $front:ident, $($test:ident),+) => {
        mod $name {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<$store>($crate::bench::Front::$front).await
            })+
        }
    };
}

/// What lies before the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Front {
    Alone,
    Redis,
}

/// A store in which the bank keeps its payments.
#[allow(async_fn_in_trait)]
pub trait Bank: TestStore + IdempotencyStore {
    /// Without a unique key: doubles must show.
    const TABLE: &str = "create table payment (key text not null, caller text not null, path text not null)";
    fn pay(
        tx: &mut Self::Tx,
        key: &str,
        caller: &str,
        path: &str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// A statement that fails.
    fn fail(tx: &mut Self::Tx) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Lets every lease of a claim be over.
    async fn end_leases(&self);
    /// Waits until nobody is inside a transaction.
    async fn until_nobody_is_inside(&self);
    /// Forgets all that was answered.
    async fn forget_everything(&self);
    async fn payments(&self, key: &str) -> i64 {
        self.count(&format!("select count(*) from payment where key = '{key}'")).await
    }
}

const INSERT: &str = "insert into payment (key, caller, path) values ($1, $2, $3)";
const WRONG: &str = "insert into payment (key, caller, path) values (null, null, null)";

impl Bank for Sqlite {
    async fn pay(tx: &mut Self::Tx, key: &str, caller: &str, path: &str) -> Result<(), sqlx::Error> {
        sqlx::query(INSERT).bind(key).bind(caller).bind(path).execute(&mut **tx).await.map(drop)
    }
    async fn fail(tx: &mut Self::Tx) -> Result<(), sqlx::Error> {
        sqlx::query(WRONG).execute(&mut **tx).await.map(drop)
    }
    async fn end_leases(&self) {
        let mut tx = Outbox::new("test", self.clone()).begin().await.unwrap();
        sqlx::query("update malote_idempotency set lease_until = 0").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    async fn forget_everything(&self) {
        let mut tx = Outbox::new("test", self.clone()).begin().await.unwrap();
        sqlx::query("delete from malote_idempotency").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    async fn until_nobody_is_inside(&self) {
        // there is one writer, so a second transaction begins when the first is over
        let begun = tokio::time::timeout(LONG, Outbox::new("test", self.clone()).begin()).await;
        begun.expect("somebody is inside a transaction").unwrap().rollback().await.unwrap();
    }
}

impl Bank for Postgres {
    async fn pay(tx: &mut Self::Tx, key: &str, caller: &str, path: &str) -> Result<(), sqlx::Error> {
        sqlx::query(INSERT).bind(key).bind(caller).bind(path).execute(&mut **tx).await.map(drop)
    }
    async fn fail(tx: &mut Self::Tx) -> Result<(), sqlx::Error> {
        sqlx::query(WRONG).execute(&mut **tx).await.map(drop)
    }
    async fn end_leases(&self) {
        self.execute("update malote.idempotency set lease_until = 'epoch'").await;
    }
    async fn forget_everything(&self) {
        self.execute("delete from malote.idempotency").await;
    }
    async fn until_nobody_is_inside(&self) {
        let inside = "select count(*) from pg_stat_activity \
                      where datname = current_database() and state like 'idle in transaction%'";
        until("nobody is inside a transaction", || async { self.count(inside).await == 0 }).await;
    }
}

/// Asks again and again until it is so.
pub async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let waited = tokio::time::timeout(LONG, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("it never came to it that {what}"));
}

/// How a bench is to be.
#[derive(Clone)]
pub struct Setup {
    pub limits: Limits,
    pub server: Server,
    /// Instead of the shared Redis.
    pub redis: Option<Redis>,
}

impl Default for Setup {
    fn default() -> Self {
        let limits = Limits { work_time: Duration::from_secs(15), ..Limits::default() };
        Self { limits, server: Server::default(), redis: None }
    }
}

/// A running bank.
pub struct Bench<S> {
    pub store: S,
    pub desk: Arc<Desk>,
    pub address: std::net::SocketAddr,
    pub stop: CancellationToken,
    pub serving: JoinHandle<std::io::Result<()>>,
    http: reqwest::Client,
}

impl<S: Bank> Bench<S> {
    /// `None` where a server cannot be had.
    pub async fn start(front: Front) -> Option<Self> {
        Self::with(front, Setup::default()).await
    }

    pub async fn with(front: Front, setup: Setup) -> Option<Self> {
        let store = S::fresh("edge").await?;
        store.execute(S::TABLE).await;
        Self::over(store, front, setup).await
    }

    /// Over a store that is there.
    pub async fn over(store: S, front: Front, setup: Setup) -> Option<Self> {
        let mut layer = Idempotency::new(store.clone(), &servers::unique("bank")).limits(setup.limits).unwrap();
        layer = layer.caller(|parts| {
            let caller = parts.headers.get("x-caller").map(|value| String::from_utf8_lossy(value.as_bytes()));
            Ok(caller.map_or_else(|| "anonymous".to_owned(), std::borrow::Cow::into_owned))
        });
        if front == Front::Redis {
            let redis = match setup.redis {
                Some(redis) => redis,
                None => Redis::new(&servers::redis()?).unwrap(),
            };
            layer = layer.redis(redis);
        }
        let desk = Arc::<Desk>::default();
        let router = Router::new()
            .route("/payment", post(pay::<S>).patch(pay::<S>))
            .route("/refund", post(pay::<S>))
            .route("/payment/{id}/capture", post(pay::<S>))
            .route_layer(layer)
            .route("/large", axum::routing::get(|| async { vec![b'x'; 64 << 20] }))
            .route("/read", axum::routing::post(|Body(value): Body<serde_json::Value>| async { Body(value) }))
            .route("/busy", axum::routing::get(busy))
            .with_state(desk.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(setup.server.serve(listener, edge::with_fallbacks(router), stop.clone()));
        let http = reqwest::Client::builder().timeout(LONG).no_proxy().build().unwrap();
        Some(Self { store, desk, address, stop, serving, http })
    }

    pub fn request(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.post(format!("http://{}{path}", self.address))
    }

    /// Sends a payment.
    pub async fn pay(&self, key: &str, body: &str) -> Reply {
        self.send("/payment", key, body).await
    }

    pub async fn send(&self, path: &str, key: &str, body: &str) -> Reply {
        Reply::of(self.request(path).header("idempotency-key", key).body(body.to_owned())).await
    }

    /// Sends a payment from a task of its own.
    pub fn pay_beside(&self, key: &str, body: &str) -> JoinHandle<Reply> {
        tokio::spawn(Reply::of(self.request("/payment").header("idempotency-key", key).body(body.to_owned())))
    }

    /// Waits until the server holds so many connections, as the system counts them.
    pub async fn until_connections(&self, many: usize) {
        const OPEN: [&str; 2] = ["01", "08"]; // established, or left by the client
        let port = format!(":{:04X}", self.address.port());
        until("the server has seen who left", || async {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let open = |line: &&str| {
                let fields: Vec<_> = line.split_whitespace().collect();
                fields[1].ends_with(&port) && OPEN.contains(&fields[3])
            };
            table.lines().filter(open).count() == many
        })
        .await;
    }

    /// Sends a payment again and again, until it no longer runs.
    pub async fn pay_to_the_end(&self, key: &str, body: &str) -> Reply {
        let paid = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                let reply = self.pay(key, body).await;
                if reply.status != 409 {
                    return reply;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        paid.await.unwrap_or_else(|_| panic!("{key} is locked"))
    }
}

/// What a client sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub replayed: bool,
    pub retry_after: Option<String>,
    pub content_type: String,
    pub location: Option<String>,
    pub body: String,
}

impl Reply {
    pub async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.expect("an answer");
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        Self {
            status: response.status().as_u16(),
            replayed: header("idempotency-replayed").is_some_and(|value| value == "true"),
            retry_after: header("retry-after"),
            content_type: header("content-type").unwrap_or_default(),
            location: header("location"),
            body: response.text().await.expect("a body"),
        }
    }

    /// The same answer, as one that asks again gets it.
    pub fn again(&self) -> Self {
        Self { replayed: true, ..self.clone() }
    }

    /// Checks that it is a problem that says `hint`.
    pub fn problem(&self, status: u16, hint: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.content_type, "application/problem+json", "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["type"].is_string(), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(hint), "{hint:?}: {problem}");
    }
}
