//! The write-ahead log stays small.
#![allow(missing_docs)]

mod common;

use common::{envelope, sealer, store};
use malote_core::{Store, Transaction, inspect::Inspect};
use malote_sqlite::Sqlite;
use sqlx::SqliteConnection;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

const LIMIT: u64 = 64 << 20;
const WRITES: usize = 3_000;
const BYTES: usize = 40_000;
/// Queries of one reader.
const READS: usize = 100;

/// Reads such that there is always a reader: each one reads for a while and ends when the next one has begun.
async fn overlap(store: Sqlite, stop: Arc<AtomicBool>) -> u64 {
    let mut readers = 0;
    let mut reader = store.pool().begin().await.unwrap();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..READS {
            read(&mut reader).await;
        }
        let mut next = store.pool().begin().await.unwrap();
        read(&mut next).await;
        reader.rollback().await.unwrap();
        reader = next;
        readers += 1;
    }
    readers
}

async fn read(reader: &mut SqliteConnection) {
    let _: i64 = sqlx::query_scalar("SELECT count(*) FROM malote_inbox").fetch_one(reader).await.unwrap();
}

/// There is always a reader, and 120 MB are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_029_overlapping_readers_do_not_let_the_log_grow() {
    let (_folder, store) = store().await;
    let stop = Arc::new(AtomicBool::new(false));
    let readers = tokio::spawn(overlap(store.clone(), stop.clone()));
    let mut largest = 0;
    for n in 0..WRITES {
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.append(vec![envelope("k", vec![b'x'; BYTES])]).await.unwrap();
        tx.commit().await.unwrap();
        if n % 50 == 0 {
            largest = largest.max(store.status().await.unwrap().wal_bytes.unwrap());
        }
    }
    stop.store(true, Ordering::Relaxed);
    let readers = readers.await.unwrap();
    println!("{} MiB at most, with {readers} readers and {WRITES} writes", largest >> 20);
    assert!(largest <= LIMIT, "the log has grown to {} MiB", largest >> 20);
}
