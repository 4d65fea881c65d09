//! Transactions: no connection is handed out inside one, and no swallowed error is taken for success.
#![allow(missing_docs)]

mod common;

use common::{changed, migrated, open, sealer, until};
use malote_core::{
    Class, Store,
    relay::{Ranges, Window},
};
use malote_postgres::Postgres;
use malote_testkit::{proxy::Proxy, servers};
use sqlx::{Connection, Executor, PgConnection};
use std::{net::ToSocketAddrs, time::Duration};

/// A store behind a proxy, with one connection; and a second one on the straight way.
async fn behind_proxy(delay: Duration) -> Option<(Proxy, Postgres, PgConnection)> {
    let url = servers::fresh_database("store")?;
    let authority = url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
    let server = authority.to_socket_addrs().unwrap().next().unwrap();
    let proxy = Proxy::before(server, Duration::ZERO).await.unwrap();
    let through = url.replace(&authority, &format!("127.0.0.1:{}", proxy.port()));
    let store = migrated(Postgres::builder(through).connections(1)).await;
    store.pool().execute("CREATE TABLE n (n int)").await.unwrap();
    proxy.set_delay(delay);
    Some((proxy, store, PgConnection::connect(&url).await.unwrap()))
}

/// The begin is given up at a thousand instants of its way there and back; each time the next borrower
/// writes, and another connection sees it.
#[tokio::test]
async fn ac_030_a_begin_that_was_given_up_is_no_ones_transaction() {
    let way = Duration::from_micros(700);
    let Some((_proxy, store, mut watcher)) = behind_proxy(way).await else { return };
    let mut dice = fastrand::Rng::with_seed(30);
    for n in 0..1_000 {
        let instant = Duration::from_micros(dice.u64(0..4_000));
        // malote's own, and what a service may do on the pool
        if n % 2 == 0 {
            drop(tokio::time::timeout(instant, store.begin(sealer())).await);
        } else {
            drop(tokio::time::timeout(instant, store.pool().begin()).await);
        }
        sqlx::query("INSERT INTO n VALUES ($1)").bind(n).execute(store.pool()).await.unwrap();
        let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM n").fetch_one(&mut watcher).await.unwrap();
        assert_eq!(seen, i64::from(n) + 1, "the write went into a transaction that nobody commits");
    }
}

/// Whatever a transaction was doing when it was dropped, and wherever: on no runtime, too.
#[tokio::test]
async fn a_dropped_transaction_leaves_a_clean_connection() {
    let Some((_proxy, store, mut watcher)) = behind_proxy(Duration::ZERO).await else { return };
    for n in 0..4 {
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.execute("INSERT INTO n VALUES (0)").await.unwrap();
        match n {
            0 => drop(tx),
            1 => {
                drop(tokio::time::timeout(Duration::from_millis(20), tx.execute("SELECT pg_sleep(0.2)")).await);
                drop(tx);
            }
            2 => {
                tx.execute("SELECT 1 / 0").await.unwrap_err();
                drop(tx);
            }
            _ => std::thread::spawn(move || drop(tx)).join().unwrap(),
        }
        let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM n").fetch_one(store.pool()).await.unwrap();
        assert_eq!(seen, 0);
        store.pool().execute("INSERT INTO n VALUES (1)").await.unwrap();
        let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM n").fetch_one(&mut watcher).await.unwrap();
        assert_eq!(seen, 1, "the next borrower's write was not committed");
        store.pool().execute("TRUNCATE n").await.unwrap();
    }
}

/// PostgreSQL answers COMMIT of a dead transaction with a rollback and no error.
#[tokio::test]
async fn a_swallowed_error_is_not_committed() {
    let Some(store) = open().await else { return };
    store.pool().execute("CREATE TABLE n (n int PRIMARY KEY); INSERT INTO n VALUES (1)").await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("a", 1)).await.unwrap();
    let _swallowed = tx.execute("INSERT INTO n VALUES (1)").await;
    let error = tx.commit().await.unwrap_err();
    assert_eq!(error.class, Class::Final);
    assert!(error.to_string().contains("tx.attempt()"), "{error}");

    let mut tx = store.begin(sealer()).await.unwrap();
    let tried = tx.attempt(async |tx| tx.execute("INSERT INTO n VALUES (1)").await.map(drop)).await.unwrap();
    assert!(tried.is_err());
    let kept = tx.attempt(async |tx| tx.execute("INSERT INTO n VALUES (2)").await.map(drop)).await.unwrap();
    assert!(kept.is_ok());
    let nested = tx.attempt(async |tx| {
        tx.attempt(async |tx| tx.execute("INSERT INTO n VALUES (3)").await.map(drop)).await.unwrap().unwrap();
        Err::<(), _>("all of it")
    });
    assert_eq!(nested.await.unwrap(), Err("all of it"));
    tx.publish(changed("b", 1)).await.unwrap();
    tx.commit().await.unwrap();
    let kept: Vec<i32> = sqlx::query_scalar("SELECT n FROM n ORDER BY n").fetch_all(store.pool()).await.unwrap();
    assert_eq!(kept, [1, 2]);
    assert_eq!(store.read(&window()).await.unwrap().rows.len(), 1);
}

/// Nobody knows what belongs to it.
#[tokio::test]
async fn an_attempt_that_was_given_up_cannot_be_committed() {
    let Some(store) = open().await else { return };
    let mut tx = store.begin(sealer()).await.unwrap();
    let attempt = tx.attempt(async |tx| tx.execute("SELECT pg_sleep(10)").await.map(drop));
    drop(tokio::time::timeout(Duration::from_millis(50), attempt).await);
    assert_eq!(tx.commit().await.unwrap_err().class, Class::Final);
}

/// The server restarts between two uses: connections that it closed are replaced, not handed out.
#[tokio::test]
async fn connections_that_died_in_the_pool_are_replaced() {
    let Some((proxy, store, _watcher)) = behind_proxy(Duration::ZERO).await else { return };
    for _ in 0..5 {
        proxy.cut();
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.publish(changed("a", 1)).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(store.read(&window()).await.unwrap().rows.len(), 5);
}

/// Lost while the commit is on its way: it may have taken effect, and nothing else is claimed.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown() {
    let Some((proxy, store, mut watcher)) = behind_proxy(Duration::ZERO).await else { return };
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.execute("INSERT INTO n VALUES (1)").await.unwrap();
    proxy.set_delay(Duration::from_millis(300));
    let commit = tokio::spawn(tx.commit());
    until("the commit took effect", async || {
        sqlx::query_scalar("SELECT count(*) = 1 FROM n").fetch_one(&mut watcher).await.unwrap()
    })
    .await;
    proxy.cut();
    assert_eq!(commit.await.unwrap().unwrap_err().class, Class::Unknown);
}

/// A server that turned read-only (a demoted one) is left as soon as it says so.
#[tokio::test]
async fn ac_028_a_read_only_connection_is_replaced() {
    let Some(url) = servers::fresh_database("store") else { return };
    let store = migrated(Postgres::builder(url).connections(1)).await;
    // this session only, as if the others went to the new primary
    store.pool().execute("SET default_transaction_read_only = on").await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    let error = tx.publish(changed("a", 1)).await.unwrap_err();
    assert_eq!(error.class, Class::Transient);
    drop(tx);
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("a", 1)).await.unwrap();
    tx.commit().await.unwrap();
}

/// An error is printed in many places; the row that it is about is in none of them.
#[tokio::test]
async fn an_error_does_not_show_the_payload() {
    let Some(store) = open().await else { return };
    store.pool().execute("ALTER TABLE malote.outbox ADD CHECK (key <> 'refused')").await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("secret", 1)).await.unwrap();
    let error = tx.publish(changed("refused", 1)).await.unwrap_err();
    let printed = format!("{error} {error:?}");
    assert!(printed.contains("23514") && !printed.contains("Failing row"), "{printed}");
}

fn window() -> Window {
    Window { high: 0, gaps: Ranges::new(), limit: 100 }
}
