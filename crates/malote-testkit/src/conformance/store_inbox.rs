//! Inbox and what is set aside.

use super::store::{PATIENCE, sealer};
use bytes::Bytes;
use chrono::{Days, NaiveDate};
use malote_core::{Admission, By, Class, Dead, History, RawRecord, Setback, Store, StoreError, Transaction};
use tokio::time::timeout;
use uuid::Uuid;

fn event(day: u64) -> Admission {
    let epoch = NaiveDate::from_ymd_opt(2025, 12, 31).unwrap();
    Admission { event_id: Uuid::now_v7(), day: epoch + Days::new(day) }
}

async fn admit<S: Store>(store: &S, consumer: &str, events: &[Admission]) -> Vec<bool> {
    let mut tx = store.begin(sealer()).await.unwrap();
    let new = store.admit(&mut tx, consumer, events).await.unwrap();
    tx.commit().await.unwrap();
    new
}

/// In the caller's order; of an event that comes twice in a batch the first is new; the day belongs to
/// an event's identity, and so does the consumer.
pub async fn each_event_is_admitted_once_per_consumer<S: Store>(store: S) {
    let (a, b, c) = (event(0), event(1), event(0));
    assert_eq!(admit(&store, "ledger", &[b, a, b]).await, [true, true, false]);
    assert_eq!(admit(&store, "ledger", &[a, c, b, c]).await, [false, true, false, false]);
    assert_eq!(admit(&store, "notification", &[a, b, c]).await, [true; 3]);
    assert_eq!(admit(&store, "ledger", &[]).await, [false; 0]);
    let many: Vec<Admission> = (0..2_000).map(|n| event(n % 3)).collect();
    assert_eq!(admit(&store, "ledger", &many).await, [true; 2_000]);
    assert_eq!(admit(&store, "ledger", &many).await, [false; 2_000]);
}

/// So it may come again.
pub async fn what_is_rolled_back_was_not_admitted<S: Store>(store: S) {
    let a = event(0);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert_eq!(store.admit(&mut tx, "ledger", &[a]).await.unwrap(), [true]);
    tx.rollback().await.unwrap();
    assert_eq!(admit(&store, "ledger", &[a]).await, [true]);
}

/// Batches that hold the same events in different orders wait for each other in one direction.
pub async fn batches_in_any_order_do_not_deadlock<S: Store>(store: S) {
    // several times: whether two of them meet is up to the machine
    for _ in 0..5 {
        let events: Vec<Admission> = (0..1_000).map(|n| event(n % 2)).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (store, mut events) = (store.clone(), events.clone());
            fastrand::shuffle(&mut events);
            tasks.spawn(async move {
                let mut tx = store.begin(sealer()).await.unwrap();
                let new = store.admit(&mut tx, "ledger", &events).await?.iter().filter(|n| **n).count();
                tx.commit().await?;
                Ok::<usize, StoreError>(new)
            });
        }
        let results = timeout(PATIENCE, tasks.join_all()).await.expect("no batch waits for ever");
        let new: usize = results.into_iter().map(|result| result.unwrap()).sum();
        assert_eq!(new, events.len(), "each event is new to one batch");
    }
}

/// Only after the commit.
pub async fn what_is_admitted_is_seen<S: Store>(store: S) {
    let (a, b, c) = (event(0), event(1), event(2));
    admit(&store, "ledger", &[a, c]).await;
    assert_eq!(store.seen("ledger", &[c, b, a, b]).await.unwrap(), [true, false, true, false]);
    assert_eq!(store.seen("notification", &[a]).await.unwrap(), [false]);
    assert_eq!(store.seen("ledger", &[]).await.unwrap(), [false; 0]);
}

/// Whatever it holds: setting aside never fails over what is set aside, and twice is once.
pub async fn whatever_is_set_aside_is_kept<S: Store>(store: S) {
    let bytes = Bytes::from_static(b"\0\xff\xfe");
    let mut history = History::default();
    history.push(Setback::failed(chrono::DateTime::UNIX_EPOCH, 1, Class::Final, "\0\u{1f511}"));
    let worst = Dead {
        by: By::Consumer("\0ledger".into()),
        what: "payments/3/\0 17".into(),
        admission: None,
        kind: Some("\0".into()),
        topic: "pay\0ments".into(),
        key: Some("\0\u{1f511}".repeat(20_000)),
        partition: Some(i32::MAX),
        offset: Some(i64::MAX),
        class: Class::Final,
        reason: "\u{1f511}\0".repeat(100_000),
        attempts: u32::MAX,
        history,
        correlation_id: Some("\0".into()),
        trace: Some("\0".into()),
        record: RawRecord {
            key: Some(bytes.clone()),
            headers: vec![("a\0b".into(), bytes.clone()), ("a".into(), Bytes::new())],
            payload: Some(Bytes::from(vec![0; 900_000])),
        },
    };
    let bare = Dead {
        what: "bare".into(),
        admission: Some(event(0)),
        kind: None,
        key: None,
        partition: None,
        offset: None,
        record: RawRecord { key: None, headers: Vec::new(), payload: None },
        ..worst.clone()
    };
    for dead in [&worst, &worst, &bare] {
        let mut tx = store.begin(sealer()).await.unwrap();
        store.set_aside(&mut tx, dead).await.unwrap();
        tx.commit().await.unwrap();
    }
    let foreign = std::io::Error::other("a handler's own");
    assert_ne!(store.classify(&foreign), Class::Final, "an error that says nothing is tried again");
}
