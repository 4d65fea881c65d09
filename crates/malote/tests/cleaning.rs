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

/// Rows of one transaction, and how often one is made.
const EACH: i64 = 100;
const PACE: Duration = Duration::from_millis(50);
/// The short form.
const MINUTE: Duration = Duration::from_secs(60);
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

/// Writes the next transaction's rows, and is never further ahead of the relay than a few of them.
async fn write<S: TestStore>(store: &S, n: i64) -> i64 {
    ask(store, (n..n + EACH).map(|n| ping(&format!("k{}", n % 50), n))).await;
    if n % 1_000 == 0 {
        let behind = format!("select count(*) from malote.relay where name = 'asker' and high >= {}", n - 2_000);
        store.until_count(&behind, 1).await;
    }
    n + EACH
}

/// Under a steady load few of the rows are there at once, and a row takes no more of tables and indexes at the
/// end than it did at the beginning: nothing that is removed leaves its room behind. `bytes` asks for what they
/// take, all in all.
async fn stays_bounded<S: TestStore>(store: S, bytes: &str) {
    let running = start(Runtime::new().with(asker(&store, log().await))).await;
    let (began, lasts) = (Instant::now(), soak::duration(MINUTE));
    let (mut n, mut pace, mut early, mut most) = (0, tokio::time::interval(PACE), [0; 2], [0; 2]);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while began.elapsed() < lasts {
        pace.tick().await;
        n = write(&store, n).await;
        if n % 1_000 == 0 {
            let now = [store.count("select count(*) from malote.outbox").await, store.count(bytes).await];
            for (most, now) in most.iter_mut().zip(now) {
                *most = (*most).max(now);
            }
            if began.elapsed() < lasts / 3 {
                early = most;
            }
        }
    }
    running.stop().await;
    println!("{n} rows written steadily; at most {} rows and {} bytes were there, of which", most[0], most[1]);
    println!("{} rows and {} bytes in the first third of the time", early[0], early[1]);
    assert!(most[0] < n / 3, "{most:?} of {n} rows");
    assert!(most[1] * early[0] < early[1] * most[0] * 3 / 2, "{most:?}, after {early:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_ac_019_rows_go_under_load_on_sqlite() {
    let path = folder().join("asker.db");
    let store = Sqlite::builder().keep_outbox(Duration::ZERO).open(path.to_str().unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    let used = "select (p.page_count - f.freelist_count) * s.page_size \
                from pragma_page_count p, pragma_freelist_count f, pragma_page_size s";
    stays_bounded(store, used).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_ac_019_rows_go_under_load_on_postgres() {
    let Some((store, _)) = postgres().await else { return };
    let used = "select sum(pg_total_relation_size(c.oid))::int8 from pg_class c \
                where c.relnamespace = 'malote'::regnamespace and c.relkind = 'r'";
    stays_bounded(store, used).await;
}

/// Slices with a snapshot held and without take turns, so that whatever else the machine does meets both.
#[tokio::test(flavor = "multi_thread")]
async fn soak_a_held_snapshot_does_not_slow_publishing() {
    const SLICE: i64 = 2_000;
    let Some((store, url)) = postgres().await else { return };
    let running = start(Runtime::new().with(asker(&store, log().await))).await;
    let (end, mut n, mut took) = (Instant::now() + soak::duration(MINUTE), 0, [Duration::ZERO; 2]);
    while Instant::now() < end {
        for (held, took) in took.iter_mut().enumerate() {
            let mut reader = PgConnection::connect(&url).await.unwrap();
            if held == 1 {
                let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM malote.outbox";
                reader.execute(hold).await.unwrap();
            }
            let (began, until) = (Instant::now(), n + SLICE);
            while n < until {
                n = write(&store, n).await;
            }
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
