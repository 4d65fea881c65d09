//! Whoever ends a lane and whoever puts something into it never wait for each other in a circle.
#![allow(missing_docs)]

mod common;

use bytes::Bytes;
use chrono::NaiveDate;
use common::{open, sealer};
use malote_core::{
    Admission, Budget, ClaimDue, Class, Ending, Failed, History, Incarnation, Lane, LaneState, Parked, ParkingStore,
    RawRecord, Settled, ToPark,
};
use malote_postgres::Postgres;
use sqlx::Executor;
use std::time::Duration;
use uuid::Uuid;

const CONSUMER: &str = "ledger";
const LONG: Duration = Duration::from_secs(600);

fn lane(key: &str) -> Lane {
    Lane { topic: "things".into(), key: key.into() }
}

fn failed(wait: Duration) -> Failed {
    Failed { class: Class::Transient, error: "away".into(), attempts: 1, history: History::default(), wait }
}

fn letter(key: &str, setback: Option<Failed>) -> ToPark {
    let id = Uuid::now_v7();
    let day = NaiveDate::from_ymd_opt(2025, 12, 31).unwrap();
    let record = RawRecord { key: None, headers: Vec::new(), payload: Some(Bytes::from_static(b"{}")) };
    let admission = Some(Admission { event_id: id, day });
    ToPark { lane: lane(key), what: id.to_string(), admission, kind: Some("thing.v1".into()), record, setback }
}

/// Parks a message that failed in each of these lanes.
async fn park(store: &Postgres, keys: &[&str]) {
    let mut tx = store.begin(sealer()).await.unwrap();
    let letters: Vec<ToPark> = keys.iter().map(|key| letter(key, Some(failed(Duration::ZERO)))).collect();
    store.park(&mut tx, CONSUMER, &letters).await.unwrap();
    tx.commit().await.unwrap();
}

fn ask() -> ClaimDue {
    let budget = Budget { per_second: 1e6, burst: 1e6 };
    ClaimDue { who: Incarnation(Uuid::now_v7()), most: 10, holds: LONG, budget }
}

/// Claims until so many heads were due.
async fn claim(store: &Postgres, most: usize) -> Vec<Parked> {
    let mut heads = Vec::new();
    while heads.len() < most {
        let due = store.claim_due(CONSUMER, &ask()).await.unwrap();
        if due.heads.is_empty() {
            tokio::time::sleep(due.next.expect("nothing will ever be due")).await; // as long as the store says
        }
        heads.extend(due.heads);
    }
    heads.sort_by(|a, b| a.lane.cmp(&b.lane));
    heads
}

async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(30), test).await.expect("somebody waits for somebody else");
}

/// A consumer has seen two lanes busy and is about to put something behind; an attempt at the head of one
/// is put off and the other lane looks empty, in one transaction.
#[tokio::test]
async fn ending_a_lane_waits_for_nobody() {
    let Some(store) = open().await else { return };
    in_time(async {
        park(&store, &["a", "b"]).await;
        let heads = claim(&store, 2).await;
        let mut consumer = store.begin(sealer()).await.unwrap();
        let lanes = [lane("a"), lane("b")];
        let seen = store.lanes(&mut consumer, CONSUMER, &lanes).await.unwrap();
        assert_eq!(seen, [LaneState::Busy, LaneState::Busy]);

        let mut attempt = store.begin(sealer()).await.unwrap();
        let again = Ending::Again(failed(Duration::ZERO));
        assert!(matches!(store.settle(&mut attempt, &heads[0], &again).await.unwrap(), Settled::Rest));
        assert!(matches!(store.settle(&mut attempt, &heads[1], &Ending::Done).await.unwrap(), Settled::Rest));
        let behind = [letter("a", None), letter("b", None)];
        store.park(&mut consumer, CONSUMER, &behind).await.unwrap();
        consumer.commit().await.unwrap();
        attempt.commit().await.unwrap();

        let heads = claim(&store, 2).await;
        assert_eq!(heads[0].attempts, 2);
        assert_eq!(heads[1].what, behind[1].what, "what was put into the lane meanwhile is at its head");
    })
    .await;
}

/// The consumer puts nothing there after all: the empty lane does not stay.
#[tokio::test]
async fn a_lane_that_was_left_empty_is_ended_by_a_claim() {
    let Some(store) = open().await else { return };
    in_time(async {
        park(&store, &["a", "b"]).await;
        let heads = claim(&store, 2).await;
        let mut consumer = store.begin(sealer()).await.unwrap();
        store.lanes(&mut consumer, CONSUMER, &[lane("b")]).await.unwrap();
        let mut attempt = store.begin(sealer()).await.unwrap();
        for head in &heads {
            assert!(matches!(store.settle(&mut attempt, head, &Ending::Done).await.unwrap(), Settled::Rest));
        }
        attempt.commit().await.unwrap();
        consumer.rollback().await.unwrap();

        loop {
            let due = store.claim_due(CONSUMER, &ask()).await.unwrap();
            assert!(due.heads.is_empty(), "{:?}", due.heads);
            let mut looking = store.begin(sealer()).await.unwrap();
            let seen = store.lanes(&mut looking, CONSUMER, &[lane("a"), lane("b")]).await.unwrap();
            looking.rollback().await.unwrap();
            assert_eq!(seen[0], LaneState::Free, "nobody was at it");
            if seen[1] == LaneState::Free {
                break;
            }
            tokio::time::sleep(due.next.expect("nothing will ever be due")).await; // as long as the store says
        }
    })
    .await;
}

/// Lanes with dead letters that a consumer sees passing, before something is put into them and claimed.
async fn passing(store: &Postgres, keys: &[&str]) -> (malote_postgres::Tx, Vec<Parked>) {
    for key in keys {
        let make = "INSERT INTO malote.lane (consumer, topic, key, dead) VALUES ($1, 'things', $2, 2)";
        sqlx::query(make).bind(CONSUMER).bind(key).execute(store.pool()).await.unwrap();
    }
    let mut consumer = store.begin(sealer()).await.unwrap();
    let lanes: Vec<Lane> = keys.iter().map(|key| lane(key)).collect();
    let seen = store.lanes(&mut consumer, CONSUMER, &lanes).await.unwrap();
    assert!(seen.iter().all(|state| *state == LaneState::Passing), "{seen:?}");
    // somebody redrives what is dead
    park(store, keys).await;
    let heads = claim(store, keys.len()).await;
    (consumer, heads)
}

/// What is redriven ends while a consumer counts what it handled in the same lanes.
async fn counting(store: Postgres) {
    let (mut consumer, heads) = passing(&store, &["B", "a"]).await;
    let mut attempt = store.begin(sealer()).await.unwrap();
    store.settle(&mut attempt, &heads[0], &Ending::Done).await.unwrap();
    let lanes = [lane("a"), lane("B")];
    let (passed, settled) = tokio::join!(store.pass(&mut consumer, CONSUMER, &lanes), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let settled = store.settle(&mut attempt, &heads[1], &Ending::Done).await;
        attempt.commit().await.and(settled)
    });
    settled.unwrap();
    passed.unwrap();
    consumer.commit().await.unwrap();
}

/// Where capital letters come after small ones, too.
#[tokio::test]
async fn lanes_are_locked_in_one_order_in_any_collation() {
    let Some(url) = malote_testkit::servers::fresh_database("store") else { return };
    let name = malote_testkit::servers::unique("sorted");
    let make =
        format!("CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'");
    Postgres::connect(&url).await.unwrap().pool().execute(sqlx::AssertSqlSafe(make)).await.unwrap();
    let sorted = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
    for url in [url, sorted] {
        let store = common::migrated(Postgres::builder(url).connections(24)).await;
        in_time(counting(store)).await;
    }
}
