//! Partitions ahead, old rows gone, and no writer notices.
#![allow(missing_docs)]

mod common;

use common::{Relay, changed, migrated, sealer, until};
use malote_core::{
    Admission, KeptStore, Lane, ParkingStore, Prune, RawRecord, Read, Store, ToPark,
    relay::{Cursor, Ranges, Window},
};
use malote_postgres::{Postgres, Tx};
use malote_testkit::servers;
use sqlx::Executor;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

async fn small(rows: i64) -> Option<Postgres> {
    let url = servers::fresh_database("store")?;
    Some(migrated(Postgres::builder(url).connections(16).partition_rows(rows).keep_outbox(Duration::ZERO)).await)
}

async fn publish(store: &Postgres, rows: i64) -> Tx {
    let mut tx = store.begin(sealer()).await.unwrap();
    for n in 0..rows {
        tx.publish(changed("a", n)).await.unwrap();
    }
    tx
}

async fn names(store: &Postgres, of: &str) -> Vec<String> {
    let query = "SELECT relid::text FROM pg_partition_tree($1::regclass) WHERE isleaf ORDER BY length(relid::text), relid::text";
    sqlx::query_scalar(query).bind(of).fetch_all(store.pool()).await.unwrap()
}

async fn count(store: &Postgres, table: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
        .fetch_one(store.pool())
        .await
        .unwrap()
}

/// From the first row on, with each step behind the relay.
#[tokio::test]
async fn partitions_come_and_go() {
    let Some(store) = small(10).await else { return };
    assert_eq!(names(&store, "malote.outbox").await.len(), 5, "four ahead, and DEFAULT");
    assert_eq!(names(&store, "malote.inbox").await.len(), 7, "yesterday to four days ahead, and DEFAULT");
    publish(&store, 25).await.commit().await.unwrap();
    let gap = Cursor { high: 25, gaps: [(12, 12)].into_iter().collect() };
    let did = store.upkeep(&gap).await.unwrap();
    assert!(did.contains("made outbox_41") && did.contains("made outbox_51"), "{did}");
    assert!(did.contains("emptied outbox_1"), "{did}");
    assert_eq!(count(&store, "malote.outbox").await, 15, "what lies above the gap stays");
    let did = store.upkeep(&gap).await.unwrap();
    assert!(did.contains("dropped outbox_1"), "{did}");
    assert_eq!(store.upkeep(&gap).await.unwrap(), "");
    assert_eq!(count(&store, "malote.outbox_rest").await, 0);
}

/// Nobody made partitions in time: rows are taken, read in order, and removed when they are published.
#[tokio::test]
async fn a_missing_partition_fails_nothing() {
    let Some(store) = small(10).await else { return };
    publish(&store, 95).await.commit().await.unwrap();
    assert_eq!(count(&store, "malote.outbox_rest").await, 55);
    let did = store.upkeep(&Cursor::default()).await.unwrap();
    assert!(did.contains("made outbox_111"), "{did}");
    publish(&store, 20).await.commit().await.unwrap();
    let Read { rows, .. } = store.read(&Window { high: 0, gaps: Ranges::new(), limit: 1_000 }).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=115).collect::<Vec<_>>());
    assert_eq!(count(&store, "malote.outbox_111").await, 5);
    let did = store.upkeep(&Cursor { high: 98, gaps: Ranges::new() }).await.unwrap();
    assert!(did.contains("removed 58 rows"), "{did}");
    assert_eq!(count(&store, "malote.outbox").await, 17);
}

/// A transaction that wrote long ago holds locks on the outbox, a dump holds others: upkeep ends soon,
/// writers go on, and what could not be done is done later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_waits_for_nobody_and_nobody_for_it() {
    let Some(store) = small(2_000).await else { return };
    publish(&store, 2_100).await.commit().await.unwrap();
    let old_writer = publish(&store, 1).await;
    let mut dump = store.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    dump.execute("SELECT count(*) FROM malote.outbox").await.unwrap();

    let (over, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, over, longest) = (store.clone(), over.clone(), longest.clone());
        writers.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let start = Instant::now();
                publish(&store, 3).await.commit().await.unwrap();
                longest.fetch_max(start.elapsed().as_millis() as u64, Ordering::SeqCst);
            }
        });
    }
    let cursor = Cursor { high: 2_100, gaps: Ranges::new() };
    for _ in 0..10 {
        let keep = tokio::time::timeout(common::PATIENCE, store.upkeep(&cursor)).await;
        keep.expect("upkeep ends").unwrap();
    }
    assert!(count(&store, "malote.outbox_1").await > 0, "the dump still reads it");
    dump.rollback().await.unwrap();
    old_writer.rollback().await.unwrap();
    until("what is published is gone", async || {
        store.upkeep(&cursor).await.unwrap();
        !names(&store, "malote.outbox").await.contains(&"malote.outbox_1".to_owned())
    })
    .await;
    over.store(true, Ordering::SeqCst);
    writers.join_all().await;
    // far above what it takes, far below what waiting for the old writer would
    assert!(longest.load(Ordering::SeqCst) < Duration::from_secs(20).as_millis() as u64);
}

/// A writer that has gone beyond the last partition is on its way to DEFAULT while the keeper attaches
/// one: PostgreSQL would refuse its row if that partition were its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_never_made_where_writers_are() {
    let Some(store) = small(1_000).await else { return };
    let fill = "INSERT INTO malote.outbox (type, key, payload) SELECT 't.v1', 'k', '{}' FROM generate_series(1, 4100)";
    store.pool().execute(fill).await.unwrap();
    let slow = "CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.4); END'; \
                CREATE EVENT TRIGGER slow ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION slow()";
    store.pool().execute(slow).await.unwrap();
    let keeping = tokio::spawn({
        let store = store.clone();
        async move { store.upkeep(&Cursor::default()).await }
    });
    let attaching =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    until("a partition is being attached", async || {
        sqlx::query_scalar(attaching).fetch_one(store.pool()).await.unwrap()
    })
    .await;
    publish(&store, 3).await.commit().await.unwrap();
    let did = keeping.await.unwrap().unwrap();
    assert!(did.contains("made outbox_5001"), "{did}");
    assert_eq!(count(&store, "malote.outbox_rest").await, 103);
}

/// Two keepers at once are one keeper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_keeper_at_a_time() {
    let Some(store) = small(10).await else { return };
    publish(&store, 95).await.commit().await.unwrap();
    let mut keepers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = store.clone();
        keepers.spawn(async move {
            for _ in 0..5 {
                store.upkeep(&Cursor { high: 90, gaps: Ranges::new() }).await.unwrap();
            }
        });
    }
    keepers.join_all().await;
    until("partitions lie ahead", async || {
        store.upkeep(&Cursor { high: 90, gaps: Ranges::new() }).await.unwrap();
        names(&store, "malote.outbox").await.contains(&"malote.outbox_121".to_owned())
    })
    .await;
    let mut relay = Relay::start(&store).await;
    relay.drain().await;
    assert_eq!(relay.sent.len(), 5);
}

/// An event of a day whose partition is made later is still admitted once.
#[tokio::test]
async fn a_late_day_partition_admits_nothing_twice() {
    let Some(store) = small(10).await else { return };
    let day: chrono::NaiveDate =
        sqlx::query_scalar("SELECT (malote.clock() AT TIME ZONE 'UTC')::date").fetch_one(store.pool()).await.unwrap();
    let today = names(&store, "malote.inbox")
        .await
        .into_iter()
        .find(|name| name.ends_with(&day.format("%Y%m%d").to_string()))
        .unwrap();
    store.pool().execute(sqlx::AssertSqlSafe(format!("DROP TABLE {today}"))).await.unwrap();
    let event = Admission { event_id: uuid::Uuid::now_v7(), day };
    for expected in [true, false] {
        let mut tx = store.begin(sealer()).await.unwrap();
        assert_eq!(store.admit(&mut tx, "ledger", &[event]).await.unwrap(), [expected]);
        tx.commit().await.unwrap();
        store.upkeep(&Cursor::default()).await.unwrap();
    }
}

/// Published rows stay for a replay until they are old enough, and leave then.
#[tokio::test]
async fn published_rows_are_kept_for_a_time() {
    let Some(url) = servers::fresh_database("store") else { return };
    let day = Duration::from_secs(24 * 3600);
    let store = migrated(Postgres::builder(url).partition_rows(10).keep_outbox(day)).await;
    common::stop_clock(&store).await;
    publish(&store, 45).await.commit().await.unwrap();
    let cursor = Cursor { high: 45, gaps: Ranges::new() };
    common::pass(&store, day - Duration::from_secs(1)).await;
    for _ in 0..2 {
        store.upkeep(&cursor).await.unwrap();
    }
    assert_eq!(count(&store, "malote.outbox").await, 45, "in partitions and in DEFAULT");
    publish(&store, 5).await.commit().await.unwrap();
    common::pass(&store, Duration::from_secs(2)).await;
    let cursor = Cursor { high: 50, gaps: Ranges::new() };
    let did = format!("{} {}", store.upkeep(&cursor).await.unwrap(), store.upkeep(&cursor).await.unwrap());
    assert!(did.contains("emptied outbox_1") && did.contains("dropped outbox_1"), "{did}");
    assert_eq!(count(&store, "malote.outbox").await, 5, "the young ones");
}

/// A day of which all is done goes as a partition, under load; one of which something waits loses the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_days_of_the_inbox_go() {
    let Some(store) = small(1_000).await else { return };
    common::stop_clock(&store).await;
    let day = |table: &str| {
        let table = table.to_owned();
        let store = store.clone();
        async move { names(&store, "malote.inbox").await.contains(&format!("malote.inbox_{table}")) }
    };
    let today: chrono::NaiveDate =
        sqlx::query_scalar("SELECT (malote.clock() AT TIME ZONE 'UTC')::date").fetch_one(store.pool()).await.unwrap();
    let tomorrow = today.succ_opt().unwrap();
    let event = |day| Admission { event_id: uuid::Uuid::now_v7(), day };
    let events: Vec<Admission> = (0..40).map(|n| event(if n % 2 == 0 { today } else { tomorrow })).collect();
    let parked = event(tomorrow);
    let mut tx = store.begin(sealer()).await.unwrap();
    store.admit(&mut tx, "ledger", &[events.clone(), vec![parked]].concat()).await.unwrap();
    let letter = ToPark {
        lane: Lane { topic: "things".into(), key: "k".into() },
        what: "1".into(),
        admission: Some(parked),
        kind: None,
        record: RawRecord::default(),
        setback: None,
    };
    store.park(&mut tx, "ledger", &[letter]).await.unwrap();
    tx.commit().await.unwrap();

    let keep = Duration::from_secs(7 * 24 * 3600);
    let prune = async |most: u32| store.prune(Prune::Inbox(keep), most, false).await.unwrap();
    let dry = async || store.prune(Prune::Inbox(keep), u32::MAX, true).await.unwrap().rows;
    common::pass(&store, keep).await;
    assert_eq!((dry().await, prune(10).await.rows), (0, 0));
    common::pass(&store, Duration::from_secs(3 * 24 * 3600)).await;
    assert_eq!(dry().await, 40);
    let (today, tomorrow) = (today.format("%Y%m%d").to_string(), tomorrow.format("%Y%m%d").to_string());
    assert!(day(&today).await && day(&tomorrow).await);

    // a steady load of other days beside it
    let over = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (store, over) = (store.clone(), over.clone());
        async move {
            while !over.load(Ordering::SeqCst) {
                let mut tx = store.begin(sealer()).await.unwrap();
                let day = chrono::NaiveDate::from_ymd_opt(2999, 1, 1).unwrap();
                let event = Admission { event_id: uuid::Uuid::now_v7(), day };
                assert_eq!(store.admit(&mut tx, "other", &[event]).await.unwrap(), [true]);
                tx.commit().await.unwrap();
            }
        }
    });
    until("both days are pruned", async || {
        prune(10).await;
        dry().await == 0
    })
    .await;
    until("the day that is done is dropped", async || {
        prune(10).await;
        !day(&today).await
    })
    .await;
    over.store(true, Ordering::SeqCst);
    load.await.unwrap();
    assert_eq!(count(&store, &format!("malote.inbox_{tomorrow}")).await, 1, "what waits stays");
    assert_eq!(store.seen("ledger", &[parked]).await.unwrap(), [true]);
}
