//! A database that is dumped and restored elsewhere goes on where it was.
#![allow(missing_docs)]

mod common;

use common::{Relay, changed, migrated, sealer};
use malote_core::{Incarnation, Store, Taken};
use malote_postgres::Postgres;
use malote_testkit::servers;
use std::{path::Path, process::Command};
use uuid::Uuid;

/// The new cluster's transaction ids begin anew, far below those of the old one.
#[tokio::test]
async fn ac_002_a_restored_dump_goes_on() {
    let Some(old) = servers::Postgres::start_or_skip() else { return };
    let url = old.create_database("store").unwrap();
    let store = migrated(Postgres::builder(&url).partition_rows(300).keep_outbox(std::time::Duration::ZERO)).await;
    let mut relay = Relay::start(&store).await;
    // ids that a new cluster will not have for long
    let burn = "DO $$BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$";
    old.psql("store", burn).unwrap();
    let hidden = {
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.publish(changed("never committed", 1)).await.unwrap();
        tx
    };
    for n in 0..1_000 {
        publish(&store, n).await;
        if n == 500 {
            relay.step().await;
        }
    }
    // half of it sent, and a gap open: that of the transaction which the dump does not hold
    let stored = relay.save().await;
    assert_eq!((stored.high, stored.gaps.first()), (502, Some(1)));

    let scratch = tempfile::tempdir().unwrap();
    let dump = scratch.path().join("dump.sql");
    run("pg_dump", &["--file", dump.to_str().unwrap(), &url]);
    drop(hidden);

    let new = servers::Postgres::start().unwrap();
    let url = new.create_database("store").unwrap();
    run("psql", &["-X", "-q", "-v", "ON_ERROR_STOP=1", "--file", dump.to_str().unwrap(), &url]);
    let ids = |server: &servers::Postgres| -> u64 {
        server.psql("store", "SELECT pg_current_xact_id()").unwrap().parse().unwrap()
    };
    assert!(ids(&new) + 1_000 < ids(&old));

    let store = migrated(Postgres::builder(&url).partition_rows(300).keep_outbox(std::time::Duration::ZERO)).await;
    // the lease of the old relay is in the dump, too; this one is its heir
    new.psql("store", "UPDATE malote.relay SET expires_at = 'epoch'").unwrap();
    publish(&store, 1_000).await;
    let mut relay = Relay::take_up(&store, common::LEASE, relay.sent).await;
    relay.drain().await;
    let expected: Vec<String> = (0..=1_000).map(|n| n.to_string()).collect();
    assert_eq!(relay.keys(), expected, "each once, and in order");
}

/// Positions that have gone back are told, so that the relay can stop and say so.
#[tokio::test]
async fn a_sequence_that_was_set_back_is_told() {
    let Some(store) = common::open().await else { return };
    let mut relay = Relay::start(&store).await;
    for n in 0..3 {
        publish(&store, n).await;
    }
    relay.drain().await;
    relay.save().await;
    sqlx::query("SELECT setval('malote.outbox_seq_seq', 1)").execute(store.pool()).await.unwrap();
    store.release_lease(&relay.lease).await.unwrap();
    let taken = store.take_lease("relay", Incarnation(Uuid::now_v7()), common::LEASE).await.unwrap();
    assert!(matches!(taken, Taken::Mine { cursor, last: 1, .. } if cursor.high == 3));
}

async fn publish(store: &Postgres, n: i64) {
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed(n.to_string(), n)).await.unwrap();
    tx.commit().await.unwrap();
}

fn run(program: &str, args: &[&str]) {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed.map(|version| version.path().join("bin").join(program)).filter(|path| path.exists()).max();
    let program = newest.unwrap_or_else(|| Path::new(program).to_owned());
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
