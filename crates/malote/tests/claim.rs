//! A table that exists already, served by claiming and marking.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    ClaimRelay, Runtime, Service, Transport,
    postgres::{Adopted, Layout, Postgres},
    with,
};
use malote_testkit::faults::{Fate, Faulty};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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
