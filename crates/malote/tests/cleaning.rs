//! Old rows go however busy everybody is, and a snapshot that somebody holds keeps nobody waiting.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Runtime, Service, Transport, postgres::Postgres, sqlite::Sqlite};
use malote_testkit::{servers, soak};
use sqlx::{Connection, Executor, PgConnection};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Rows of one transaction, and rows that are written at least, in the short form.
const EACH: i64 = 100;
const ROWS: i64 = 20_000;
/// A fifth of the usual period, for a tenth of the minutes that the rule speaks of.
const UPKEEP: Duration = Duration::from_millis(500);

fn asker<S: TestStore>(store: &S, log: Arc<dyn Transport>) -> Service<S> {
    Service::new("asker", store.clone(), log).emits::<Ping>().upkeep_every(UPKEEP)
}

/// Partitions of a size that matters here; what is published may go.
async fn postgres() -> Option<(Postgres, String)> {
    let url = servers::fresh_database("asker")?;
    let store = Postgres::builder(&url).partition_rows(2_000).keep_outbox(Duration::ZERO).connect().await.unwrap();
    store.migrate().await.unwrap();
    Some((store, url))
}

/// Writes without a pause, and is never further ahead of the relay than a few batches, until `enough` rows
/// are written; returns the most rows that were there at once.
async fn write<S: TestStore>(store: &S, from: i64, enough: impl Fn(i64) -> bool) -> (i64, i64) {
    let (mut n, mut most) = (from, 0);
    while !enough(n) {
        ask(store, (n..n + EACH).map(|n| ping(&format!("k{}", n % 50), n))).await;
        n += EACH;
        if n % 1_000 == 0 {
            most = most.max(store.count("select count(*) from malote.outbox").await);
            let behind = format!("select count(*) from malote.relay where name = 'asker' and high >= {}", n - 3_000);
            store.until_count(&behind, 1).await;
        }
    }
    (n, most)
}

async fn stays_bounded<S: TestStore>(store: S) {
    let running = start(Runtime::new().with(asker(&store, log().await))).await;
    let end = Instant::now() + soak::duration(Duration::ZERO);
    let (written, most) = write(&store, 0, |n| n >= ROWS && Instant::now() >= end).await;
    running.stop().await;
    println!("{written} rows written without a pause, {most} at most were there at once");
    assert!(most < ROWS * 3 / 4, "{most} of {written} rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_ac_019_rows_go_under_load_on_sqlite() {
    let path = folder().join("asker.db");
    let store = Sqlite::builder().keep_outbox(Duration::ZERO).open(path.to_str().unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    stays_bounded(store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_ac_019_rows_go_under_load_on_postgres() {
    let Some((store, _)) = postgres().await else { return };
    stays_bounded(store).await;
}

/// Slices with a snapshot held and without take turns, so that whatever else the machine does meets both.
#[tokio::test(flavor = "multi_thread")]
async fn soak_a_held_snapshot_does_not_slow_publishing() {
    const SLICE: i64 = 2_000;
    let Some((store, url)) = postgres().await else { return };
    let running = start(Runtime::new().with(asker(&store, log().await))).await;
    let (end, mut n, mut took) = (Instant::now() + soak::duration(Duration::ZERO), 0, [Duration::ZERO; 2]);
    while n < 4 * SLICE || Instant::now() < end {
        for (held, took) in took.iter_mut().enumerate() {
            let mut reader = PgConnection::connect(&url).await.unwrap();
            if held == 1 {
                let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM malote.outbox";
                reader.execute(hold).await.unwrap();
            }
            let (began, until) = (Instant::now(), n + SLICE);
            (n, _) = write(&store, n, |n| n >= until).await;
            let settled = format!("select count(*) from malote.relay where name = 'asker' and high = {n}");
            store.until_count(&settled, 1).await;
            *took += began.elapsed();
            reader.close().await.unwrap();
        }
    }
    running.stop().await;
    let ratio = took[0].as_secs_f64() / took[1].as_secs_f64();
    println!("{n} rows: with a snapshot held, publishing keeps {ratio:.2} of its rate");
}

/// A service that leaves its outbox to others still has an inbox of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_relay_has_partitions_ahead() {
    let Some((store, _)) = postgres().await else { return };
    let days = "select count(*) from pg_inherits where inhparent = 'malote.inbox'::regclass";
    let all = store.count(days).await;
    store
        .execute(
            "do $$begin execute (select 'drop table ' || max(inhrelid::regclass::text) from pg_inherits \
             where inhparent = 'malote.inbox'::regclass and inhrelid::regclass::text ~ '[0-9]$'); end$$",
        )
        .await;
    assert_eq!(store.count(days).await, all - 1);
    let running = start(Runtime::new().with(asker(&store, log().await).without_relay())).await;
    store.until_count(days, all).await;
    running.stop().await;
}
