//! A batch that gives up, parks and passes in several lanes, beside another transaction that changes the same lanes.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    Failure, Message, Outcome, Runtime, Service,
    postgres::{Postgres, Tx},
    retry::Policy,
    with,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

/// Another process makes lanes that the batch makes, too.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_two_make_at_once() {
    let make =
        |key: &str| format!("INSERT INTO malote.lane (consumer, topic, key) VALUES ('worker', 'ping.v1', '{key}')");
    in_time(beside(&[], [make("a"), make("b")])).await;
}

/// A retrier ends what is redriven in lanes in which the batch gives something up and parks something.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_are_given_up_and_parked_in() {
    in_time(beside(&["a", "b"], [change("a"), change("b")])).await;
}

/// A retrier ends what is redriven in lanes in which the batch gives something up and passes something.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_are_given_up_and_passed() {
    in_time(beside(&["Z", "a"], [change("Z"), change("a")])).await;
}

fn change(key: &str) -> String {
    format!("UPDATE malote.lane SET passed = passed + 1 WHERE key = '{key}'")
}

/// Who is well waits for the other transaction, so that this one has its first lane by then.
type Gate = Arc<(Log<i64>, Notify)>;

async fn work(ping: Ping, _: &mut Tx, gate: &Gate) -> Outcome {
    match &*ping.key {
        "a" => Err(Failure::reject("bad")),
        "b" => Err(Failure::retry("away")),
        _ => {
            gate.0.add(ping.n);
            gate.1.notified().await;
            Ok(())
        }
    }
}

/// A batch gives up in lane `a`, parks in `b` and handles in `Z`. In `known` lanes something is dead already. The other
/// transaction has changed its first lane when the batch comes to write, and changes its second one when the batch waits.
async fn beside(known: &[&str], [first, second]: [String; 2]) {
    let Some(store) = Postgres::fresh("worker").await else { return };
    for key in known {
        store
            .execute(&format!(
                "INSERT INTO malote.lane (consumer, topic, key, dead) VALUES ('worker', 'ping.v1', '{key}', 1)"
            ))
            .await;
    }
    let log: Arc<dyn malote::Transport> =
        Arc::new(malote::sqlite::Embedded::builder().partitions(1).open(folder().join("log.db")).await.unwrap());
    log.ensure(&["ping.v1".into()]).await.unwrap();
    let mut tx = malote::Outbox::new("maker", store.clone()).begin().await.unwrap();
    let pings = [ping("a", 0), ping("b", 1), ping("Z", 2)];
    let sealed = pings.iter().map(|ping| tx.sealer().seal(Message::of(ping).unwrap()).unwrap()).collect();
    tx.rollback().await.unwrap();
    log.publisher().await.unwrap().send(sealed).await.unwrap().await;

    let gate = Gate::default();
    let later = Duration::from_secs(600);
    let worker = Service::new("worker", store.clone(), log)
        .on(with(gate.clone(), work))
        .retry(Policy::default().attempts(3).backoff(later, later).deadline(LONG));
    let running = start(Runtime::new().with(worker)).await;
    gate.0.until(|begun| begun.len() == 1).await;
    let mut other = store.pool().begin().await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(first)).execute(&mut *other).await.unwrap();
    gate.1.notify_one();
    store.until_count("SELECT count(*) FROM pg_locks WHERE NOT granted", 1).await;
    sqlx::query(sqlx::AssertSqlSafe(second)).execute(&mut *other).await.unwrap();
    other.commit().await.unwrap();
    // where the batch was the one that had to give way, it runs once more
    gate.1.notify_one();
    store.until_count("SELECT count(*) FROM malote.inbox WHERE state IN ('done', 'dead', 'parked')", 3).await;
    running.stop().await;
    assert_eq!(gate.0.all(), [2], "the batch ran again: somebody had waited for somebody else in a circle");
    let dead = "SELECT count(*) FROM malote.lane WHERE key = 'a' AND due_at IS NULL AND dead = ";
    assert_eq!(store.count(&format!("{dead}{}", 1 + i64::from(known.contains(&"a")))).await, 1);
    assert_eq!(store.count("SELECT count(*) FROM malote.lane WHERE key = 'b' AND due_at > malote.clock()").await, 1);
}
