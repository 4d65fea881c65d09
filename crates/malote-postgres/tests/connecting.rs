//! Connecting, migrating, and being behind a pooler.
#![allow(missing_docs)]

mod common;

use common::{Relay, changed, migrated, open, sealer, until};
use malote_core::{Admission, IdempotencyStore, RequestKey, Store};
use malote_postgres::Postgres;
use malote_testkit::servers::{self, PgBouncer};
use sqlx::Executor;
use std::time::Duration;
use uuid::Uuid;

/// Without the setting, one clear error at the start; with it, everything works, whichever server
/// connection a statement meets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_024_behind_a_pooler_in_transaction_mode() {
    let Some(server) = servers::Postgres::start_or_skip() else { return };
    server.create_database("store").unwrap();
    let pooler = PgBouncer::before(&server).unwrap();
    let refused = Postgres::connect(&pooler.url("store")).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("behind_pooler"), "{refused}");

    let store = migrated(Postgres::builder(pooler.url("store")).behind_pooler(true).connections(8)).await;
    let mut users = tokio::task::JoinSet::new();
    for user in 0..8 {
        users.spawn(use_all(store.clone(), user));
    }
    users.join_all().await;
    let mut relay = Relay::start(&store).await;
    relay.drain().await;
    assert_eq!(relay.sent.len(), 8 * 20);
}

async fn use_all(store: Postgres, user: u64) {
    for n in 0..20u32 {
        let mut tx = store.begin(sealer()).await.unwrap();
        let event = Admission { event_id: Uuid::now_v7(), day: Default::default() };
        assert_eq!(store.admit(&mut tx, "ledger", &[event]).await.unwrap(), [true]);
        tx.publish(changed(user.to_string(), n.into())).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(store.seen("ledger", &[event]).await.unwrap(), [true]);
        let request = RequestKey { caller: user.to_string(), scope: "POST /".into(), key: n.to_string() };
        let owner = Uuid::now_v7();
        store.claim(&request, &[0; 32], owner, Duration::from_secs(60)).await.unwrap();
        assert!(store.release(&request, owner).await.unwrap());
    }
}

/// Nobody listens there: it is said where nobody listens, and nothing that is secret.
#[tokio::test]
async fn a_connection_that_is_refused_is_not_one_that_was_late() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    let url = format!("postgres://u:canary@127.0.0.1:{port}/shop?sslmode=disable");
    let refused = Postgres::builder(url).patience(Duration::from_millis(100)).connect().await.map(drop).unwrap_err();
    let said = refused.to_string();
    for word in [format!("127.0.0.1:{port}"), "\"shop\"".into(), "Connection refused".into()] {
        assert!(said.contains(&word), "{said}");
    }
    assert!(!said.contains("canary") && !format!("{refused:?}").contains("canary"), "{refused:?}");
    assert_eq!(refused.class, malote_core::Class::Transient);
    // a password that was not written as it has to be
    let url = format!("postgres://u:{port}/canary@127.0.0.1/shop");
    let refused = Postgres::builder(url).patience(Duration::from_millis(100)).connect().await.map(drop).unwrap_err();
    assert!(!refused.to_string().contains("canary"), "{refused}");
}

/// Many at once, again and again; one that is killed half-way leaves nothing and holds nobody up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ac_032_migrations_run_by_many_and_killed() {
    let Some(url) = servers::fresh_database("store") else { return };
    let admin = Postgres::connect(&url).await.unwrap();
    // somebody who is killed in the middle of the first step: the tables are there, and not committed
    let mut half = admin.pool().begin().await.unwrap();
    half.execute("SELECT pg_advisory_xact_lock(hashtextextended('malote migration malote', 0)); CREATE SCHEMA malote; CREATE TABLE malote.outbox (n int)")
        .await
        .unwrap();
    let killed: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *half).await.unwrap();

    let mut migrators = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = Postgres::connect(&url).await.unwrap();
        migrators.spawn(async move {
            for _ in 0..3 {
                store.migrate().await.unwrap();
            }
        });
    }
    let waiting = "SELECT count(*) = 8 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    until("all wait for the first", || async { sqlx::query_scalar(waiting).fetch_one(admin.pool()).await.unwrap() })
        .await;
    sqlx::query("SELECT pg_terminate_backend($1)").bind(killed).execute(admin.pool()).await.unwrap();
    migrators.join_all().await;

    let run = "SELECT count(*), max(version)::bigint FROM malote.migration";
    let (run, last): (i64, i64) = sqlx::query_as(run).fetch_one(admin.pool()).await.unwrap();
    assert!(run == last && last > 0, "{run} steps up to {last}");
    let mut tx = admin.begin(sealer()).await.unwrap();
    tx.publish(changed("a", 1)).await.unwrap();
    tx.commit().await.unwrap();
    let locks: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
        .fetch_one(admin.pool())
        .await
        .unwrap();
    assert_eq!(locks, 0, "a lock was left behind");
}

/// Two services in one database, each with its own schema, do not see each other.
#[tokio::test]
async fn ac_009_two_schemas_do_not_cross() {
    let Some(url) = servers::fresh_database("store") else { return };
    let mut stores = Vec::new();
    for schema in ["ledger", "Select"] {
        let store = migrated(Postgres::builder(&url).schema(schema)).await;
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.publish(changed(schema, 1)).await.unwrap();
        tx.commit().await.unwrap();
        stores.push(store);
    }
    for store in stores {
        let mut relay = Relay::start(&store).await;
        relay.drain().await;
        assert_eq!(relay.keys(), [store.schema()]);
        store.upkeep(&relay.save().await).await.unwrap();
    }
}

/// Names are identifiers or are refused.
#[tokio::test]
async fn ac_079_a_name_is_not_sql() {
    let Some(url) = servers::fresh_database("store") else { return };
    let long = "x".repeat(64);
    let bad = ["", "1a", "a.b", "a\"b", "a;b", "a b", "a'b", "a-b", "é", "x; DROP TABLE canary", &long];
    for name in bad {
        let refused = Postgres::builder(&url).schema(name).connect().await.map(drop).unwrap_err();
        assert!(refused.to_string().contains("not a valid name"), "{refused}");
    }
}

/// Whatever is wrong with a URL, the password is not in what is said about it.
#[tokio::test]
async fn ac_078_a_password_is_not_printed() {
    for password in ["c4n4ry", "c4n4ry/x", "c4n4ry#x", "c4n4ry?x", "c4n4ry%zz", "c4n4ry:1@x", "c4n4ry[x", "c4n4ry x"] {
        for url in [
            format!("postgres://u:{password}@127.0.0.1:1/d"),
            format!("postgres://u:{password}@127.0.0.1:99999/d"),
            format!("postgres://u:{password}@[::/d"),
            format!("postgres//u:{password}@127.0.0.1/d"),
            format!("mysql://u:{password}@127.0.0.1/d"),
            format!("postgres://127.0.0.1:1/d?password={password}&sslmode={password}"),
        ] {
            let connect = Postgres::builder(&url).patience(Duration::from_secs(2)).connect();
            let Err(error) = connect.await else { panic!("connected to nothing") };
            assert!(!format!("{error} {error:?}").contains("c4n4ry"), "{error:?}");
        }
    }
}

/// A commit is heard in another process, by a connection that came back after it was cut.
#[tokio::test]
async fn other_processes_are_woken() {
    let Some(url) = servers::fresh_database("store") else { return };
    let writer = migrated(Postgres::builder(&url)).await;
    let reader = Postgres::connect(&url).await.unwrap();
    for round in 0..2 {
        // the first time it begins to listen, and says so by one wake-up for nothing
        tokio::time::timeout(common::PATIENCE, reader.woken()).await.expect("listening");
        let waiting = tokio::spawn({
            let reader = reader.clone();
            async move { reader.woken().await }
        });
        let mut tx = writer.begin(sealer()).await.unwrap();
        tx.publish(changed("a", round)).await.unwrap();
        tx.commit().await.unwrap();
        tokio::time::timeout(common::PATIENCE, waiting).await.expect("woken").unwrap();
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()";
        let cut: i64 = sqlx::query_scalar(cut).fetch_one(writer.pool()).await.unwrap();
        assert_eq!(cut, 1);
    }
}

/// Not while the relay is in the writer's own process: then nobody else needs to know.
#[tokio::test]
async fn nobody_is_notified_while_the_relay_is_here() {
    let Some(store) = open().await else { return };
    let mut listener = sqlx::postgres::PgListener::connect_with(store.pool()).await.unwrap();
    listener.listen("malote.outbox").await.unwrap();
    let mut relay = Relay::start(&store).await;
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("a", 1)).await.unwrap();
    tx.commit().await.unwrap();
    relay.drain().await;
    store.release_lease(&relay.lease).await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("a", 2)).await.unwrap();
    tx.commit().await.unwrap();
    listener.recv().await.unwrap();
    assert!(listener.next_buffered().is_none(), "the first commit was told, too");
}
