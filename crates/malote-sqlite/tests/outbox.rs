//! The outbox and the relay's part of the store.
#![allow(missing_docs)]

mod common;

use common::{LONG, by_hand, envelope, open, open_with, sealer, somebody, store, window};
use malote_core::{
    Envelope, Saved, Store, Taken, Transaction,
    relay::{Cursor, Ranges},
};
use malote_sqlite::Sqlite;
use std::time::Duration;
use tempfile::TempDir;

async fn append(store: &Sqlite, keys: &[&str]) {
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.append(keys.iter().map(|key| envelope(key, format!("\"{key}\""))).collect()).await.unwrap();
    tx.commit().await.unwrap();
}

async fn keys(store: &Sqlite, high: i64, gaps: &[(i64, i64)], limit: usize) -> Vec<(i64, String)> {
    let read = store.read(&window(high, gaps, limit)).await.unwrap();
    assert_eq!(read.ended_below, u64::MAX);
    read.rows.into_iter().map(|row| (row.seq, row.envelope.unwrap().key)).collect()
}

#[tokio::test]
async fn what_is_committed_is_read_in_order_and_nothing_else() {
    let (_folder, store) = store().await;
    append(&store, &["a", "b"]).await;
    let mut lost = store.begin(sealer()).await.unwrap();
    lost.append(vec![envelope("never", "1")]).await.unwrap();
    drop(lost);
    append(&store, &["c", "d", "e"]).await;
    let all = ["a", "b", "c", "d", "e"].iter().enumerate().map(|(i, k)| (i as i64 + 1, (*k).to_owned()));
    assert_eq!(keys(&store, 0, &[], 10).await, all.collect::<Vec<_>>());
    assert_eq!(keys(&store, 4, &[(1, 2), (4, 4)], 3).await, [(1, "a".into()), (2, "b".into()), (4, "d".into())]);
    assert_eq!(keys(&store, 5, &[], 3).await, []);
}

#[tokio::test]
async fn an_envelope_comes_back_as_it_was_sealed() {
    let (_folder, store) = store().await;
    let mut tx = store.begin(sealer()).await.unwrap();
    let bodies: [&[u8]; 4] = [b"", b"\x00\xff\xfe", br#"{"n":9007199254740993,"s":"\u0000\ud800"}"#, "ação".as_bytes()];
    let mut sealer = sealer();
    sealer.cause.correlation_id = Some("conversation \"1\"".into());
    let sent: Vec<_> = bodies.iter().map(|b| sealer.seal(common::message("chave-ação", b.to_vec())).unwrap()).collect();
    tx.append(sent.clone()).await.unwrap();
    tx.commit().await.unwrap();
    let read = store.read(&window(0, &[], 10)).await.unwrap();
    assert_eq!(read.rows.len(), bodies.len());
    for (row, sent) in read.rows.into_iter().zip(sent) {
        assert_eq!(row.envelope.unwrap(), Envelope { sequence: Some(row.seq), ..sent });
    }
}

/// Any program may write to the table, and a row that is no envelope stands in nobody's way.
#[tokio::test]
async fn rows_that_were_written_by_hand_are_read() {
    let (_folder, store) = store().await;
    let mut tx = store.begin(sealer()).await.unwrap();
    for statement in [
        "INSERT INTO malote_outbox (type, payload) VALUES ('x.v1', '{\"by\":\"hand\"}')",
        "INSERT INTO malote_outbox (type, key, id, payload) VALUES ('x.v1', 'k', 'no id', X'00')",
        "INSERT INTO malote_outbox (type, aggregate_id, headers, payload) VALUES ('x.v1', 'a7', '{\"source\":\"cobol\"}', '')",
    ] {
        sqlx::query(statement).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let rows = store.read(&window(0, &[], 10)).await.unwrap().rows;
    let first = rows[0].envelope.as_ref().unwrap();
    assert_eq!(
        (first.topic.as_str(), &first.key, &first.payload[..]),
        ("x.v1", &first.id.to_string(), &br#"{"by":"hand"}"#[..])
    );
    assert!(rows[1].envelope.as_ref().unwrap_err().contains("UUID"));
    let third = rows[2].envelope.as_ref().unwrap();
    assert_eq!((third.key.as_str(), third.source.as_str(), third.payload.len()), ("a7", "cobol", 0));
}

#[tokio::test]
async fn ac_001_an_old_epoch_changes_nothing() {
    let (_folder, store) = store().await;
    let (first, second) = (somebody(), somebody());
    let Taken::Mine { lease: old, .. } = store.take_lease("relay", first, Duration::ZERO).await.unwrap() else {
        panic!("the lease is free")
    };
    let Taken::Mine { lease: new, .. } = store.take_lease("relay", second, LONG).await.unwrap() else {
        panic!("the lease is over")
    };
    assert!(new.epoch > old.epoch);
    let cursor = Cursor { high: 7, gaps: Ranges::from_iter([(2, 3)]) };
    assert_eq!(store.save(&new, &cursor, LONG).await.unwrap(), Saved::Kept { bound: 0 });
    let stale = Cursor { high: 99, gaps: Ranges::new() };
    assert_eq!(store.save(&old, &stale, LONG).await.unwrap(), Saved::Fenced);
    store.release_lease(&old).await.unwrap();
    assert!(matches!(store.take_lease("relay", first, LONG).await.unwrap(), Taken::Theirs(left) if left <= LONG));
    let Taken::Mine { lease, cursor: stored, .. } = store.take_lease("relay", second, LONG).await.unwrap() else {
        panic!("the lease is still the second one's")
    };
    assert_eq!((lease, stored), (new, cursor));
}

/// The host's name and the relay's name are the same after a restart; the incarnation is not.
#[tokio::test]
async fn ac_006_a_restarted_process_is_somebody_else() {
    let (folder, store) = store().await;
    append(&store, &["a"; 100]).await;
    let Taken::Mine { lease: dead, .. } = store.take_lease("relay", somebody(), Duration::ZERO).await.unwrap() else {
        panic!("the lease is free")
    };
    store.close().await;
    let store = open(&folder).await;
    let Taken::Mine { lease, cursor, last } = store.take_lease("relay", somebody(), LONG).await.unwrap() else {
        panic!("the lease is over")
    };
    assert_ne!((lease.who, lease.epoch), (dead.who, dead.epoch));
    assert_eq!((store.read(&window(cursor.high, &[], 1000)).await.unwrap().rows.len(), last), (100, 100));
    assert_eq!(store.save(&dead, &Cursor { high: 100, gaps: Ranges::new() }, LONG).await.unwrap(), Saved::Fenced);
}

#[tokio::test]
async fn upkeep_removes_what_every_relay_has_published_and_positions_never_come_back() {
    let folder = TempDir::new().unwrap();
    let store = open_with(&folder, Sqlite::builder().keep_outbox(Duration::ZERO)).await;
    append(&store, &["x"; 10]).await;
    let Taken::Mine { lease, .. } = store.take_lease("relay", somebody(), LONG).await.unwrap() else { panic!() };
    // the janitor's lease has come nowhere, and keeps nothing
    store.take_lease("janitor relay", somebody(), LONG).await.unwrap();
    let cursor = Cursor { high: 9, gaps: Ranges::from_iter([(4, 5)]) };
    store.upkeep(&Cursor { high: 10, gaps: Ranges::new() }).await.unwrap();
    assert_eq!(keys(&store, 0, &[], 100).await.len(), 10, "nothing is stored as published yet");
    store.save(&lease, &cursor, LONG).await.unwrap();
    store.upkeep(&cursor).await.unwrap();
    assert_eq!(keys(&store, 0, &[], 100).await[0].0, 4);
    let all = Cursor { high: 10, gaps: Ranges::new() };
    store.save(&lease, &all, LONG).await.unwrap();
    store.upkeep(&all).await.unwrap();
    assert_eq!(keys(&store, 0, &[], 100).await, []);
    append(&store, &["y"]).await;
    assert_eq!(keys(&store, 0, &[], 100).await, [(11, "y".into())]);
}

/// So that they can be sent again.
#[tokio::test]
async fn published_rows_are_kept_for_their_time() {
    let folder = TempDir::new().unwrap();
    let store = open_with(&folder, Sqlite::builder().keep_outbox(Duration::from_secs(60))).await;
    append(&store, &["x"; 10]).await;
    let Taken::Mine { lease, .. } = store.take_lease("relay", somebody(), LONG).await.unwrap() else { panic!() };
    let all = Cursor { high: 10, gaps: Ranges::new() };
    store.save(&lease, &all, LONG).await.unwrap();
    by_hand(&store, "UPDATE malote_outbox SET created_at = created_at - 60000 WHERE seq IN (1, 2, 4)").await;
    store.upkeep(&all).await.unwrap();
    let left: Vec<i64> = keys(&store, 0, &[], 100).await.into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(left, [3, 5, 6, 7, 8, 9, 10]);
}

#[tokio::test]
async fn a_commit_wakes_the_relay_and_a_rollback_does_not() {
    let (_folder, store) = store().await;
    let woken = tokio::spawn({
        let store = store.clone();
        async move { store.woken().await }
    });
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.append(vec![envelope("a", "1")]).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(!woken.is_finished());
    append(&store, &["a"]).await;
    tokio::time::timeout(LONG, woken).await.unwrap().unwrap();
    append(&store, &["b"]).await;
    tokio::time::timeout(LONG, store.woken()).await.unwrap();
}
