//! Messages that wait, and the clock that they wait by.
#![allow(dead_code)]

use super::{LONG, by_hand, sealer, somebody};
use bytes::Bytes;
use chrono::DateTime;
use malote_core::{
    Admission, Budget, By, ClaimDue, Class, Dead, Ending, Envelope, Failed, History, Lane, Parked, ParkingStore,
    Setback, Settled, Store, ToPark,
    inspect::{Act, Redrive},
    wire,
};
use malote_sqlite::Sqlite;
use std::time::Duration;

pub const CONSUMER: &str = "ledger";

pub fn lane_of(envelope: &Envelope) -> Lane {
    Lane { topic: envelope.topic.clone(), key: envelope.key.clone() }
}

pub fn failed(attempts: u32, error: &str, mut history: History, wait: Duration) -> Failed {
    history.push(Setback::failed(DateTime::UNIX_EPOCH, attempts, Class::Transient, error));
    Failed { class: Class::Transient, error: error.into(), attempts, history, wait }
}

pub fn to_park(envelope: &Envelope, setback: Option<Failed>) -> ToPark {
    ToPark {
        lane: lane_of(envelope),
        what: envelope.id.to_string(),
        admission: Some(Admission::of(envelope)),
        kind: Some(envelope.kind.clone()),
        record: wire::encode(envelope),
        setback,
    }
}

/// Takes a message that fails at its first attempt.
pub async fn park(store: &Sqlite, envelope: &Envelope, wait: Duration) {
    let mut tx = store.begin(sealer()).await.unwrap();
    assert_eq!(store.admit(&mut tx, CONSUMER, &[Admission::of(envelope)]).await.unwrap(), [true]);
    let letter = to_park(envelope, Some(failed(1, "away", History::default(), wait)));
    store.park(&mut tx, CONSUMER, &[letter]).await.unwrap();
    tx.commit().await.unwrap();
}

/// Takes a message that is handled at its first attempt. Says whether it was new.
pub async fn handle(store: &Sqlite, envelope: &Envelope) -> bool {
    let mut tx = store.begin(sealer()).await.unwrap();
    let new = store.admit(&mut tx, CONSUMER, &[Admission::of(envelope)]).await.unwrap()[0];
    if new {
        store.pass(&mut tx, CONSUMER, &[lane_of(envelope)]).await.unwrap();
    }
    tx.commit().await.unwrap();
    new
}

pub async fn claim(store: &Sqlite) -> Option<Parked> {
    let budget = Budget { per_second: 1e6, burst: 1e6 };
    let ask = ClaimDue { who: somebody(), most: 1, holds: LONG, budget };
    store.claim_due(CONSUMER, &ask).await.unwrap().heads.pop()
}

pub async fn settle(store: &Sqlite, head: &Parked, ending: Ending) -> Settled {
    let mut tx = store.begin(sealer()).await.unwrap();
    let settled = store.settle(&mut tx, head, &ending).await.unwrap();
    tx.commit().await.unwrap();
    settled
}

/// Gives the head up after one more attempt.
pub async fn give_up(store: &Sqlite, head: &Parked, error: &str, hold: bool) {
    let failed = failed(head.attempts, error, head.history.clone(), Duration::ZERO);
    let envelope = wire::decode(&head.lane.topic, &head.record).unwrap();
    let dead = Dead {
        by: By::Consumer(head.consumer.clone()),
        what: head.what.clone(),
        admission: head.admission,
        kind: Some(envelope.kind.clone()),
        topic: head.lane.topic.clone(),
        key: Some(head.lane.key.clone()),
        partition: None,
        offset: None,
        class: Class::Transient,
        reason: error.into(),
        attempts: head.attempts,
        history: failed.history,
        correlation_id: envelope.correlation_id,
        trace: None,
        record: head.record.clone(),
    };
    settle(store, head, Ending::Dead { dead: Box::new(dead), hold }).await;
}

pub fn act() -> Act {
    Act { actor: "bob".into(), reason: "mended".into() }
}

pub const REDRIVE: Redrive = Redrive { dry: false, per_second: 0, although_newer: false };

/// From here on the database's clock shows what [`set_clock`] says.
pub async fn stop_clock(store: &Sqlite) {
    by_hand(
        store,
        "CREATE TABLE stopped (now INTEGER); INSERT INTO stopped VALUES (1764500000000);
         DROP VIEW malote_clock; CREATE VIEW malote_clock AS SELECT now FROM stopped",
    )
    .await;
}

pub async fn set_clock(store: &Sqlite, millis: i64) {
    let mut tx = store.begin(sealer()).await.unwrap();
    sqlx::query("UPDATE stopped SET now = $1").bind(millis).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// A record that is none.
pub fn garbage() -> malote_core::RawRecord {
    malote_core::RawRecord { key: None, headers: Vec::new(), payload: Some(Bytes::from_static(b"\xff")) }
}
