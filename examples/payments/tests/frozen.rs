//! A relay that freezes loses its lease, and changes nothing when it wakes.
#![allow(missing_docs)]

use malote_testkit::servers;
use sqlx::Connection;
use std::{
    fs::File,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_millis(600);
const PATIENCE: Duration = Duration::from_secs(60);

struct Relay(Child);
impl Drop for Relay {
    fn drop(&mut self) {
        signal(&self.0, "CONT");
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", "kill -s \"$@\"", "sh", name, &child.id().to_string()]).status();
    assert!(sent.expect("a shell").success());
}

/// The relay's row, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Row {
    epoch: i64,
    high: i64,
}

enum Database {
    Postgres(sqlx::PgConnection),
    Sqlite(sqlx::SqliteConnection),
}

impl Database {
    async fn open(store: &str) -> Self {
        match store.starts_with("postgres://") {
            true => Self::Postgres(sqlx::PgConnection::connect(store).await.unwrap()),
            false => Self::Sqlite(sqlx::SqliteConnection::connect(&format!("sqlite://{store}")).await.unwrap()),
        }
    }
    async fn row(&mut self) -> Row {
        let (epoch, high) = match self {
            Self::Postgres(db) => sqlx::query_as("SELECT epoch, high FROM malote.relay WHERE name = 'payment'")
                .fetch_one(db)
                .await
                .unwrap(),
            Self::Sqlite(db) => sqlx::query_as("SELECT epoch, high FROM malote_relay WHERE name = 'payment'")
                .fetch_one(db)
                .await
                .unwrap(),
        };
        Row { epoch, high }
    }
}

/// Three processes of the payment service; the leader is frozen for three times its lease while
/// payments come in, and thawed again.
async fn freeze_the_leader(store: String, folder: &std::path::Path) {
    let http = reqwest::Client::new();
    let mut relays = Vec::new();
    for name in ["a", "b", "c"] {
        let port = servers::Port::claim().unwrap();
        let log = File::create(folder.join(format!("{name}.log"))).unwrap();
        let base = format!("http://127.0.0.1:{}", port.number());
        let mut command = Command::new(env!("CARGO_BIN_EXE_payments"));
        command
            .arg("payment")
            .env("MALOTE_HTTP", format!("127.0.0.1:{}", port.number()))
            .env("MALOTE_DATA", folder)
            .env("MALOTE_STORE", &store)
            .env("MALOTE_LEASE_MS", LEASE.as_millis().to_string())
            .env("RUST_LOG", "info");
        let child = servers::bound(&command).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        relays.push((Relay(child), name, base, port));
        let base = &relays.last().unwrap().2;
        until("it is ready", async || http.get(format!("{base}/ready")).send().await.is_ok_and(|r| r.status() == 200))
            .await;
    }
    let log = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
    // the first one leads: it was ready before the others were there
    let leads = |log: &str| log.matches("relay leads").count();
    assert_eq!(leads(&log("a")), 1, "{}", log("a"));
    let mut database = Database::open(&store).await;
    let before = database.row().await;
    // a door that is not frozen
    let door = relays[1].2.clone();
    let pay = async |number: i64| {
        let body = r#"{"amount": 5, "from": "alice", "to": "bob"}"#;
        let request =
            http.post(format!("{door}/payment")).header("Idempotency-Key", format!("frozen-{number}")).body(body);
        request.send().await.unwrap().status() == 202
    };
    for number in 0..50 {
        assert!(pay(number).await);
    }
    let mut number = 50;
    loop {
        if let Database::Sqlite(_) = database {
            // whoever is frozen in the middle of a write holds SQLite's only write lock
            let end = Instant::now() + PATIENCE;
            while database.row().await.high < number {
                assert!(Instant::now() < end, "not everything was published");
                tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
            }
        }
        signal(&relays[0].0.0, "STOP");
        if pay(number).await {
            break;
        }
        signal(&relays[0].0.0, "CONT");
        until("it is accepted", async || pay(number).await).await;
        number += 1;
    }
    number += 1;
    let mut seen = database.row().await;
    let frozen = Instant::now();
    while frozen.elapsed() < LEASE * 3 {
        assert!(pay(number).await);
        number += 1;
        let now = database.row().await;
        assert!(now.epoch >= seen.epoch && now.high >= seen.high, "{seen:?} was followed by {now:?}");
        seen = now;
    }
    assert!(seen.epoch > before.epoch, "nobody took over: {before:?} {seen:?}");
    signal(&relays[0].0.0, "CONT");
    until("the thawed one notices", async || {
        let now = log("a");
        now.contains("fenced") || leads(&now) > 1
    })
    .await;
    assert!(log("a").contains("fenced"), "it went on under its old lease:\n{}", log("a"));
    let mut row = seen;
    let end = Instant::now() + PATIENCE;
    while row.high < number {
        let now = database.row().await;
        assert!(now.epoch >= row.epoch && now.high >= row.high, "{row:?} was followed by {now:?}");
        row = now;
        assert!(Instant::now() < end, "not everything was published: {row:?}, {number} payments");
        tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
    }
}

async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ac_001_a_frozen_relay_changes_nothing_when_it_wakes_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    freeze_the_leader(folder.path().join("payment.db").to_str().unwrap().to_owned(), folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ac_001_a_frozen_relay_changes_nothing_when_it_wakes_postgres() {
    let Some(url) = servers::fresh_database("frozen") else { return };
    let folder = tempfile::tempdir().unwrap();
    freeze_the_leader(url, folder.path()).await;
}
