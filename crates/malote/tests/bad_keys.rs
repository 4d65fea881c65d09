//! Keys that fail cost the others little: measured side by side in one run, printed as a ratio.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    Budget, Failure, Message, Outcome, Runtime, Service, Transaction, Transport, inspect::Filter, retry::Policy, with,
};
use malote_testkit::soak;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

on_each_store!(soak_bad_keys_cost_the_good_ones_little);

const KEYS: i64 = 1_000;
/// Keys whose first message fails always, and those of which it fails three times.
const ALWAYS: i64 = 10;
const THRICE: i64 = 50;

/// Messages of each key, in the short form.
const EACH: i64 = 4;

/// How often each key's first message has failed, and in which order each key was handled.
#[derive(Default)]
struct Seen {
    failures: HashMap<String, u32>,
    bad: bool,
}

type Bench = Arc<Mutex<Seen>>;

/// Answers every message, so that the answers show which are through, and in which order.
async fn work<T: Transaction>(ping: Ping, _: &mut T, bench: &Bench) -> Outcome<Pong> {
    let number: i64 = ping.key[1..].parse()?;
    if ping.n == 0 && number < ALWAYS + THRICE {
        let mut seen = bench.lock().unwrap();
        let failures = seen.failures.entry(ping.key.clone()).or_default();
        // the first run may be made twice: with its neighbours, and alone
        let most = if number < ALWAYS { u32::MAX } else { 4 };
        if *failures < most {
            *failures += 1;
            if seen.bad {
                return Err(Failure::retry("one of the bad ones"));
            }
        }
    }
    Ok(Pong { key: ping.key, n: ping.n })
}

/// Fills a log, then handles it; returns how long the good keys took.
async fn run<S: TestStore>(bad: bool) -> Option<Duration> {
    let (maker, store) = (S::fresh("maker").await?, S::fresh("worker").await?);
    let log: Arc<dyn Transport> = log().await;
    log.ensure(&["ping.v1".into(), "pong.v1".into()]).await.unwrap();
    let mut tx = malote::Outbox::new("maker", maker).begin().await.unwrap();
    let mut publisher = log.publisher().await.unwrap();
    for n in 0..EACH {
        let batch = (0..KEYS).map(|key| tx.sealer().seal(Message::of(&ping(&format!("k{key}"), n)).unwrap()).unwrap());
        publisher.send(batch.collect()).await.unwrap().await;
    }
    tx.rollback().await.unwrap();
    let bench = Bench::new(Mutex::new(Seen { bad, ..Seen::default() }));
    let policy = Policy::default().attempts(5).backoff(Duration::from_millis(20), Duration::from_millis(200));
    let worker = Service::new("worker", store.clone(), log.clone())
        .on(with(bench.clone(), work::<S::Tx>))
        .retry(policy)
        .retry_budget(Budget { per_second: 1_000.0, burst: 1_000.0 });
    let good = "select count(*) from malote.outbox where type = 'pong.v1'";
    let began = Instant::now();
    let running = start(Runtime::new().with(worker)).await;
    // as many as the good keys have; the bad ones lag behind
    while store.count(good).await < (KEYS - ALWAYS - THRICE) * EACH {
        tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
    }
    let took = began.elapsed();
    let given_up = if bad { ALWAYS } else { 0 };
    store.until_count(good, KEYS * EACH - given_up).await;
    store.until_count("select count(*) from malote.dead", given_up).await;
    heard_in_order(log, given_up).await;
    running.stop().await;
    assert_eq!(store.count("select count(*) from malote.parked").await, 0);
    if bad {
        for letter in store.dead(&Filter::default(), 100).await.unwrap() {
            assert_eq!((letter.attempts, letter.history.entries().len()), (5, 5), "{letter:?}");
        }
    }
    Some(took)
}

/// Every answer is on the log, and those of each key are in order.
async fn heard_in_order(log: Arc<dyn Transport>, missing: i64) {
    let mut subscription = log.subscribe("reader", &["pong.v1".into()]).await.unwrap();
    let (mut next, mut heard) = (HashMap::<String, i64>::new(), 0);
    while heard < KEYS * EACH - missing {
        for delivery in subscription.next(1_000).await.unwrap() {
            let pong: Pong = serde_json::from_slice(&delivery.record.payload.unwrap()).unwrap();
            let expected = next.entry(pong.key.clone()).or_default();
            assert!(pong.n == *expected || (pong.n == 1 && *expected == 0), "{pong:?} came where {expected} was due");
            (*expected, heard) = (pong.n + 1, heard + 1);
        }
    }
    subscription.close().await;
}

async fn soak_bad_keys_cost_the_good_ones_little<S: TestStore>() {
    let (end, mut without, mut with, mut rounds) =
        (Instant::now() + soak::duration(Duration::ZERO), Duration::ZERO, Duration::ZERO, 0);
    while rounds < 1 || Instant::now() < end {
        let (Some(plain), Some(bad)) = (run::<S>(false).await, run::<S>(true).await) else { return };
        (without, with, rounds) = (without + plain, with + bad, rounds + 1);
    }
    let ratio = without.as_secs_f64() / with.as_secs_f64();
    println!(
        "{KEYS} keys, {ALWAYS} failing always, {THRICE} three times, {rounds} rounds: the good keys' throughput is \
         {ratio:.2} of that without bad ones"
    );
}
