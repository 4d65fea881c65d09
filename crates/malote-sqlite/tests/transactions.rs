//! The write lock, begun and given up, among tasks and among processes; migrations under the same.
#![allow(missing_docs)]

mod common;

use common::{LONG, envelope, open, sealer, store, window};
use malote_core::{Class, Sealer, Store, Transaction};
use malote_sqlite::{Sqlite, Tx};
use malote_testkit::child::{Other, say, told};
use std::{path::Path, time::Duration};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};

const TASKS: usize = 8;
const EACH: usize = 625;

async fn begin(store: &Sqlite) -> Tx {
    store.begin(sealer()).await.unwrap()
}

async fn count(store: &Sqlite, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
}

/// Reads, then writes what it read plus one: on a stale snapshot this can never work.
async fn read_then_write(store: &Sqlite) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut tx = store.begin(sealer()).await?;
    let n: i64 = sqlx::query_scalar("SELECT n FROM counter").fetch_one(&mut *tx).await?;
    sqlx::query("UPDATE counter SET n = $1").bind(n + 1).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

async fn hammer(store: &Sqlite) {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in 0..EACH {
                read_then_write(&store).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// Two processes with eight tasks each, 10,000 transactions together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_023_a_reader_that_turns_writer_is_never_told_locked() {
    let (folder, store) = store().await;
    let mut tx = begin(&store).await;
    sqlx::raw_sql("CREATE TABLE counter (n INTEGER NOT NULL); INSERT INTO counter VALUES (0)")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut other = Other::start("hammer", folder.path());
    assert_eq!(other.hear().as_deref(), Some("ready"));
    hammer(&store).await;
    tokio::task::spawn_blocking(|| other.finish()).await.unwrap();
    assert_eq!(count(&store, "SELECT n FROM counter").await, 2 * (TASKS * EACH) as i64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_030_a_begin_that_is_given_up_leaves_no_transaction_open() {
    let (_folder, store) = store().await;
    let mut tx = begin(&store).await;
    sqlx::raw_sql("CREATE TABLE written (n INTEGER PRIMARY KEY)").execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    for n in 0..1_000i64 {
        let given_up = timeout(Duration::from_micros(fastrand::u64(0..300)), store.begin(sealer())).await;
        drop(given_up);
        let mut tx = begin(&store).await;
        sqlx::query("INSERT INTO written VALUES ($1)").bind(n).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(count(&store, "SELECT count(*) FROM written").await, n + 1, "seen by another connection");
    }
}

#[tokio::test]
async fn a_transaction_that_is_dropped_leaves_nothing_and_the_next_one_begins() {
    let (_folder, store) = store().await;
    for _ in 0..50 {
        let mut tx = begin(&store).await;
        tx.append(vec![envelope("lost", "1")]).await.unwrap();
        // dropped where there is no runtime
        std::thread::spawn(move || drop(tx)).join().unwrap();
    }
    // a handler may even end the transaction behind malote's back: the connection is not used again
    let mut tx = begin(&store).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.unwrap();
    drop(tx);
    let mut tx = begin(&store).await;
    tx.append(vec![envelope("kept", "1")]).await.unwrap();
    tx.commit().await.unwrap();
    let rows = store.read(&window(0, &[], 10)).await.unwrap().rows;
    assert_eq!(rows.iter().map(|r| r.envelope.as_ref().unwrap().key.as_str()).collect::<Vec<_>>(), ["kept"]);
}

/// The commit runs to its end apart from whoever waits for it, the waking of the relay included.
#[tokio::test]
async fn a_commit_that_is_given_up_is_done() {
    let (_folder, store) = store().await;
    let mut tx = begin(&store).await;
    tx.append(vec![envelope("a", "1")]).await.unwrap();
    let mut commit = Box::pin(tx.commit());
    assert!(futures::poll!(&mut commit).is_pending());
    drop(commit);
    timeout(Duration::from_secs(10), store.woken()).await.expect("the relay is woken");
    assert_eq!(store.read(&window(0, &[], 10)).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn an_attempt_that_fails_is_undone_and_the_rest_stays() {
    let (_folder, store) = store().await;
    let mut tx = begin(&store).await;
    sqlx::raw_sql("CREATE TABLE name (text TEXT PRIMARY KEY); INSERT INTO name VALUES ('bob')")
        .execute(&mut *tx)
        .await
        .unwrap();
    let attempt = tx.attempt(async |tx| {
        tx.append(vec![envelope("undone", "1")]).await.map_err(|e| e.to_string())?;
        let taken = sqlx::query("INSERT INTO name VALUES ('bob')").execute(&mut **tx).await;
        taken.map(drop).map_err(|e| e.to_string())
    });
    assert!(attempt.await.unwrap().unwrap_err().contains("UNIQUE"));
    let kept = tx.attempt(async |tx| tx.append(vec![envelope("kept", "1")]).await);
    kept.await.unwrap().unwrap();
    tx.commit().await.unwrap();
    let rows = store.read(&window(0, &[], 10)).await.unwrap().rows;
    assert_eq!(rows.iter().map(|r| r.envelope.as_ref().unwrap().key.as_str()).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(count(&store, "SELECT count(*) FROM name").await, 1);
}

/// Another process holds the lock: it is waited for as long as the setting says, then it is a conflict.
#[tokio::test]
async fn a_lock_that_is_held_elsewhere_is_waited_for() {
    let (folder, patient) = store().await;
    let path = folder.path().join("service.db");
    let hasty = Sqlite::builder().lock_wait(Duration::from_millis(50)).open(path.to_str().unwrap()).await.unwrap();
    let other = open(&folder).await;
    let held = begin(&patient).await;
    assert_eq!(hasty.begin(sealer()).await.unwrap_err().class, Class::Conflict);
    let mut waiting = Box::pin(other.begin(sealer()));
    assert!(futures::poll!(&mut waiting).is_pending());
    held.rollback().await.unwrap();
    timeout(LONG, waiting).await.unwrap().unwrap().rollback().await.unwrap();
}

#[tokio::test]
async fn errors_are_told_apart_by_code() {
    let (_folder, store) = store().await;
    let mut tx = begin(&store).await;
    let tables = "CREATE TABLE u (n INTEGER UNIQUE, CHECK (n > 0)); INSERT INTO u VALUES (1)";
    sqlx::raw_sql(tables).execute(&mut *tx).await.unwrap();
    for (sql, class) in [
        ("INSERT INTO u VALUES (1)", Class::Transient),
        ("INSERT INTO u VALUES (0)", Class::Final),
        ("INSERT INTO nowhere VALUES (0)", Class::Transient),
    ] {
        let error = sqlx::query(sql).execute(&mut *tx).await.unwrap_err();
        assert_eq!(store.classify(&error), class, "{sql}: {error}");
    }
    let readers_only_read = sqlx::query("DELETE FROM malote_outbox").execute(store.pool()).await.unwrap_err();
    assert_eq!(store.classify(&readers_only_read), Class::Final);
}

#[tokio::test]
async fn a_database_in_memory_is_refused_with_the_reason() {
    let error = Sqlite::open("sqlite::memory:").await.err().unwrap();
    assert!(error.to_string().contains("has to be a file"), "{error}");
    let error = Sqlite::open("/nowhere/at/all.db").await.err().unwrap();
    assert!(error.to_string().contains("/nowhere/at/all.db"), "{error}");
}

/// Killed at each step, run by several at once, and with a newer version's step already taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_032_migrations_may_be_killed_and_run_together() {
    for round in 0..10u64 {
        let folder = TempDir::new().unwrap();
        let mut killed = Other::start("migrate", folder.path());
        assert_eq!(killed.hear().as_deref(), Some("ready"));
        tokio::time::sleep(Duration::from_micros(round * round * 100)).await;
        killed.kill();
        let path = folder.path().join("service.db").to_str().unwrap().to_owned();
        let mut together = JoinSet::new();
        for _ in 0..6 {
            let path = path.clone();
            together.spawn(async move {
                let store = Sqlite::builder().sync_every_commit(false).open(&path).await.unwrap();
                let _ = timeout(Duration::from_micros(fastrand::u64(0..2_000)), store.migrate()).await;
                store.migrate().await.unwrap();
            });
        }
        together.join_all().await;
        let store = open(&folder).await;
        let steps = count(&store, "SELECT count(*) FROM malote_migration").await;
        assert_eq!(steps, count(&store, "SELECT max(number) FROM malote_migration").await, "each step once");
        works(&store, sealer()).await;
        let mut tx = begin(&store).await;
        let newer = "ALTER TABLE malote_outbox ADD COLUMN later TEXT; INSERT INTO malote_migration (number, name) VALUES (9999, 'later')";
        sqlx::raw_sql(newer).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(store.migrate().await.unwrap(), 0);
        works(&store, sealer()).await;
    }
}

async fn works(store: &Sqlite, sealer: Sealer) {
    let mut tx = store.begin(sealer).await.unwrap();
    tx.append(vec![envelope("a", "1")]).await.unwrap();
    tx.commit().await.unwrap();
    assert!(!store.read(&window(0, &[], 10)).await.unwrap().rows.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some(told) = told() else { return };
    let path = Path::new(&told[1]).join("service.db");
    let path = path.to_str().unwrap();
    match told[0].as_str() {
        "hammer" => {
            let store = Sqlite::builder().sync_every_commit(false).open(path).await.unwrap();
            say("ready");
            hammer(&store).await;
        }
        "migrate" => {
            say("ready");
            Sqlite::open(path).await.unwrap().migrate().await.unwrap();
        }
        other => panic!("nobody is {other}"),
    }
}
