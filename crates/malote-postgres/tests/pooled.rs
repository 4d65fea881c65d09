//! Behind a pooler in transaction mode: every promise is kept there, too.
#![allow(missing_docs)]

mod common;

use common::{changed, migrated, sealer};
use malote_core::{Incarnation, Store, Taken, TimerStore, inspect::Inspect, relay::Cursor};
use malote_postgres::Postgres;
use malote_testkit::servers::{self, PgBouncer};
use std::{sync::OnceLock, time::Duration};
use uuid::Uuid;

/// One of each for all tests here; they die with the process.
fn pooled() -> Option<&'static (servers::Postgres, PgBouncer)> {
    static BOTH: OnceLock<Option<(servers::Postgres, PgBouncer)>> = OnceLock::new();
    let start = || {
        let server = servers::Postgres::start_or_skip()?;
        let pooler = PgBouncer::before(&server).unwrap();
        Some((server, pooler))
    };
    BOTH.get_or_init(start).as_ref()
}

/// A database of its own, by its URL behind the pooler.
fn database() -> Option<(String, String)> {
    let (server, pooler) = pooled()?;
    let name = servers::unique("store");
    server.create_database(&name).unwrap();
    Some((pooler.url(&name), name))
}

async fn open() -> Option<Postgres> {
    let (url, _) = database()?;
    Some(migrated(Postgres::builder(url).behind_pooler(true).connections(20)).await)
}

malote_testkit::store_conformance!(open);
malote_testkit::inspect_conformance!(open);

/// Three nodes start at once, migrate and run: no hang, one leader, and no lock that stays on a server connection
/// which is somebody else's by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_033_no_lock_stays_on_a_server_connection() {
    let Some((url, name)) = database() else { return };
    let mut nodes = tokio::task::JoinSet::new();
    for n in 0..3 {
        let url = url.clone();
        nodes.spawn(async move {
            let store = migrated(Postgres::builder(url).behind_pooler(true).connections(4)).await;
            let who = Incarnation(Uuid::now_v7());
            let mut led = false;
            for round in 0..20 {
                let mut tx = store.begin(sealer()).await.unwrap();
                tx.schedule(changed(n.to_string(), round), Duration::ZERO).await.unwrap();
                tx.commit().await.unwrap();
                store.fire(5).await.unwrap();
                store.upkeep(&Cursor::default()).await.unwrap();
                led |= matches!(store.take_lease("relay", who, common::LEASE).await.unwrap(), Taken::Mine { .. });
            }
            led
        });
    }
    let led = tokio::time::timeout(common::PATIENCE, nodes.join_all()).await.expect("nobody hangs");
    assert_eq!(led.into_iter().filter(|led| *led).count(), 1);
    let (server, _) = pooled().unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(server.psql(&name, held).unwrap(), "0", "a lock was left on a server connection");
    let store = Postgres::builder(url).behind_pooler(true).connect().await.unwrap();
    while store.fire(100).await.unwrap().moved > 0 {}
    assert_eq!(store.status().await.unwrap().outbox.pending, 60);
}
