//! A server that was demoted or is gone, and calls that were given up: malote goes on by itself.
#![allow(missing_docs)]

mod common;

use common::{changed, migrated, sealer, until};
use malote_core::{
    Class, Incarnation, Store, StoreError, Taken, TimerStore,
    inspect::{Grade, Inspect},
    relay::Cursor,
};
use malote_postgres::Postgres;
use malote_testkit::{proxy::Proxy, servers};
use sqlx::Executor;
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Writes have to be possible again within this time.
const SOON: Duration = Duration::from_secs(5);

fn at(server: &servers::Postgres) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, server.port()).into()
}

async fn write(store: &Postgres, n: i64) -> Result<(), StoreError> {
    let mut tx = store.begin(sealer()).await?;
    tx.publish(changed("a", n)).await?;
    tx.commit().await
}

/// Tries again and again; returns how long it took.
async fn write_again(store: &Postgres, n: i64) -> Duration {
    let start = Instant::now();
    while let Err(error) = write(store, n).await {
        assert_ne!(error.class, Class::Final, "{error:?}");
        assert!(start.elapsed() < common::PATIENCE, "writes never resume: {error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    start.elapsed()
}

/// Read-only for a while: each write says that it may be tried again, reads go on, and so do the writes afterwards.
#[tokio::test]
async fn ac_028_read_only_for_a_while() {
    let Some(server) = servers::Postgres::start_or_skip() else { return };
    let url = server.create_database("store").unwrap();
    let store = migrated(Postgres::builder(url).connections(4)).await;
    write(&store, 0).await.unwrap();
    let turn = |to: &str| {
        server.psql("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {to}")).unwrap();
        server.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    };
    turn("on");
    until("writes are refused", async || match write(&store, 1).await {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.class, Class::Transient, "{error:?}");
            true
        }
    })
    .await;
    store.status().await.unwrap();
    let findings = store.doctor().await.unwrap();
    assert!(findings.iter().any(|f| f.grade == Grade::Fault && f.says.contains("read-only")), "{findings:?}");
    turn("off");
    assert!(write_again(&store, 2).await < SOON);
}

/// The copy is promoted; the old primary still answers, and takes no writes. New connections are led to the new one,
/// and nothing cuts the old ones.
#[tokio::test]
async fn ac_028_a_copy_is_promoted() {
    let Some(old) = servers::Postgres::start_or_skip() else { return };
    old.create_database("store").unwrap();
    let new = servers::Postgres::builder().standby_of(&old).unwrap();
    let proxy = Proxy::before(at(&old), Duration::ZERO).await.unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/store", proxy.port());
    let store = migrated(Postgres::builder(url).connections(4)).await;
    let idle: Vec<_> = {
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(store.begin(sealer()).await.unwrap());
        }
        all
    };
    drop(idle);
    write(&store, 0).await.unwrap();
    let caught_up = "SELECT count(*) = 1 FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()";
    until("the copy has it all", async || old.psql("postgres", caught_up).unwrap() == "t").await;

    old.psql("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    old.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    new.psql("postgres", "SELECT pg_promote()").unwrap();
    proxy.switch(at(&new));
    until("the old one takes no writes", async || {
        old.psql("store", "SHOW default_transaction_read_only").unwrap() == "on"
    })
    .await;
    assert!(write_again(&store, 1).await < SOON);
    for n in 2..10 {
        write_again(&store, n).await;
    }
    let rows = |server: &servers::Postgres| server.psql("store", "SELECT count(*) FROM malote.outbox").unwrap();
    assert_eq!((rows(&old), rows(&new)), ("1".into(), "10".into()));
}

/// The connection that listens dies: that is told, polling does, and it comes back.
#[tokio::test]
async fn a_dead_listener_is_noticed_and_comes_back() {
    let Some(server) = servers::Postgres::start_or_skip() else { return };
    server.create_database("store").unwrap();
    let proxy = Proxy::before(at(&server), Duration::ZERO).await.unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/store", proxy.port());
    let store = migrated(Postgres::builder(&url)).await;
    let direct = Postgres::connect(&server.url("store")).await.unwrap();
    tokio::time::timeout(common::PATIENCE, store.woken()).await.expect("listening");
    let wake_up = async |grade: Grade| {
        let findings = store.doctor().await.unwrap_or_default();
        findings.iter().any(|f| f.what == "wake-up" && f.grade == grade)
    };
    assert!(wake_up(Grade::Fine).await);
    // nobody listens at the place to which new connections are led
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    proxy.switch(nowhere);
    proxy.cut();
    until("the loss is told", async || {
        let findings = store.doctor().await.unwrap();
        findings.iter().any(|f| f.grade == Grade::Fault && f.what == "connection")
    })
    .await;
    proxy.switch(at(&server));
    until("it listens again", async || wake_up(Grade::Fine).await).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move {
            store.woken().await;
            store.woken().await;
        }
    });
    until("commits elsewhere are heard again", async || {
        write(&direct, 1).await.unwrap();
        waiting.is_finished()
    })
    .await;
}

/// A call is given up while the server grants what was asked for. Who leads is a row with an end, and other locks
/// end with their transactions, so nobody holds anything that nobody knows of.
#[tokio::test]
async fn ac_022_a_call_that_was_given_up_holds_nothing() {
    let Some(server) = servers::Postgres::start_or_skip() else { return };
    let url = server.create_database("store").unwrap();
    let proxy = Proxy::before(at(&server), Duration::ZERO).await.unwrap();
    let through = format!("postgres://postgres@127.0.0.1:{}/store", proxy.port());
    let slow = migrated(Postgres::builder(through).connections(2)).await;
    let other = Postgres::connect(&url).await.unwrap();
    let lease = Duration::from_millis(300);
    proxy.set_delay(Duration::from_millis(2));
    let mut dice = fastrand::Rng::with_seed(22);
    for n in 0..100 {
        let patience = Duration::from_micros(dice.u64(0..9_000));
        let asking = slow.take_lease("relay", Incarnation(Uuid::now_v7()), lease);
        drop(tokio::time::timeout(patience, asking).await);
        drop(tokio::time::timeout(patience, slow.upkeep(&Cursor::default())).await);
        drop(tokio::time::timeout(patience, slow.fire(1)).await);
        if n % 10 != 0 {
            continue;
        }
        let start = Instant::now();
        let leader = loop {
            match other.take_lease("relay", Incarnation(Uuid::now_v7()), lease).await.unwrap() {
                Taken::Mine { lease, .. } => break lease,
                Taken::Theirs(left) => assert!(left <= lease, "held for {left:?}"),
            }
            assert!(start.elapsed() < common::PATIENCE, "nobody leads");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        other.release_lease(&leader).await.unwrap();
        // what is due moves, whoever may have been about to move it
        let mut tx = other.begin(sealer()).await.unwrap();
        tx.schedule(changed("a", n), Duration::ZERO).await.unwrap();
        tx.commit().await.unwrap();
        until("what is due is sent", async || {
            other.fire(10).await.unwrap();
            other.scheduled(10).await.unwrap().is_empty()
        })
        .await;
    }
    drop(slow);
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    until("no lock is left", async || server.psql("store", held).unwrap() == "0").await;
    other.pool().execute("SELECT 1").await.unwrap();
}
