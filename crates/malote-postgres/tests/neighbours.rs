//! What others do to the same database: long transactions, old snapshots, replication slots.
#![allow(missing_docs)]

mod common;

use common::{Relay, changed, migrated, open, sealer, until};
use malote_core::{
    Incarnation, Saved, Store, Taken,
    inspect::{Grade, Inspect},
    relay::Plan,
};
use malote_postgres::Postgres;
use malote_testkit::servers;
use sqlx::{Executor, Row};
use std::time::Duration;
use uuid::Uuid;

/// The writer holds its row for three leases. Two relays are there; each row is sent once all the same: there is one
/// way to send, and it takes the lease. Age counts once the row is to be seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_008_a_long_transaction_is_sent_once() {
    let Some(store) = open().await else { return };
    common::stop_clock(&store).await;
    let lease = Duration::from_secs(30);
    let mut long = store.begin(sealer()).await.unwrap();
    long.publish(changed("long", 1)).await.unwrap();
    let mut relay = Relay::take_up(&store, lease, Vec::new()).await;
    let standby = Incarnation(Uuid::now_v7());
    let mut second = Vec::new();
    let mut go_round = async |relay: &mut Relay, n: i64| {
        common::pass(&store, lease / 2).await;
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.publish(changed("short", n)).await.unwrap();
        tx.commit().await.unwrap();
        if let Taken::Mine { lease: taken, cursor, .. } = store.take_lease("relay", standby, lease).await.unwrap() {
            let (plan, sent) = (Plan::resume(cursor), Vec::new());
            let mut other = Relay { store: store.clone(), plan, lease: taken, lasts: lease, sent };
            other.step().await;
            second.extend(other.sent);
        }
        relay.step().await;
        let (ticket, cursor) = (relay.plan.ask_bound(), relay.plan.cursor());
        if let Saved::Kept { bound } = store.save(&relay.lease, &cursor, lease).await.unwrap() {
            relay.plan.bound(ticket, bound);
        }
    };
    for n in 0..7 {
        go_round(&mut relay, n).await;
    }
    assert_eq!(store.status().await.unwrap().outbox.pending, 0, "what nobody can see is not late");
    long.commit().await.unwrap();
    let pending = store.status().await.unwrap().outbox;
    assert_eq!((pending.pending, pending.oldest.unwrap().1), (1, "long".into()));
    for n in 7..9 {
        go_round(&mut relay, n).await;
    }
    let sent = || relay.sent.iter().chain(&second);
    let count = |key: &str| sent().filter(|sent| sent.key == key).count();
    assert_eq!((count("long"), count("short")), (1, 9), "each is sent once");
}

/// malote makes no slot and needs none; one of somebody else's that keeps the log is told.
#[tokio::test]
async fn ac_031_a_foreign_slot_is_told() {
    let Some(server) = servers::Postgres::start_or_skip() else { return };
    let url = server.create_database("store").unwrap();
    let store = migrated(Postgres::builder(url)).await;
    let mut relay = Relay::start(&store).await;
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("a", 1)).await.unwrap();
    tx.commit().await.unwrap();
    relay.drain().await;
    store.upkeep(&relay.save().await).await.unwrap();
    assert_eq!(server.psql("store", "SELECT count(*) FROM pg_replication_slots").unwrap(), "0");
    let slots = async || {
        let findings = store.doctor().await.unwrap();
        findings.into_iter().filter(|f| f.what == "slots").map(|f| (f.grade, f.says)).collect::<Vec<_>>()
    };
    assert_eq!(slots().await[0].0, Grade::Fine);

    server.psql("store", "SELECT pg_create_physical_replication_slot('warehouse', true)").unwrap();
    server.psql("store", "CREATE TABLE busy AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 20000)").unwrap();
    let told = slots().await;
    assert_eq!((told.len(), told[0].0), (1, Grade::Warning), "{told:?}");
    assert!(told[0].1.contains("warehouse") && told[0].1.contains("read by nobody"), "{told:?}");
    let kept: i64 = told[0].1.split("keeps ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(kept >= 10, "{told:?}");
    // malote's own rows come and go all the same
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("a", 2)).await.unwrap();
    tx.commit().await.unwrap();
    relay.drain().await;
    assert_eq!(relay.sent.len(), 2);
}

/// Pages that the relay's own statement touches, with these arguments.
async fn pages(store: &Postgres, statement: &str, high: i64, limit: i64) -> i64 {
    let mut connection = store.pool().acquire().await.unwrap();
    let prepare = format!(
        "SET enable_seqscan = off; SET enable_bitmapscan = off; DEALLOCATE ALL; PREPARE reading (int8, int8[], int8[], int8) AS {statement}"
    );
    connection.execute(sqlx::AssertSqlSafe(prepare)).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE reading ({high}, '{{}}', '{{}}', {limit})");
    let rows = connection.fetch_all(sqlx::AssertSqlSafe(explain)).await.unwrap();
    connection.close_on_drop();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let line = plan.iter().find(|line| line.contains("Buffers:")).unwrap();
    let number = |name: &str| line.split(name).nth(1).and_then(|rest| rest.split(' ').next()?.parse::<i64>().ok());
    number("hit=").unwrap_or(0) + number("read=").unwrap_or(0)
}

/// A report holds an old snapshot while rows pass: the relay touches as many pages for a batch afterwards as before,
/// and who holds the snapshot is told.
#[tokio::test]
async fn ac_034_an_old_snapshot_slows_nothing() {
    let whole = ("track_activity_query_size", "16384");
    let Some(server) = servers::Postgres::builder().setting(whole.0, whole.1).start_or_skip() else { return };
    let url = server.create_database("store").unwrap();
    let store = migrated(Postgres::builder(&url)).await;
    let fill =
        "INSERT INTO malote.outbox (type, key, payload) SELECT 't.v1', n::text, '{}' FROM generate_series(1, 30000) n";
    store.pool().execute(fill).await.unwrap();
    let mut report = store.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    let holder: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *report).await.unwrap();

    let mut relay = Relay::start(&store).await;
    relay.read(1).await;
    let ran = "SELECT query FROM pg_stat_activity WHERE query LIKE '%ended_below%outbox%' AND pid <> pg_backend_pid()";
    let statement = server.psql("store", ran).unwrap();
    let before = pages(&store, &statement, 0, 500).await;
    let mut read = 0;
    while read < 29_000 {
        let mut positions = relay.read(500).await;
        positions.sort_unstable();
        relay.plan.settle(&positions);
        relay.save().await;
        read += positions.len();
    }
    let after = pages(&store, &statement, relay.plan.cursor().high - 500, 500).await;
    println!("pages for 500 rows: {before} at the start, {after} after {read} rows, the snapshot held");
    assert!(after as f64 <= before as f64 * 1.2 + 4.0, "{before} pages at the start, {after} in the end");
    let told = store.status().await.unwrap().oldest_transaction.unwrap();
    assert!(told.who.contains(&format!("process {holder} ")), "{told:?}");
    report.rollback().await.unwrap();
    until("nobody holds it any more", async || {
        store.status().await.unwrap().oldest_transaction.is_none_or(|left| !left.who.contains(&holder.to_string()))
    })
    .await;
}
