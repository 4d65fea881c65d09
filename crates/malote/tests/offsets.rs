//! What runs side by side is acknowledged together, when all of it is done.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    IdempotencyKey, Outcome, Runtime, Service, Transaction, Transport,
    kafka::Kafka,
    sqlite::{Embedded, Sqlite},
    with,
};
use malote_testkit::servers;
use std::{sync::Arc, time::Duration};

on_each_store!(ac_050_a_slow_effect_is_not_passed_over_by_a_later_one);

const ROWS: i64 = 600;

/// Takes a random while, so that a later one is often done first.
async fn call(ping: Ping, _: IdempotencyKey, called: &Log<Ping>) -> Outcome<Ping> {
    called.add(ping.clone());
    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..20_000))).await;
    Ok(ping)
}

async fn keep<T: Transaction>(ping: Ping, _: &mut T) -> Outcome<Pong> {
    Ok(Pong { key: ping.key, n: ping.n })
}

/// Dies at random moments; in the end the effects are those of the topic, each recorded once.
async fn whatever_dies<S: TestStore>(transport: Arc<dyn Transport>) {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("caller").await) else { return };
    let called = Log::default();
    let asker = Service::new("asker", a.clone(), transport.clone()).emits::<Ping>();
    let asking = start(Runtime::new().with(asker)).await;
    ask(&a, (0..ROWS).map(|n| ping(&format!("k{}", n % 100), n))).await;
    let caller = || {
        Service::new("caller", b.clone(), transport.clone())
            .effect(with(called.clone(), call), keep::<S::Tx>)
            .terminal::<Pong>()
            .without_relay()
            .batch(100)
    };
    for _ in 0..5 {
        let before = called.all().len();
        let runtime = Runtime::new().with(caller());
        let killed = tokio::spawn(async move { runtime.run_until(std::future::pending::<()>()).await });
        called.until(|all| all.len() > before + 20).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..60_000))).await; // a random moment
        killed.abort();
    }
    let running = start(Runtime::new().with(caller())).await;
    b.until_count("select count(*) from malote.outbox", ROWS).await;
    running.stop().await;
    asking.stop().await;
    assert_eq!(b.count("select count(*) from malote.inbox where state = 'done'").await, ROWS);
}

async fn ac_050_a_slow_effect_is_not_passed_over_by_a_later_one<S: TestStore>() {
    let path = folder().join("log.db");
    let log = Embedded::builder().lease(Duration::from_millis(500)).open(path.to_str().unwrap());
    whatever_dies::<S>(Arc::new(log.await.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ac_050_a_slow_effect_is_not_passed_over_by_a_later_one_on_kafka() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka = Kafka::builder(&bootstrap).partitions(3).session(Duration::from_secs(6)).connect().unwrap();
    in_time(whatever_dies::<Sqlite>(Arc::new(kafka))).await;
}
