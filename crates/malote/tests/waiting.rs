//! A statement that waits in the database for somebody else holds its own key up, and the others for a moment.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    Message, Outbox, Outcome, Runtime, Service,
    postgres::{Postgres, Tx},
    retry::Policy,
    with,
};
use std::time::Duration;

async fn work(ping: Ping, tx: &mut Tx, _: &()) -> Outcome {
    if ping.n == 7 {
        sqlx::query("UPDATE account SET balance = 1").execute(&mut **tx).await?;
    }
    sqlx::query("INSERT INTO effect VALUES ($1)").bind(ping.n).execute(&mut **tx).await?;
    Ok(())
}

/// Its deadline alone would not end the statement: a rollback waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn ac_052_a_statement_that_waits_for_a_lock_is_ended() {
    let Some(store) = Postgres::fresh("worker").await else { return };
    store.execute("CREATE TABLE effect (n bigint)").await;
    store.execute("CREATE TABLE account (balance bigint)").await;
    store.execute("INSERT INTO account VALUES (0)").await;
    let log = log().await;
    log.ensure(&["ping.v1".into()]).await.unwrap();
    let outbox = Outbox::new("maker", store.clone());
    let mut holder = outbox.begin().await.unwrap();
    let sealed = (0..20).map(|n| holder.sealer().seal(Message::of(&ping(&format!("k{n}"), n)).unwrap()).unwrap());
    log.publisher().await.unwrap().send(sealed.collect()).await.unwrap().await;
    sqlx::query("UPDATE account SET balance = 2").execute(&mut *holder).await.unwrap();

    let policy = Policy::default().attempts(1_000).deadline(Duration::from_millis(100));
    let worker = Service::new("worker", store.clone(), log).on(with((), work)).retry(policy);
    let running = start(Runtime::new().with(worker)).await;
    store.until_count("SELECT count(*) FROM effect WHERE n <> 7", 19).await;
    assert_eq!(store.count("SELECT count(*) FROM malote.parked").await, 1);
    holder.rollback().await.unwrap();
    store.until_count("SELECT count(*) FROM effect", 20).await;
    running.stop().await;
}
