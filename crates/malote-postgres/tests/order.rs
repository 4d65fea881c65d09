//! Every committed row is sent, in an order that each aggregate has gone through.
#![allow(missing_docs)]

mod common;

use common::{Changed, Relay, changed, open, sealer, until};
use malote_postgres::{Postgres, Tx};
use sqlx::Executor;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use uuid::Uuid;

async fn tx_with(store: &Postgres, key: &str) -> Tx {
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed(key, 1)).await.unwrap();
    tx
}

/// T1 takes a position and waits, T2 commits: both are sent.
#[tokio::test]
async fn ac_007_a_late_commit_is_sent() {
    let Some(store) = open().await else { return };
    let mut relay = Relay::start(&store).await;
    let late = tx_with(&store, "late").await;
    tx_with(&store, "early").await.commit().await.unwrap();
    relay.step().await;
    assert_eq!(relay.keys(), ["early"]);
    // a bound that is asked for while the writer runs closes nothing
    for _ in 0..5 {
        relay.save().await;
        relay.step().await;
    }
    late.commit().await.unwrap();
    relay.drain().await;
    assert_eq!(relay.keys(), ["early", "late"]);
}

/// A rolled-back position, a savepoint's, and the numbers that a failed statement used up: none stays open.
#[tokio::test]
async fn ac_007_what_was_rolled_back_is_closed() {
    let Some(store) = open().await else { return };
    let mut relay = Relay::start(&store).await;
    tx_with(&store, "rolled back").await.rollback().await.unwrap();
    drop(tx_with(&store, "dropped").await);
    let mut tx = tx_with(&store, "kept").await;
    let undone = tx.attempt(async |tx| {
        tx.publish(changed("undone", 1)).await.unwrap();
        Err::<(), ()>(())
    });
    assert_eq!(undone.await.unwrap(), Err(()));
    tx.publish(changed("kept", 2)).await.unwrap();
    tx.commit().await.unwrap();
    relay.drain().await;
    assert_eq!(relay.keys(), ["kept", "kept"]);
    assert_eq!(relay.save().await.high, 5);
}

/// The highest id that a snapshot knows of is lower than that of a running transaction that began after
/// the last one to complete; so it bounds nothing.
#[tokio::test]
async fn ac_007_the_snapshot_xmax_is_no_bound() {
    let Some(store) = open().await else { return };
    let mut relay = Relay::start(&store).await;
    // the writer of the visible row has its id first, and its position last
    let mut visible = store.begin(sealer()).await.unwrap();
    visible.execute("SELECT pg_current_xact_id()").await.unwrap();
    let hidden = tx_with(&store, "hidden").await;
    visible.publish(changed("visible", 1)).await.unwrap();
    visible.commit().await.unwrap();
    sent_after_all(&mut relay, hidden).await;
}

/// The id of a transaction that was given out before the gap's holder got its own bounds nothing.
#[tokio::test]
async fn ac_007_a_bound_is_younger_than_the_read() {
    let Some(store) = open().await else { return };
    let mut relay = Relay::start(&store).await;
    relay.save().await;
    let hidden = tx_with(&store, "hidden").await;
    tx_with(&store, "visible").await.commit().await.unwrap();
    sent_after_all(&mut relay, hidden).await;
}

async fn sent_after_all(relay: &mut Relay, hidden: Tx) {
    relay.step().await;
    assert_eq!(relay.keys(), ["visible"]);
    for _ in 0..3 {
        relay.save().await;
        relay.step().await;
    }
    hidden.commit().await.unwrap();
    relay.drain().await;
    assert_eq!(relay.keys(), ["visible", "hidden"]);
}

/// Whoever has a position had a transaction id before: or a writer between the two would be unknown to
/// every snapshot, and its gap be closed.
#[tokio::test]
async fn ac_007_the_id_comes_before_the_position() {
    let Some(store) = open().await else { return };
    // stands for a writer that the scheduler stops while the defaults of its row are evaluated
    let wait = "CREATE FUNCTION wait() RETURNS uuid LANGUAGE plpgsql VOLATILE AS \
                'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN gen_random_uuid(); END'";
    store.pool().execute(wait).await.unwrap();
    // A sequence takes an id itself when it writes to the log, once in 32 numbers; not now.
    tx_with(&store, "first").await.commit().await.unwrap();
    let mut gate = store.begin(sealer()).await.unwrap();
    gate.execute("SELECT pg_advisory_lock(7)").await.unwrap();

    let slow = tokio::spawn({
        let pool = store.pool().clone();
        let insert = "INSERT INTO malote.outbox (id, type, key, payload) VALUES (wait(), 'x.v1', 'slow', '{}')";
        async move { pool.execute(insert).await.map(drop) }
    });
    let stopped = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    until("the writer waits", || async { sqlx::query_scalar(stopped).fetch_one(store.pool()).await.unwrap() }).await;
    tx_with(&store, "fast").await.commit().await.unwrap();

    let mut relay = Relay::start(&store).await;
    relay.step().await;
    for _ in 0..3 {
        relay.save().await;
        relay.step().await;
    }
    gate.execute("SELECT pg_advisory_unlock(7)").await.unwrap();
    slow.await.unwrap().unwrap();
    relay.drain().await;
    assert_eq!(relay.keys(), ["first", "fast", "slow"]);
}

/// With two statements, a row can commit between the one that would show it and the one that says that
/// its writer has ended.
#[tokio::test]
async fn ac_007_gaps_and_tail_are_one_snapshot() {
    let Some(store) = open().await else { return };
    let mut relay = Relay::start(&store).await;
    let late = tx_with(&store, "late").await;
    tx_with(&store, "early").await.commit().await.unwrap();
    relay.step().await;
    relay.save().await;

    let reading = tokio::spawn(async move {
        relay.step().await;
        relay
    });
    let pausing = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND datname = current_database()";
    until("the read is over, or pauses", || async {
        reading.is_finished() || sqlx::query_scalar(pausing).fetch_one(store.pool()).await.unwrap()
    })
    .await;
    late.commit().await.unwrap();
    let mut relay = reading.await.unwrap();
    relay.drain().await;
    assert_eq!(relay.keys(), ["early", "late"]);
}

/// T1 has the lower id and changes the aggregate last.
#[tokio::test]
async fn ac_005_the_order_is_the_aggregates_own() {
    let Some(store) = open().await else { return };
    store.pool().execute("CREATE TABLE other (n int); CREATE TABLE aggregate AS SELECT 0 AS version").await.unwrap();
    let change = "UPDATE aggregate SET version = version + 1 RETURNING version";
    let mut first = store.begin(sealer()).await.unwrap();
    first.execute("INSERT INTO other VALUES (1)").await.unwrap();
    let mut second = store.begin(sealer()).await.unwrap();
    for tx in [&mut second, &mut first] {
        let version: i32 = sqlx::query_scalar(change).fetch_one(&mut **tx).await.unwrap();
        tx.publish(changed("a", version.into())).await.unwrap();
        if version == 1 {
            // the second; the first changes only what is committed
            std::mem::replace(tx, store.begin(sealer()).await.unwrap()).commit().await.unwrap();
        }
    }
    first.commit().await.unwrap();
    let mut relay = Relay::start(&store).await;
    relay.drain().await;
    let versions: Vec<i64> = relay.sent.iter().map(|sent| sent.version).collect();
    assert_eq!(versions, [1, 2]);
}

/// Sixteen writers with holds, rollbacks and savepoints, relays that die, and the keeper at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_007_a_hundred_thousand_rows_of_sixteen_writers() {
    let Some(url) = malote_testkit::servers::fresh_database("store") else { return };
    let store = common::migrated(
        Postgres::builder(url).connections(24).partition_rows(20_000).keep_outbox(std::time::Duration::ZERO),
    )
    .await;
    store
        .pool()
        .execute("CREATE TABLE aggregate AS SELECT n AS id, 0::int8 AS version FROM generate_series(0, 199) n")
        .await
        .unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        writers.spawn(write(store.clone(), writer));
    }
    let written = Arc::new(AtomicBool::new(false));
    let relaying = tokio::spawn(relay_that_dies(store.clone(), written.clone()));
    let committed: HashMap<Uuid, i64> = writers.join_all().await.into_iter().flatten().collect();
    written.store(true, Ordering::SeqCst);
    assert!(committed.len() >= 100_000);
    until("all is sent", || async { relaying.is_finished() }).await;
    let relay = relaying.await.unwrap();

    let mut first = HashMap::new();
    let mut last_version: HashMap<&str, i64> = HashMap::new();
    for sent in &relay.sent {
        if first.insert(sent.id, sent.seq).is_none() {
            let before = last_version.insert(&sent.key, sent.version).unwrap_or(0);
            assert!(before < sent.version, "{} went from {before} to {}", sent.key, sent.version);
        }
    }
    let lost = committed.keys().filter(|id| !first.contains_key(id)).count();
    assert_eq!(lost, 0, "committed and never sent");
    assert_eq!(first.len(), committed.len(), "sent and never committed");
    let again = relay.sent.len() - first.len();
    assert!(again < committed.len() / 10, "{again} rows were sent again");
}

/// Writes rows until this writer's share is committed; returns their ids with their versions.
async fn write(store: Postgres, writer: u64) -> Vec<(Uuid, i64)> {
    let mut dice = fastrand::Rng::with_seed(writer);
    let mut committed = Vec::new();
    while committed.len() < 100_000 / 16 + 1 {
        let (aggregate, rows) = (dice.i32(0..200), dice.i64(1..60));
        let mut tx = store.begin(sealer()).await.unwrap();
        let mut ids = publish(&mut tx, aggregate, rows).await;
        if dice.u8(..) < 40 {
            let keep = dice.bool();
            let attempt = tx.attempt(async |tx| {
                let more = publish(tx, aggregate, 3).await;
                if keep { Ok(more) } else { Err(()) }
            });
            ids.extend(attempt.await.unwrap().unwrap_or_default());
        }
        match dice.u8(..) {
            0..2 => tokio::time::sleep(std::time::Duration::from_millis(dice.u64(100..300))).await,
            2..40 => tokio::time::sleep(std::time::Duration::from_millis(dice.u64(1..10))).await,
            _ => {}
        }
        match dice.u8(..) {
            0..15 => tx.rollback().await.unwrap(),
            15..25 => drop(tx),
            _ => {
                tx.commit().await.unwrap();
                committed.extend(ids);
            }
        }
    }
    committed
}

/// Changes an aggregate a few times under its lock.
async fn publish(tx: &mut Tx, aggregate: i32, rows: i64) -> Vec<(Uuid, i64)> {
    let change = "UPDATE aggregate SET version = version + $2 WHERE id = $1 RETURNING version";
    let query = sqlx::query_scalar(change).bind(aggregate).bind(rows);
    let version: i64 = query.fetch_one(&mut **tx).await.unwrap();
    let envelopes: Vec<_> = (version - rows + 1..=version)
        .map(|version| {
            tx.sealer().seal(malote_core::Message::of(&changed(aggregate.to_string(), version)).unwrap()).unwrap()
        })
        .collect();
    let written = envelopes.iter().map(|e| (e.id, e.open::<Changed>().unwrap().version)).collect();
    malote_core::Transaction::append(tx, envelopes).await.unwrap();
    written
}

/// Relays until all is written and no gap is open, and dies now and then: what it sent but did not
/// store is sent again by the next.
async fn relay_that_dies(store: Postgres, written: Arc<AtomicBool>) -> Relay {
    use malote_core::Store;
    let mut dice = fastrand::Rng::with_seed(99);
    let lasts = std::time::Duration::from_millis(500);
    let mut relay = Relay::take_up(&store, lasts, Vec::new()).await;
    let mut stored = malote_core::relay::Cursor::default();
    for round in 0u64.. {
        let over = written.load(Ordering::SeqCst);
        let mut positions = relay.read(dice.usize(1..800)).await;
        if over && positions.is_empty() && relay.plan.gaps().is_empty() {
            break;
        }
        positions.sort_unstable();
        if dice.u8(..) < 3 {
            // dies with rows under way; the next one waits for the lease to end
            relay = Relay::take_up(&store, lasts, std::mem::take(&mut relay.sent)).await;
            continue;
        }
        relay.plan.settle(&positions);
        if relay.plan.wants_bound() || dice.u8(..) < 20 {
            stored = relay.save().await;
        }
        if round % 50 == 49 {
            store.upkeep(&stored).await.unwrap();
        }
        if positions.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
    relay
}
