//! Sagas as a store keeps them: each change once, over the one that was read, and never forgotten too early.

pub use super::saga_acts::*;
pub use super::saga_found::*;
pub use super::saga_operations::*;

use super::{
    kept::prune,
    store::{PATIENCE, WallClock, sealer},
};
use chrono::TimeDelta;
use malote_core::{
    Clock, FullStore, Prune, Sealer, TraceContext, Transaction,
    saga::{
        Answered, Asking, Direction, Entry, Leg, LegId, Loaded, LogRow, SagaFilter, Sent, Status, StepState, Stored,
        What,
    },
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::Barrier, task::JoinSet, time::timeout};
use uuid::Uuid;

/// Longer than anything here is old.
pub(super) const LONG: Duration = Duration::from_secs(365 * 24 * 3600);
/// How many try the same at once.
pub(super) const MANY: usize = 8;

/// A saga with nothing behind it.
pub(super) fn instance(definition: &str, version: u32, status: Status) -> Stored {
    Stored {
        id: Uuid::now_v7(),
        definition: definition.into(),
        version,
        state: "{}".into(),
        status,
        heading: Direction::Do,
        on_request: false,
        reason: None,
        legs: Vec::new(),
        entries: 1,
        revision: 0,
    }
}

/// A line of a history.
pub(super) fn entry(n: u64, what: What) -> Entry {
    Entry { n, what, leg: None, direction: None, attempt: None, envelope: None, reason: None, actor: None }
}

pub(super) fn leg(id: &str, state: StepState) -> Leg {
    Leg { id: LegId::from(id.to_owned()), state, doing: Asking::default(), undoing: None }
}

pub(super) async fn insert<S: FullStore>(store: &S, instance: &Stored) -> bool {
    let mut tx = store.begin(sealer()).await.unwrap();
    let log: Vec<Entry> = (1..=instance.entries).map(|n| entry(n, What::Started)).collect();
    let made = store.insert_saga(&mut tx, instance, &log).await.unwrap();
    tx.commit().await.unwrap();
    made
}

async fn load<S: FullStore>(store: &S, id: Uuid) -> Loaded {
    let mut tx = store.begin(sealer()).await.unwrap();
    let loaded = store.load_saga(&mut tx, id).await.unwrap();
    tx.rollback().await.unwrap();
    loaded
}

async fn present<S: FullStore>(store: &S, id: Uuid) -> Stored {
    match load(store, id).await {
        Loaded::Present(instance) => *instance,
        other => panic!("{other:?}"),
    }
}

/// Changes it in a transaction of its own, with one more entry.
async fn save<S: FullStore>(store: &S, mut instance: Stored, what: What) -> bool {
    let mut tx = store.begin(sealer()).await.unwrap();
    instance.entries += 1;
    let saved = store.save_saga(&mut tx, &instance, &[entry(instance.entries, what)]).await.unwrap();
    if saved {
        tx.commit().await.unwrap()
    } else {
        tx.rollback().await.unwrap()
    }
    saved
}

/// Brings it to a status.
pub(super) async fn bring<S: FullStore>(store: &S, id: Uuid, status: Status) {
    let instance = Stored { status, ..present(store, id).await };
    assert!(save(store, instance, What::Done).await);
}

/// With every field that an instance has.
fn rich() -> Stored {
    let sent = Sent {
        kind: "reserve.v1".into(),
        topic: "stock".into(),
        key: "order 7".into(),
        payload: r#"{"amount": 1.10, "name": "\u0000 Ågot \ud83d\udd11"}"#.into(),
    };
    let doing = Asking {
        attempt: 2,
        asks: 5,
        failures: 1,
        waited_ms: 1500,
        answer: Some(Answered::Refused),
        timer: Some("do:5:deadline:reserve#porto".into()),
        sent: Some(sent),
    };
    let undoing = Some(Asking { attempt: 1, ..doing.clone() });
    let reserve = Leg { undoing, doing, ..leg("reserve#a:b \0", StepState::UndoResting { reason: "no".into() }) };
    Stored {
        version: u32::MAX,
        state: r#"{ "b" : 1.50,  "a": "\u0000\ud83d\udd11",  "b2":[ ] }"#.into(),
        status: Status::Compensating,
        heading: Direction::Undo,
        on_request: true,
        reason: Some("the card was declined \u{1f511}".into()),
        legs: vec![leg("order", StepState::Done), reserve, leg("charge", StepState::Refused { reason: "no".into() })],
        entries: 2,
        ..instance("buy", 1, Status::Running)
    }
}

/// Byte for byte, with its history and the trace in which that was written.
pub async fn an_instance_survives_as_it_was<S: FullStore>(store: S) {
    let mut saga = rich();
    let full = Entry {
        n: 2,
        what: What::TurnedBack,
        leg: Some(LegId::from("reserve#porto".to_owned())),
        direction: Some(Direction::Undo),
        attempt: Some(u32::MAX),
        envelope: Some(Uuid::now_v7()),
        reason: Some("because \u{1f511}".into()),
        actor: Some("ana".into()),
    };
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = Sealer { cause: cause(parent), ..sealer() };
    let before = WallClock.now() - TimeDelta::milliseconds(2);
    let mut tx = store.begin(traced).await.unwrap();
    assert!(store.insert_saga(&mut tx, &saga, &[entry(1, What::LeftOut), full.clone()]).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(present(&store, saga.id).await, saga);
    assert_eq!(store.saga(saga.id).await.unwrap().as_ref(), Some(&saga));

    let told = store.saga_log(saga.id).await.unwrap();
    assert!(told.iter().all(|row| row.at >= before && row.at <= WallClock.now() + TimeDelta::milliseconds(2)));
    let plain = |row: &LogRow| (row.trace.clone(), row.entry.clone());
    let trace = Some(parent.to_owned());
    assert_eq!(told.iter().map(plain).collect::<Vec<_>>(), [(trace.clone(), entry(1, What::LeftOut)), (trace, full)]);

    (saga.state, saga.reason, saga.heading) = ("null".into(), None, Direction::Do);
    saga.legs.truncate(1);
    assert!(save(&store, saga.clone(), What::Stuck).await);
    (saga.revision, saga.entries) = (1, 3);
    assert_eq!(present(&store, saga.id).await, saga);
    let last = store.saga_log(saga.id).await.unwrap().pop().unwrap();
    assert_eq!((last.trace, last.entry), (None, entry(3, What::Stuck)));
}

fn cause(parent: &str) -> malote_core::Cause {
    let trace = Some(TraceContext { parent: parent.into(), state: None });
    malote_core::Cause { trace, ..Default::default() }
}

/// Neither an instance nor a line of its history.
pub async fn a_saga_that_is_rolled_back_is_not_there<S: FullStore>(store: S) {
    let saga = instance("buy", 1, Status::Running);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(store.insert_saga(&mut tx, &saga, &[entry(1, What::Started)]).await.unwrap());
    tx.rollback().await.unwrap();
    assert_eq!(load(&store, saga.id).await, Loaded::Absent);
    assert_eq!(store.saga_log(saga.id).await.unwrap(), []);
    assert!(!save(&store, saga.clone(), What::Done).await, "there is nothing to change");
    assert!(insert(&store, &saga).await);
    let mut tx = store.begin(sealer()).await.unwrap();
    let changed = Stored { status: Status::Stuck, entries: 2, ..saga.clone() };
    assert!(store.save_saga(&mut tx, &changed, &[entry(2, What::Stuck)]).await.unwrap());
    tx.rollback().await.unwrap();
    assert_eq!(present(&store, saga.id).await, saga);
    assert_eq!(store.saga_log(saga.id).await.unwrap().len(), 1);
}

/// All have read the same revision; half of them want to end it, the others to go on. One is written, the others
/// are told, and the history has each transition once.
pub async fn ac_053_of_all_that_read_a_revision_one_writes<S: FullStore>(store: S) {
    let saga = instance("buy", 1, Status::Running);
    assert!(insert(&store, &saga).await);
    let mut winners = Vec::new();
    for round in 1..=10 {
        let read = present(&store, saga.id).await;
        assert_eq!((read.revision, read.entries), (round - 1, round));
        let (start, mut racers) = (Arc::new(Barrier::new(MANY)), JoinSet::new());
        for n in 0..MANY {
            let (store, start, mut mine) = (store.clone(), start.clone(), read.clone());
            mine.status = if n % 2 == 0 { Status::Completed } else { Status::Running };
            mine.state = n.to_string();
            racers.spawn(async move {
                start.wait().await;
                save(&store, mine, if n % 2 == 0 { What::Completed } else { What::Asked }).await.then_some(n)
            });
        }
        let all = timeout(PATIENCE, racers.join_all()).await.expect("nobody waits for ever");
        let won: Vec<usize> = all.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "in round {round}");
        winners.extend(won);
        let now = present(&store, saga.id).await;
        assert_eq!(
            (now.state, now.status.is_final()),
            (winners[winners.len() - 1].to_string(), winners[winners.len() - 1] % 2 == 0)
        );
    }
    let told = store.saga_log(saga.id).await.unwrap();
    assert_eq!(told.iter().map(|row| row.entry.n).collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>());
    let ends: Vec<bool> = told[1..].iter().map(|row| row.entry.what == What::Completed).collect();
    assert_eq!(ends, winners.iter().map(|n| n % 2 == 0).collect::<Vec<_>>());
}

/// Whoever reads in order to change has it to itself until the transaction ends: nobody's work is in vain.
pub async fn those_who_change_a_saga_take_turns<S: FullStore>(store: S) {
    let saga = Stored { state: "0".into(), ..instance("buy", 1, Status::Running) };
    assert!(insert(&store, &saga).await);
    let mut all = JoinSet::new();
    for _ in 0..MANY {
        let (store, id) = (store.clone(), saga.id);
        all.spawn(async move {
            for _ in 0..5 {
                let mut tx = store.begin(sealer()).await.unwrap();
                let Loaded::Present(mut it) = store.load_saga(&mut tx, id).await.unwrap() else {
                    panic!("it is there")
                };
                it.state = (it.state.parse::<u32>().unwrap() + 1).to_string();
                it.entries += 1;
                assert!(store.save_saga(&mut tx, &it, &[entry(it.entries, What::Asked)]).await.unwrap(), "in vain");
                tx.commit().await.unwrap();
            }
        });
    }
    timeout(PATIENCE, all.join_all()).await.expect("nobody waits for ever");
    let now = present(&store, saga.id).await;
    let turns = MANY as u64 * 5;
    assert_eq!((now.state, now.revision, now.entries), (turns.to_string(), turns, turns + 1));
}

/// The first one of several at once begins it; later ones meet it, and when it is gone its tombstone.
pub async fn ac_056_a_late_start_meets_the_tombstone<S: FullStore>(store: S) {
    let saga = instance("buy", 1, Status::Running);
    let (start, mut racers) = (Arc::new(Barrier::new(MANY)), JoinSet::new());
    for n in 0..MANY {
        let (store, start, mine) = (store.clone(), start.clone(), Stored { state: n.to_string(), ..saga.clone() });
        racers.spawn(async move {
            start.wait().await;
            insert(&store, &mine).await
        });
    }
    let began = timeout(PATIENCE, racers.join_all()).await.expect("nobody waits for ever");
    assert_eq!(began.iter().filter(|began| **began).count(), 1);
    assert_eq!(store.saga_log(saga.id).await.unwrap().len(), 1, "the others have written nothing");

    assert_eq!(prune(&store, Prune::Sagas(Duration::ZERO), 10).await, 0, "it is under way");
    bring(&store, saga.id, Status::Completed).await;
    assert!(!insert(&store, &saga).await);
    assert_eq!(prune(&store, Prune::Sagas(LONG), 10).await, 0, "it is not old enough");
    let ended = present(&store, saga.id).await;
    assert_eq!(prune(&store, Prune::Sagas(Duration::ZERO), 10).await, 1);

    assert_eq!(load(&store, saga.id).await, Loaded::Tombstone(Status::Completed));
    assert!(!insert(&store, &saga).await, "it has been there");
    assert!(!save(&store, ended, What::Done).await, "nobody wakes it");
    assert_eq!(load(&store, saga.id).await, Loaded::Tombstone(Status::Completed));
    assert_eq!(store.saga(saga.id).await.unwrap(), None);
    assert_eq!(store.saga_log(saga.id).await.unwrap(), []);
    assert_eq!(store.sagas(&SagaFilter::default(), 10).await.unwrap(), []);
    assert_eq!(store.status().await.unwrap().sagas, []);

    assert_eq!(prune(&store, Prune::Tombstones(LONG), 10).await, 0);
    assert_eq!(prune(&store, Prune::Tombstones(Duration::ZERO), 10).await, 1);
    assert_eq!(load(&store, saga.id).await, Loaded::Absent);
    assert!(insert(&store, &saga).await);
}

/// In steps, and only what has ended and not gone on since.
pub async fn old_sagas_go<S: FullStore>(store: S) {
    let mut ids = Vec::new();
    for status in [Status::Running, Status::Compensating, Status::Stuck, Status::Completed, Status::Compensated] {
        for _ in 0..3 {
            let saga = instance("buy", 1, status);
            ids.push((saga.id, status));
            assert!(insert(&store, &saga).await);
        }
    }
    // a person turns one back that had ended
    let (turned, _) = ids[9];
    bring(&store, turned, Status::Compensating).await;
    assert_eq!(prune(&store, Prune::Tombstones(Duration::ZERO), 2).await, 0);
    assert_eq!(prune(&store, Prune::Sagas(LONG), 2).await, 0);
    assert_eq!(prune(&store, Prune::Sagas(Duration::ZERO), 2).await, 5);
    for (id, status) in ids {
        let expected = status.is_final() && id != turned;
        assert_eq!(load(&store, id).await == Loaded::Tombstone(status), expected);
        assert_eq!(store.saga_log(id).await.unwrap().is_empty(), expected);
    }
    assert_eq!(prune(&store, Prune::Tombstones(Duration::ZERO), 2).await, 5);
    let kept: BTreeSet<Uuid> =
        store.sagas(&SagaFilter::default(), 100).await.unwrap().into_iter().map(|row| row.id).collect();
    assert!(kept.len() == 10 && kept.contains(&turned));
}
