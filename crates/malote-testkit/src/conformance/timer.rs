//! Envelopes that wait for their time: once, in order, never early.

use super::store::{PATIENCE, WallClock, message, sealer};
use chrono::{DateTime, TimeDelta, Utc};
use malote_core::{
    Clock, Envelope, FullStore, Read, Store, Transaction, When,
    relay::{Ranges, Window},
};
use std::time::{Duration, Instant};
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(3600);

fn now() -> DateTime<Utc> {
    WallClock.now()
}

async fn schedule<S: Store>(store: &S, key: &str, when: impl Into<When>) -> Uuid {
    let mut tx = store.begin(sealer()).await.unwrap();
    let envelope = tx.sealer().seal(message(key)).unwrap();
    let id = envelope.id;
    tx.schedule(when.into(), envelope).await.unwrap();
    tx.commit().await.unwrap();
    id
}

async fn read<S: Store>(store: &S) -> Vec<Envelope> {
    let Read { rows, .. } = store.read(&Window { high: 0, gaps: Ranges::new(), limit: 10_000 }).await.unwrap();
    rows.into_iter().map(|row| row.envelope.unwrap()).collect()
}

/// As it was sealed, but with the time of its moving: that is when it is said.
pub async fn what_is_due_moves_to_the_outbox<S: FullStore>(store: S) {
    let before = now();
    let mut tx = store.begin(sealer()).await.unwrap();
    let mut envelope = tx.sealer().seal(message("due")).unwrap();
    envelope.headers.push(("extra".into(), "\"x\" \u{1f511}".into()));
    envelope.time = before - TimeDelta::days(3);
    tx.schedule(When::After(Duration::ZERO), envelope.clone()).await.unwrap();
    tx.commit().await.unwrap();
    let later = schedule(&store, "later", LONG).await;
    assert_eq!(read(&store).await.len(), 0);

    let deadline = Instant::now() + PATIENCE;
    let fired = loop {
        let fired = store.fire(10).await.unwrap();
        if fired.moved > 0 {
            break fired;
        }
        assert!(Instant::now() < deadline, "it is never due");
    };
    assert_eq!(fired.moved, 1);
    assert!(fired.next.is_some_and(|next| next > LONG / 2 && next <= LONG + Duration::from_secs(1)), "{fired:?}");
    timeout(PATIENCE, store.woken()).await.expect("the relay is woken");
    let out = read(&store).await;
    assert_eq!(out.len(), 1);
    assert!(out[0].time >= before - TimeDelta::milliseconds(2) && out[0].time <= now() + TimeDelta::milliseconds(2));
    (envelope.time, envelope.sequence) = (out[0].time, out[0].sequence);
    assert_eq!(out[0], envelope);
    let waiting = store.scheduled(10).await.unwrap();
    assert_eq!(waiting.iter().map(|row| row.id.clone()).collect::<Vec<_>>(), [later.to_string()]);
}

/// By the database's clock, measured from the transaction that schedules.
pub async fn nothing_fires_early<S: FullStore>(store: S) {
    for (wait, at) in [(120, false), (120, true), (7, false), (3, true)] {
        let (wait, from) = (Duration::from_millis(wait), Instant::now());
        let until = now() + TimeDelta::from_std(wait).unwrap();
        schedule(&store, "k", if at { When::At(until) } else { When::After(wait) }).await;
        let deadline = Instant::now() + PATIENCE;
        while store.fire(10).await.unwrap().moved == 0 {
            assert!(Instant::now() < deadline, "it is never due");
            tokio::task::yield_now().await;
        }
        assert!(from.elapsed() >= wait, "fired after {:?} of {wait:?}", from.elapsed());
    }
}

/// With the transaction that says so, and not with one that is rolled back.
pub async fn schedule_and_cancel_belong_to_the_transaction<S: FullStore>(store: S) {
    let mut tx = store.begin(sealer()).await.unwrap();
    let envelope = tx.sealer().seal(message("never")).unwrap();
    let never = envelope.id;
    tx.schedule(When::After(Duration::ZERO), envelope).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(store.fire(10).await.unwrap(), Default::default());

    let (kept, gone) = (schedule(&store, "kept", LONG).await, schedule(&store, "gone", LONG).await);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(tx.cancel(kept).await.unwrap());
    tx.rollback().await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(tx.cancel(gone).await.unwrap(), "singly: the other stays");
    assert!(!tx.cancel(gone).await.unwrap(), "once");
    assert!(!tx.cancel(never).await.unwrap());
    let envelope = tx.sealer().seal(message("both")).unwrap();
    let both = envelope.id;
    tx.schedule(When::After(LONG), envelope).await.unwrap();
    assert!(tx.cancel(both).await.unwrap(), "in the transaction that scheduled it");
    tx.commit().await.unwrap();
    let of = store.scheduled_of(&[gone, kept, never]).await.unwrap();
    assert_eq!(of.iter().map(|row| row.id.clone()).collect::<Vec<_>>(), [kept.to_string()]);
    assert_eq!(store.scheduled_of(&[]).await.unwrap().len(), 0);
    let waiting: Vec<String> = store.scheduled(10).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(waiting, [kept.to_string()]);
    assert_eq!(store.status().await.unwrap().scheduled, 1);

    let past = schedule(&store, "past", now() - TimeDelta::hours(1)).await;
    assert_eq!(store.fire(10).await.unwrap().moved, 1);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(!tx.cancel(past).await.unwrap(), "it has been sent");
    tx.rollback().await.unwrap();
}

/// In the order in which they were due, however many fire at once and wherever they stop.
pub async fn late_ones_fire_once_and_in_order<S: FullStore>(store: S) {
    const MANY: i64 = 200;
    let mut numbers: Vec<i64> = (0..MANY).collect();
    fastrand::shuffle(&mut numbers);
    let first = now() - TimeDelta::hours(1);
    let mut tx = store.begin(sealer()).await.unwrap();
    for n in &numbers {
        let envelope = tx.sealer().seal(message(&n.to_string())).unwrap();
        tx.schedule(When::At(first + TimeDelta::seconds(*n)), envelope).await.unwrap();
    }
    tx.commit().await.unwrap();
    assert!(store.status().await.unwrap().scheduled_late_seconds.is_some_and(|late| late > 3000.0));
    let some = store.fire(3).await.unwrap();
    assert_eq!((some.moved, some.next), (3, Some(Duration::ZERO)), "more is due");

    let mut firing = JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        firing.spawn(async move {
            let mut moved = 0;
            loop {
                let fired = store.fire(7).await.unwrap();
                assert!(fired.moved <= 7);
                moved += i64::from(fired.moved);
                if fired.next.is_none() {
                    return moved;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let moved = timeout(PATIENCE, firing.join_all()).await.expect("all of it fires");
    assert_eq!(moved.iter().sum::<i64>(), MANY - 3);
    let keys: Vec<String> = read(&store).await.into_iter().map(|envelope| envelope.key).collect();
    assert_eq!(keys, (0..MANY).map(|n| n.to_string()).collect::<Vec<_>>());
}
