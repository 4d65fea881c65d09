//! Cases of messages that wait, on SQLite's own clock and constraints.
#![allow(missing_docs)]

mod common;

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    LONG, by_hand, envelope, open_with, sealer, somebody, store,
    waiting::{CONSUMER, REDRIVE, act, claim, failed, give_up, handle, park, set_clock, settle, stop_clock, to_park},
    window,
};
use malote_core::ParkingStore;
use malote_core::{
    Admission, By, Claim, Class, Clock, Dead, Ending, Envelope, Event, History, IdempotencyStore, RequestKey, Sealer,
    Settled, Store, StoreError, Taken, TimerStore, Transaction,
    inspect::{Filter, Inspect, Redrive, Replay},
    wire,
};
use malote_sqlite::{Sqlite, Tx};
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;
use uuid::Uuid;

const NOW: i64 = 1_764_500_000_000;
const MINUTE: i64 = 60_000;

/// A node whose clock is wrong, and stands.
struct Wrong(i64);

impl Clock for Wrong {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(NOW + self.0 * MINUTE).unwrap()
    }
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

fn node(minutes: i64) -> Sealer {
    Sealer::new("node", Arc::new(Wrong(minutes)))
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Overdue {
    payment: String,
}
impl Event for Overdue {
    const TYPE: &'static str = "payment.overdue.v1";
    fn key(&self) -> String {
        self.payment.clone()
    }
}

async fn sent(store: &Sqlite) -> Vec<Envelope> {
    store.read(&window(0, &[], 1000)).await.unwrap().rows.into_iter().map(|row| row.envelope.unwrap()).collect()
}

/// Whatever the nodes' clocks show, and wherever the database's own jumps.
#[tokio::test]
async fn ac_026_only_the_clock_of_the_database_is_compared_with() {
    let (_folder, store) = store().await;
    stop_clock(&store).await;
    let hour = Duration::from_secs(3600);
    for minutes in [-10, 10] {
        let mut tx = store.begin(node(minutes)).await.unwrap();
        tx.schedule(Overdue { payment: minutes.to_string() }, hour).await.unwrap();
        tx.publish(Overdue { payment: minutes.to_string() }).await.unwrap();
        tx.commit().await.unwrap();
    }
    let at = DateTime::from_timestamp_millis(NOW + 60 * MINUTE).unwrap();
    let mut tx = store.begin(node(10)).await.unwrap();
    tx.schedule(Overdue { payment: "at".into() }, at).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(sent(&store).await.len(), 2, "no insert is refused");

    for early in [NOW + 51 * MINUTE, NOW - 100 * MINUTE, NOW + 60 * MINUTE - 1] {
        set_clock(&store, early).await;
        assert_eq!(store.fire(10).await.unwrap().moved, 0, "not at {early}");
    }
    set_clock(&store, NOW + 60 * MINUTE + 1).await;
    assert_eq!(store.fire(10).await.unwrap().moved, 3);
    assert_eq!(sent(&store).await.len(), 5);
    leases_are_not_stolen(&store).await;
    attempts_are_not_early(&store).await;
}

async fn leases_are_not_stolen(store: &Sqlite) {
    set_clock(store, NOW).await;
    let (minute, a, b) = (Duration::from_secs(60), somebody(), somebody());
    assert!(matches!(store.take_lease("relay", a, minute).await.unwrap(), Taken::Mine { .. }));
    let request = RequestKey { caller: "c".into(), scope: "POST /".into(), key: "1".into() };
    assert_eq!(store.claim(&request, &[0; 32], Uuid::now_v7(), minute).await.unwrap(), Claim::Won);
    for living in [NOW - 10 * MINUTE, NOW + MINUTE - 1] {
        set_clock(store, living).await;
        assert!(matches!(store.take_lease("relay", b, minute).await.unwrap(), Taken::Theirs(_)));
        let claim = store.claim(&request, &[0; 32], Uuid::now_v7(), minute).await.unwrap();
        assert!(matches!(claim, Claim::Running(_)), "{claim:?}");
    }
    set_clock(store, NOW + MINUTE).await;
    assert!(matches!(store.take_lease("relay", b, minute).await.unwrap(), Taken::Mine { .. }));
    assert_eq!(store.claim(&request, &[0; 32], Uuid::now_v7(), minute).await.unwrap(), Claim::Won);
}

async fn attempts_are_not_early(store: &Sqlite) {
    set_clock(store, NOW).await;
    let message = node(-10).seal(common::message("k", "1")).unwrap();
    park(store, &message, Duration::from_secs(60)).await;
    for early in [NOW - 10 * MINUTE, NOW + MINUTE - 1] {
        set_clock(store, early).await;
        assert!(claim(store).await.is_none());
    }
    set_clock(store, NOW + MINUTE).await;
    let head = claim(store).await.expect("it is due");
    set_clock(store, NOW - 10 * MINUTE).await;
    assert!(claim(store).await.is_none(), "a claim that lives is not taken over");
    assert!(matches!(settle(store, &head, Ending::Done).await, Settled::Rest));
}

/// One that hits a constraint of the service's own tables.
async fn violate(tx: &mut Tx, sql: &'static str) -> Result<(), StoreError> {
    let done = sqlx::query(sql).execute(&mut **tx).await;
    done.map(drop).map_err(|e| StoreError { doing: "handling".into(), class: Class::Final, source: e.into() })
}

/// Neither a handler's violation nor one of the inbox's table that is not its own key.
#[tokio::test]
async fn ac_046_only_the_inbox_key_means_handled_already() {
    let (_folder, store) = store().await;
    by_hand(
        &store,
        "CREATE TABLE parent (n INTEGER PRIMARY KEY); INSERT INTO parent VALUES (1);
         CREATE TABLE child (n INTEGER UNIQUE CHECK (n < 10), parent INTEGER REFERENCES parent);
         INSERT INTO child VALUES (1, 1)",
    )
    .await;
    let statements =
        ["INSERT INTO child VALUES (1, 1)", "INSERT INTO child VALUES (2, 7)", "INSERT INTO child VALUES (99, 1)"];
    for (n, sql) in statements.into_iter().enumerate() {
        let message = envelope(&format!("key {n}"), "1");
        let admission = [Admission::of(&message)];
        let mut tx = store.begin(sealer()).await.unwrap();
        assert_eq!(store.admit(&mut tx, CONSUMER, &admission).await.unwrap(), [true]);
        let error = violate(&mut tx, sql).await.unwrap_err();
        let class = store.classify(error.source.as_ref());
        tx.rollback().await.unwrap();

        let mut tx = store.begin(sealer()).await.unwrap();
        assert_eq!(store.admit(&mut tx, CONSUMER, &admission).await.unwrap(), [true], "it is new as before: {sql}");
        match class {
            Class::Final => {
                let letter = to_park(&message, None);
                store.set_aside(&mut tx, &final_one(&message, letter.record)).await.unwrap();
            }
            _ => {
                let setback = failed(1, "constraint", History::default(), LONG);
                store.park(&mut tx, CONSUMER, &[to_park(&message, Some(setback))]).await.unwrap();
            }
        }
        tx.commit().await.unwrap();
    }
    let (parked, dead) =
        (store.parked(&Filter::default(), 10).await.unwrap(), store.dead(&Filter::default(), 10).await.unwrap());
    assert_eq!((parked.len(), dead.len()), (2, 1), "each is tried again or a dead letter");

    // a constraint of somebody else's on the very table
    by_hand(&store, "CREATE UNIQUE INDEX foreign_index ON malote_inbox (event_id)").await;
    let message = envelope("k", "1");
    assert!(handle(&store, &message).await);
    let mut tx = store.begin(sealer()).await.unwrap();
    let admitted = store.admit(&mut tx, "notification", &[Admission::of(&message)]).await;
    assert!(admitted.is_err(), "{admitted:?}");
}

fn final_one(message: &Envelope, record: malote_core::RawRecord) -> Dead {
    Dead {
        by: By::Consumer(CONSUMER.into()),
        what: message.id.to_string(),
        admission: Some(Admission::of(message)),
        kind: Some(message.kind.clone()),
        topic: message.topic.clone(),
        key: Some(message.key.clone()),
        partition: None,
        offset: None,
        class: Class::Final,
        reason: "refused".into(),
        attempts: 1,
        history: History::default(),
        correlation_id: message.correlation_id.clone(),
        trace: None,
        record,
    }
}

/// v1 is applied, v2 dies, v3 is applied: v2 is stale, and a person has to say that it may come all the same.
#[tokio::test]
async fn ac_047_a_dead_letter_that_something_newer_has_passed_is_refused_as_stale() {
    let (_folder, store) = store().await;
    let versions: Vec<Envelope> = (1..=3).map(|n| envelope("aggregate", n.to_string())).collect();
    assert!(handle(&store, &versions[0]).await);
    park(&store, &versions[1], Duration::ZERO).await;
    give_up(&store, &claim(&store).await.unwrap(), "away", false).await;
    assert!(handle(&store, &versions[2]).await);

    let dry = store.redrive(&act(), &Filter::default(), Redrive { dry: true, ..REDRIVE }).await.unwrap();
    let acted = store.redrive(&act(), &Filter::default(), REDRIVE).await.unwrap();
    assert_eq!(dry, acted);
    assert_eq!((acted.done, acted.refused.len(), acted.refused[0].stale), (0, 1, true));
    assert!(claim(&store).await.is_none(), "nothing was put back");
    assert_eq!(store.dead(&Filter::default(), 10).await.unwrap()[0].newer, 1);
    let audit = store.audit(10).await.unwrap();
    assert_eq!((audit.len(), audit[0].act.as_str(), audit[0].actor.as_str()), (1, "redrive", "bob"));
    assert_eq!(audit[0].outcome, "stale");

    let how = Redrive { although_newer: true, ..REDRIVE };
    assert_eq!(store.redrive(&act(), &Filter::default(), how).await.unwrap().done, 1);
    assert_eq!(claim(&store).await.unwrap().what, versions[1].id.to_string());
}

/// From the row to the broker's refusal, the dead letter, its redrive, and being sent again.
#[tokio::test]
async fn ac_049_one_id_through_dead_letter_redrive_and_replay() {
    let (_folder, store) = store().await;
    let first = envelope("k", "1");
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.append(vec![first.clone()]).await.unwrap();
    tx.commit().await.unwrap();
    let row = sent(&store).await.remove(0);
    let mut dead = final_one(&row, wire::encode(&row));
    dead.by = By::Relay("payment".into());
    let mut tx = store.begin(sealer()).await.unwrap();
    store.set_aside(&mut tx, &dead).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.status().await.unwrap().relay_dead, 1);

    assert_eq!(store.redrive(&act(), &Filter::default(), REDRIVE).await.unwrap().done, 1);
    assert!(store.dead(&Filter::default(), 10).await.unwrap().is_empty());
    let how = Replay { dry: false, topic: None, consumer: Some("new".into()), most: 10 };
    let all = Filter { pending: true, ..Filter::default() };
    assert_eq!(store.replay(&act(), &all, how).await.unwrap().done, 1, "each event once");
    let rows = sent(&store).await;
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!((row.id, row.time, &row.payload), (first.id, first.time, &first.payload));
    }
    assert_eq!(rows[2].headers, [(malote_core::inspect::ONLY_FOR.to_owned(), "new".to_owned())]);
}

/// Fails, is redriven, fails again, is redriven again, and is handled: every attempt is in its history,
/// and its record is what it was.
#[tokio::test]
async fn ac_051_a_redriven_message_finds_its_way_back() {
    let (_folder, store) = store().await;
    let mut message = envelope("k", "1");
    message.headers.push(("route".into(), "x".into()));
    park(&store, &message, Duration::ZERO).await;
    for (round, error) in ["away", "still away"].into_iter().enumerate() {
        let head = claim(&store).await.expect("it is due");
        assert_eq!(wire::decode(&message.topic, &head.record).unwrap().headers, message.headers);
        give_up(&store, &head, error, round == 1).await;
        let id = store.dead(&Filter::default(), 10).await.unwrap()[0].id;
        let (row, _) = store.dead_letter(id).await.unwrap().unwrap();
        let whys: Vec<&str> = row.history.entries().iter().map(|entry| entry.why.as_str()).collect();
        let expected = [&["away", "away"][..], &["away", "away", "bob: mended", "still away"][..]][round];
        assert_eq!(whys, expected);
        assert_eq!(store.redrive(&act(), &Filter::default(), REDRIVE).await.unwrap().done, 1);
    }
    let head = claim(&store).await.expect("it is due");
    assert_eq!(head.history.entries().len(), 5);
    assert!(matches!(settle(&store, &head, Ending::Done).await, Settled::Rest));
    assert!(!handle(&store, &message).await, "one effect");
    let status = store.status().await.unwrap();
    assert!(status.consumers.is_empty(), "{:?}", status.consumers);
}

/// Two stores in one process have nothing of each other's, whichever was used first.
#[tokio::test]
async fn ac_009_two_files_in_one_process_share_nothing() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let stores = [
        open_with(&folders[0], Sqlite::builder()).await,
        open_with(&folders[1], Sqlite::builder().keep_outbox(Duration::ZERO)).await,
    ];
    for round in 0..20 {
        for (own, store) in stores.iter().enumerate() {
            let message = envelope(&format!("{own}"), format!("{round}"));
            let mut tx = store.begin(sealer()).await.unwrap();
            tx.append(vec![message.clone()]).await.unwrap();
            tx.schedule(Overdue { payment: own.to_string() }, LONG).await.unwrap();
            tx.commit().await.unwrap();
            assert!(handle(store, &message).await);
            park(store, &envelope(&format!("{own} {round}"), "1"), LONG).await;
        }
    }
    for (own, store) in stores.iter().enumerate() {
        let rows = sent(store).await;
        assert_eq!(rows.len(), 20);
        assert!(rows.iter().all(|row| row.key == own.to_string()), "a row has crossed");
        assert!(store.scheduled(100).await.unwrap().iter().all(|row| row.key == own.to_string()));
        assert!(
            store
                .parked(&Filter::default(), 100)
                .await
                .unwrap()
                .iter()
                .all(|row| row.lane.key.starts_with(&own.to_string()))
        );
        assert!(matches!(store.take_lease("relay", somebody(), LONG).await.unwrap(), Taken::Mine { last: 20, .. }));
    }
}

/// Wherever malote writes down when.
#[tokio::test]
async fn times_keep_their_milliseconds() {
    let (_folder, store) = store().await;
    let mut whole_seconds = 0;
    for n in 0..8 {
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.append(vec![envelope("k", "1")]).await.unwrap();
        tx.schedule(Overdue { payment: "k".into() }, Utc::now() + TimeDelta::hours(1)).await.unwrap();
        tx.commit().await.unwrap();
        park(&store, &envelope(&format!("{n}"), "1"), Duration::ZERO).await;
        give_up(&store, &claim(&store).await.unwrap(), "away", false).await;
        store.erase(&act(), "nobody", false).await.unwrap();
        let all = Filter::default();
        let times = [
            store.outbox(&all, 100).await.unwrap().last().unwrap().created_at,
            store.dead(&all, 100).await.unwrap().last().unwrap().last_at,
            store.scheduled(100).await.unwrap().last().unwrap().due_at,
            store.audit(1).await.unwrap()[0].at,
        ];
        assert!(times.iter().all(|at| (Utc::now() - at).abs() < TimeDelta::hours(2)), "{times:?}");
        whole_seconds += times.iter().filter(|at| at.timestamp_subsec_millis() == 0).count();
    }
    assert!(whole_seconds < 16, "{whole_seconds} of 32 times are whole seconds");
}
