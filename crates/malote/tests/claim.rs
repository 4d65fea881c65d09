//! A table that exists already, served by claiming and marking.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    ClaimRelay, Runtime, Service, Transport,
    postgres::{Adopted, Layout, Postgres},
    retry::Backoff,
    with,
};
use malote_testkit::faults::{Fate, Faulty};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// A table as many services have it.
const TABLE: [&str; 2] = [
    "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id uuid NOT NULL,
        event_type text NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
        published_at timestamptz)",
    "CREATE INDEX idx_outbox_unpublished ON outbox (created_at) WHERE published_at IS NULL",
];
const INSERT: &str = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
     SELECT gen_random_uuid(), 'ping', gen_random_uuid(), 'ping.v1', jsonb_build_object('key', 'k', 'n', n)
       FROM generate_series(1, 300) AS n";

const INSERT_ROWS: &str = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, created_at)
     SELECT gen_random_uuid(), 'ping', gen_random_uuid(), 'ping.v1', jsonb_build_object('key', '{key}', 'n', n),
            now() - interval '{age}'
       FROM generate_series({from}, {to}) AS n";

async fn publish_all(replicas: usize, decide: impl Fn() -> Fate + Send + Sync + 'static) {
    let (Some(db), Some(b)) = (Postgres::fresh("adopted").await, Postgres::fresh("listener").await) else { return };
    for statement in TABLE {
        db.execute(statement).await;
    }
    let transport: Arc<dyn Transport> =
        Arc::new(Faulty::new(
            log().await,
            move |envelope| {
                if envelope.kind == "ping.v1" { decide() } else { Fate::Pass }
            },
        ));
    let heard = Log::default();
    let listener =
        Service::new("listener", b, transport.clone()).on(with(heard.clone(), answer::<malote::postgres::Tx>));
    let running = start(Runtime::new().with(listener.terminal::<Pong>())).await;
    let mut relays = Vec::new();
    for _ in 0..replicas {
        let source = Adopted::open(&db, Layout::published_at("outbox")).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = ClaimRelay::new(source, transport.clone()).batch(20);
        relays.push((stop, tokio::spawn(relay.run_until(stopped))));
    }
    db.execute(INSERT).await;
    let heard = heard.until(|all: &[Ping]| all.len() == 300).await;
    let left = async || db.count("SELECT count(*) FROM outbox WHERE published_at IS NULL").await;
    let end = std::time::Instant::now() + LONG;
    while left().await > 0 {
        assert!(std::time::Instant::now() < end, "{} rows are not marked", left().await);
    }
    for (stop, relay) in relays {
        drop(stop);
        relay.await.unwrap();
    }
    running.stop().await;
    assert_eq!(heard.iter().map(|p| p.n).collect::<HashSet<_>>().len(), 300);
}

/// The oldest rows are refused, more of them than a batch holds; the others arrive all the same, and
/// in the end the refused ones are left alone.
#[tokio::test(flavor = "multi_thread")]
async fn refused_rows_hold_up_nobody() {
    in_time(async {
        let Some(db) = Postgres::fresh("refused").await else { return };
        for statement in TABLE {
            db.execute(statement).await;
        }
        let (refusals, sent) = (Log::default(), Log::default());
        let (noted, passed) = (refusals.clone(), sent.clone());
        let transport = Faulty::new(log().await, move |envelope| {
            let ping: Ping = serde_json::from_slice(&envelope.payload).unwrap();
            if ping.key == "bad" {
                noted.add(ping.n);
                return Fate::Refuse("not today".into());
            }
            passed.add(ping.n);
            Fate::Pass
        });
        transport.ensure(&["ping.v1".to_owned()]).await.unwrap();
        let rows = |key: &str, from: i64, to: i64, age: &str| {
            INSERT_ROWS
                .replace("{key}", key)
                .replace("{age}", age)
                .replace("{from}", &from.to_string())
                .replace("{to}", &to.to_string())
        };
        db.execute(&rows("bad", 1, 25, "1 hour")).await;
        db.execute(&rows("good", 100, 199, "0")).await;
        let source = Adopted::open(&db, Layout::published_at("outbox")).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let wait = Backoff { first: Duration::from_millis(100), most: Duration::from_millis(400) };
        let relay = ClaimRelay::new(source, Arc::new(transport)).batch(20).refused(wait, 3);
        let relay = tokio::spawn(relay.run_until(stopped));
        sent.until(|all: &[i64]| all.len() == 100).await;
        refusals.until(|all: &[i64]| all.len() >= 75).await;
        // were they claimed still, they would be in the batch of these, for they are older
        db.execute(&rows("good", 200, 219, "0")).await;
        sent.until(|all: &[i64]| all.len() == 120).await;
        drop(stop);
        relay.await.unwrap();
        let mut refused = refusals.all();
        refused.sort_unstable();
        assert_eq!(refused, (1..=25).flat_map(|n| [n; 3]).collect::<Vec<i64>>(), "each three times");
        assert_eq!(db.count("SELECT count(*) FROM outbox WHERE published_at IS NULL").await, 25);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_share_the_rows_of_an_adopted_table() {
    in_time(publish_all(3, || Fate::Pass)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_report_of_its_own_is_not_marked() {
    let count = AtomicUsize::new(0);
    in_time(publish_all(1, move || match count.fetch_add(1, Ordering::Relaxed) % 17 {
        5 => Fate::LoseAnswer,
        11 => Fate::Vanish,
        _ => Fate::Pass,
    }))
    .await;
}
