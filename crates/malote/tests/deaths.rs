//! Processes that die over a record, and what is left of the record.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    Outcome, Runtime, Service, Transaction, Transport,
    inspect::Filter,
    retry::Policy,
    sqlite::{Embedded, Sqlite},
    with,
};
use malote_testkit::{
    child::{Other, say, told},
    servers,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The number over which a worker dies.
const DEADLY: i64 = 13;
const MANY: i64 = 3_000;

/// Answers each ping with one pong, or with many where so many are asked for.
async fn deadly<T: Transaction>(ping: Ping, _: &mut T, plan: &String) -> Outcome<Vec<Pong>> {
    match &**plan {
        "abort" if ping.n == DEADLY => std::process::abort(),
        "many" => {
            say("begun");
            Ok((0..MANY).map(|n| Pong { key: ping.key.clone(), n }).collect())
        }
        _ => Ok(vec![Pong { key: ping.key, n: ping.n }]),
    }
}

fn policy() -> Policy {
    Policy::default().attempts(3).backoff(Duration::from_millis(1), Duration::from_millis(10))
}

async fn worker<S: TestStore>(store: S, log: Arc<dyn Transport>, plan: String) {
    let service = Service::new("worker", store, log)
        .on(with(plan, deadly::<S::Tx>))
        .terminal::<Pong>()
        .retry(policy())
        .lease(Duration::from_millis(500));
    let running = start(Runtime::new().with(service)).await;
    say("ready");
    // ends with its parent, which kills it
    tokio::time::sleep(Duration::from_secs(600)).await;
    running.stop().await;
}

/// Is a worker, when it is told so.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let Some(words) = told() else { return };
    let [plan, store, log] = &words[..] else { panic!("a plan, a store and a log are expected: {words:?}") };
    let log: Arc<dyn Transport> =
        Arc::new(Embedded::builder().lease(Duration::from_millis(500)).open(log).await.unwrap());
    if store.starts_with("postgres") {
        worker(malote::postgres::Postgres::connect(store).await.unwrap(), log, plan.clone()).await;
    } else {
        worker(Sqlite::open(store).await.unwrap(), log, plan.clone()).await;
    }
}

/// A store that another process can open.
struct Shared<S>(S, String);

async fn sqlite() -> Option<Shared<Sqlite>> {
    let path = folder().join("worker.db").to_str().unwrap().to_owned();
    let store = Sqlite::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    Some(Shared(store, path))
}

async fn postgres() -> Option<Shared<malote::postgres::Postgres>> {
    let url = servers::fresh_database("worker")?;
    let store = malote::postgres::Postgres::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Some(Shared(store, url))
}

/// One who asks and hears, in this process, and a log that others can open.
struct Desk {
    asker: Sqlite,
    heard: Log<Pong>,
    running: Running,
    log: String,
}

impl Desk {
    async fn open() -> Self {
        let path = folder().join("log.db").to_str().unwrap().to_owned();
        let log: Arc<dyn Transport> =
            Arc::new(Embedded::builder().lease(Duration::from_millis(500)).open(&path).await.unwrap());
        let (asker, heard) = (Sqlite::fresh("asker").await.unwrap(), Log::default());
        let service = Service::new("asker", asker.clone(), log)
            .emits::<Ping>()
            .on(with(heard.clone(), hear::<malote::sqlite::Tx>));
        Self { asker, heard, running: start(Runtime::new().with(service)).await, log: path }
    }
}

/// Starts workers until one lives; returns how many died.
async fn until_one_lives(plan: &str, store: &str, log: &str, done: impl AsyncFn() -> bool) -> (u32, Other) {
    let mut deaths = 0;
    loop {
        let mut other = Other::start_with(&[plan, store, log]);
        let lives = loop {
            if other.has_ended() {
                break false;
            }
            if done().await {
                break true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
        };
        if lives {
            return (deaths, other);
        }
        deaths += 1;
        assert!(deaths < 8, "a crash loop");
    }
}

async fn a_record_that_kills_is_set_aside<S: TestStore>(shared: Option<Shared<S>>, plan: &str, most: u32) {
    let Some(Shared(store, url)) = shared else { return };
    let desk = Desk::open().await;
    ask(&desk.asker, (0..20).map(|n| ping(&format!("k{}", n % 5), n))).await;
    let dead = "select count(*) from malote.dead";
    let (deaths, other) = until_one_lives(plan, &url, &desk.log, async || store.count(dead).await == 1).await;
    let heard = desk.heard.until(|all: &[Pong]| all.len() == 19).await;
    // what was suspect, known or not, has come to its end
    store.until_count("select count(*) from malote.run", 0).await;
    drop(other);
    desk.running.stop().await;
    assert!((2..=most).contains(&deaths), "{deaths} deaths");
    let heard: BTreeSet<i64> = heard.iter().map(|pong| pong.n).collect();
    assert_eq!(heard, (0..20).filter(|n| *n != DEADLY).collect());
    let dead = store.dead(&Filter::default(), 10).await.unwrap();
    assert!(dead[0].reason.contains("died") && dead[0].kind.as_deref() == Some("ping.v1"), "{dead:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ac_012_a_record_that_kills_its_process_is_set_aside_on_sqlite() {
    in_time(a_record_that_kills_is_set_aside(sqlite().await, "abort", 4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ac_012_a_record_that_kills_its_process_is_set_aside_on_postgres() {
    in_time(a_record_that_kills_is_set_aside(postgres().await, "abort", 4)).await;
}

async fn many_answers_are_written_once<S: TestStore>(shared: Option<Shared<S>>) {
    let Some(Shared(store, url)) = shared else { return };
    let desk = Desk::open().await;
    ask(&desk.asker, [ping("k", 0)]).await;
    let inbox = "select count(*) from malote.inbox";
    for death in 0..3 {
        if store.count(inbox).await > 0 {
            break;
        }
        let mut other = Other::start_with(&["many", &url, &desk.log]);
        let mut other = tokio::task::spawn_blocking(move || {
            while other.hear().is_some_and(|said| said != "begun") {}
            other
        })
        .await
        .unwrap();
        // in the middle of writing or of sending them; the last time when the first one can be seen
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..30))).await;
        while death == 2 && store.count("select count(*) from malote.outbox").await == 0 {
            tokio::task::yield_now().await;
        }
        other.kill();
    }
    let other = Other::start_with(&["plain", &url, &desk.log]);
    store.until_count(inbox, 1).await;
    let said = usize::try_from(store.count("select count(*) from malote.outbox").await).unwrap();
    desk.heard.until(|all: &[Pong]| all.len() >= said).await;
    drop(other);
    desk.running.stop().await;
    let heard = desk.heard.all();
    let different: BTreeSet<i64> = heard.iter().map(|pong| pong.n).collect();
    assert_eq!(heard.len(), different.len(), "each once");
    let ids = store.count("select count(distinct id) from malote.outbox").await;
    assert_eq!(ids, store.count("select count(*) from malote.outbox").await);
    assert!(ids == MANY || ids == 1, "{ids}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ac_043_what_a_handler_says_is_written_once_whenever_it_dies_on_sqlite() {
    in_time(many_answers_are_written_once(sqlite().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ac_043_what_a_handler_says_is_written_once_whenever_it_dies_on_postgres() {
    in_time(many_answers_are_written_once(postgres().await)).await;
}
