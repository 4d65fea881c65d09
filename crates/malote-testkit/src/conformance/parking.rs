//! Messages that wait: in order, behind their own key only, tried by one at a time.

use super::store::{PATIENCE, sealer};
use bytes::Bytes;
use chrono::{DateTime, NaiveDate, Utc};
use malote_core::{
    Admission, Budget, By, ClaimDue, Class, Dead, Due, Ending, Failed, FullStore, History, Incarnation, Lane,
    LaneState, Parked, ParkingStore, RawRecord, Setback, Settled, ToPark, Transaction,
    inspect::{Act, Filter},
};
use std::time::{Duration, Instant};
use uuid::Uuid;

pub(super) const CONSUMER: &str = "ledger";
pub(super) const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);
const NO_LIMIT: Budget = Budget { per_second: 1e6, burst: 1e6 };

pub(super) fn lane(key: &str) -> Lane {
    Lane { topic: "things".into(), key: key.into() }
}

pub(super) fn record(text: &str) -> RawRecord {
    RawRecord {
        key: Some(Bytes::copy_from_slice(text.as_bytes())),
        headers: vec![("ce_id".into(), Bytes::from_static(b"\0\xff"))],
        payload: Some(Bytes::from(format!("{{\"text\":{text:?}}}"))),
    }
}

/// A message of a key; told apart by `what`.
pub(super) fn letter(key: &str, what: &str, setback: Option<Failed>) -> ToPark {
    let day = NaiveDate::from_ymd_opt(2025, 12, 31).unwrap();
    ToPark {
        lane: lane(key),
        what: what.into(),
        admission: Some(Admission { event_id: Uuid::now_v7(), day }),
        kind: Some("thing.happened.v1".into()),
        record: record(what),
        setback,
    }
}

pub(super) fn failed(attempts: u32, wait: Duration) -> Failed {
    let mut history = History::default();
    for attempt in 1..=attempts {
        history.push(Setback::failed(DateTime::<Utc>::UNIX_EPOCH, attempt, Class::Transient, "away"));
    }
    Failed { class: Class::Transient, error: "away".into(), attempts, history, wait }
}

/// What comes of a head that is given up.
pub(super) fn given_up(head: &Parked) -> Box<Dead> {
    Box::new(Dead {
        by: By::Consumer(head.consumer.clone()),
        what: head.what.clone(),
        admission: head.admission,
        kind: Some("thing.happened.v1".into()),
        topic: head.lane.topic.clone(),
        key: Some(head.lane.key.clone()),
        partition: None,
        offset: None,
        class: Class::Transient,
        reason: "away for too long".into(),
        attempts: head.attempts,
        history: head.history.clone(),
        correlation_id: Some("conversation".into()),
        trace: None,
        record: head.record.clone(),
    })
}

/// Admits the messages and parks them, in one transaction.
pub(super) async fn park<S: ParkingStore>(store: &S, letters: &[ToPark]) {
    let mut tx = store.begin(sealer()).await.unwrap();
    let events: Vec<Admission> = letters.iter().filter_map(|letter| letter.admission).collect();
    assert_eq!(store.admit(&mut tx, CONSUMER, &events).await.unwrap(), vec![true; events.len()]);
    store.park(&mut tx, CONSUMER, letters).await.unwrap();
    tx.commit().await.unwrap();
}

/// Asks for so many, for so long.
pub(super) fn ask(most: u32, holds: Duration) -> ClaimDue {
    ClaimDue { who: Incarnation(Uuid::now_v7()), most, holds, budget: NO_LIMIT }
}

/// Claims as soon as something is due.
pub(super) async fn claim<S: ParkingStore>(store: &S, ask: &ClaimDue) -> Vec<Parked> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let due = store.claim_due(CONSUMER, ask).await.unwrap();
        if !due.heads.is_empty() {
            return due.heads;
        }
        assert!(Instant::now() < deadline, "nothing becomes due");
        tokio::task::yield_now().await;
    }
}

/// Claims one, for long.
pub(super) async fn one<S: ParkingStore>(store: &S) -> Parked {
    let mut heads = claim(store, &ask(1, LONG)).await;
    assert_eq!(heads.len(), 1);
    heads.remove(0)
}

pub(super) async fn settle<S: ParkingStore>(store: &S, head: &Parked, ending: Ending) -> Settled {
    let mut tx = store.begin(sealer()).await.unwrap();
    let settled = store.settle(&mut tx, head, &ending).await.unwrap();
    match settled {
        Settled::Fenced => tx.rollback().await.unwrap(),
        _ => tx.commit().await.unwrap(),
    }
    settled
}

/// Settles, and expects another head.
pub(super) async fn next<S: ParkingStore>(store: &S, head: &Parked, ending: Ending) -> Parked {
    match settle(store, head, ending).await {
        Settled::Next(next) => *next,
        other => panic!("another is expected at the head, not {other:?}"),
    }
}

pub(super) async fn rest<S: ParkingStore>(store: &S, head: &Parked, ending: Ending) {
    let settled = settle(store, head, ending).await;
    assert!(matches!(settled, Settled::Rest), "{settled:?}");
}

pub(super) async fn states<S: ParkingStore>(store: &S, consumer: &str, keys: &[&str]) -> Vec<LaneState> {
    let lanes: Vec<Lane> = keys.iter().map(|key| lane(key)).collect();
    let mut tx = store.begin(sealer()).await.unwrap();
    let states = store.lanes(&mut tx, consumer, &lanes).await.unwrap();
    tx.rollback().await.unwrap();
    states
}

async fn nothing_is_due<S: ParkingStore>(store: &S) -> Due {
    let due = store.claim_due(CONSUMER, &ask(100, LONG)).await.unwrap();
    assert!(due.heads.is_empty(), "{:?}", due.heads);
    due
}

/// A key that failed is busy, for its own consumer; all others are free. Asked in any order, twice too.
pub async fn a_parked_key_is_busy_and_no_other<S: FullStore>(store: S) {
    park(&store, &[letter("a \"1\" \u{1f511}", "1", Some(failed(1, LONG)))]).await;
    let (busy, free) = (LaneState::Busy, LaneState::Free);
    let keys = ["b", "a \"1\" \u{1f511}", "", "a \"1\" \u{1f511}"];
    assert_eq!(states(&store, CONSUMER, &keys).await, [free, busy, free, busy]);
    assert_eq!(states(&store, "notification", &keys).await, [free; 4]);
    assert_eq!(states(&store, CONSUMER, &[]).await, []);
}

/// The head first, then those behind it in the order in which they came, under one claim; then the key
/// is free.
pub async fn a_lane_keeps_its_order<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(1, Duration::ZERO))), letter("a", "2", None)]).await;
    park(&store, &[letter("a", "3", None), letter("b", "x", Some(failed(1, LONG))), letter("a", "4", None)]).await;
    let head = one(&store).await;
    assert_eq!((head.what.as_str(), head.attempts), ("1", 2));
    let second = next(&store, &head, Ending::Done).await;
    assert_eq!((second.what.as_str(), second.attempts, second.age), ("2", 1, Duration::ZERO));
    let third = next(&store, &second, Ending::Done).await;
    let fourth = next(&store, &third, Ending::Done).await;
    assert_eq!([third.what.as_str(), fourth.what.as_str()], ["3", "4"]);
    rest(&store, &fourth, Ending::Done).await;
    assert_eq!(states(&store, CONSUMER, &["a", "b"]).await, [LaneState::Free, LaneState::Busy]);
    assert!(store.status().await.unwrap().consumers.iter().all(|c| c.parked_keys == 1 && c.parked_messages == 1));
}

/// Whatever it holds.
pub async fn what_is_parked_survives_byte_for_byte<S: FullStore>(store: S) {
    let every_byte = Bytes::from((0..=255).collect::<Vec<u8>>());
    let strange = RawRecord {
        key: Some(every_byte.clone()),
        headers: vec![
            ("a".into(), every_byte.clone()),
            ("a".into(), Bytes::new()),
            ("\u{1f511}'\"\\".into(), every_byte.clone()),
        ],
        payload: Some(Bytes::from(vec![0; 900_000])),
    };
    let bare = RawRecord::default();
    let empty = RawRecord { key: Some(Bytes::new()), headers: Vec::new(), payload: Some(Bytes::new()) };
    for (i, record) in [strange, bare, empty].into_iter().enumerate() {
        let setback = failed(7, Duration::ZERO);
        let sent = ToPark { record, admission: None, kind: None, ..letter("k", &format!("place {i}"), Some(setback)) };
        park(&store, std::slice::from_ref(&sent)).await;
        let head = one(&store).await;
        assert_eq!((&head.lane, head.consumer.as_str(), &head.what), (&sent.lane, CONSUMER, &sent.what));
        assert_eq!((head.attempts, head.admission, head.record == sent.record), (8, None, true));
        assert_eq!(head.history, failed(7, Duration::ZERO).history);
        rest(&store, &head, Ending::Done).await;
    }
}

/// Neither message nor lane.
pub async fn a_park_that_is_rolled_back_leaves_nothing<S: FullStore>(store: S) {
    let mut tx = store.begin(sealer()).await.unwrap();
    store.park(&mut tx, CONSUMER, &[letter("a", "1", Some(failed(1, Duration::ZERO)))]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(states(&store, CONSUMER, &["a"]).await, [LaneState::Free]);
    assert_eq!(nothing_is_due(&store).await.next, None);
}

/// They are known, so a redelivery does nothing; and each is one row however often it is parked.
pub async fn two_of_one_key_that_come_again_are_known<S: FullStore>(store: S) {
    let both = [letter("a", "1", Some(failed(1, Duration::ZERO))), letter("a", "2", None)];
    park(&store, &both).await;
    let events: Vec<Admission> = both.iter().filter_map(|letter| letter.admission).collect();
    let mut tx = store.begin(sealer()).await.unwrap();
    assert_eq!(store.admit(&mut tx, CONSUMER, &events).await.unwrap(), [false, false]);
    store.park(&mut tx, CONSUMER, &both).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.parked(&Filter::default(), 100).await.unwrap().len(), 2);
    let head = one(&store).await;
    let second = next(&store, &head, Ending::Done).await;
    rest(&store, &second, Ending::Done).await;
    assert_eq!(store.seen(CONSUMER, &events).await.unwrap(), [true, true]);
}

/// So a message that kills the process was counted: the claim of the dead runs out, and the next one
/// sees the attempt, and what happened before.
pub async fn an_attempt_is_counted_before_it_is_made<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(3, Duration::ZERO)))]).await;
    let mut last = 0;
    for attempt in 4..8 {
        let heads = claim(&store, &ask(10, SHORT)).await;
        assert_eq!((heads.len(), heads[0].attempts, heads[0].holds), (1, attempt, SHORT));
        assert!(heads[0].epoch > last, "each claim has a number of its own");
        assert_eq!(heads[0].history, failed(3, Duration::ZERO).history);
        last = heads[0].epoch;
    }
}

/// A lane that is claimed is left out, not waited for; when the claim ends it is worth asking again.
pub async fn a_claimed_lane_is_left_out<S: FullStore>(store: S) {
    let now = || Some(failed(1, Duration::ZERO));
    park(&store, &[letter("a", "1", now()), letter("b", "2", now())]).await;
    let first = claim(&store, &ask(1, LONG)).await;
    let second = claim(&store, &ask(10, LONG)).await;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].lane, second[0].lane);
    let next = nothing_is_due(&store).await.next.expect("claims run out");
    assert!(next > LONG / 2 && next <= LONG, "{next:?}");
}

/// Whatever it was about to do.
pub async fn a_claim_that_is_over_changes_nothing<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(1, Duration::ZERO))), letter("a", "2", None)]).await;
    let old = claim(&store, &ask(1, SHORT)).await.remove(0);
    let new = one(&store).await;
    assert_eq!((old.n, &old.what), (new.n, &new.what));
    let dead = |hold| Ending::Dead { dead: given_up(&old), hold };
    for ending in [Ending::Done, Ending::Again(failed(9, Duration::ZERO)), dead(false), dead(true)] {
        assert!(matches!(settle(&store, &old, ending).await, Settled::Fenced));
    }
    assert!(store.dead(&Filter::default(), 10).await.unwrap().is_empty());
    let second = next(&store, &new, Ending::Done).await;
    assert!(matches!(settle(&store, &old, Ending::Done).await, Settled::Fenced), "nor what comes after it");
    rest(&store, &second, Ending::Done).await;
    assert!(matches!(settle(&store, &second, Ending::Done).await, Settled::Fenced), "nor twice");
}

/// What the attempt did and the head's leaving are one.
pub async fn a_settling_that_is_rolled_back_leaves_the_head<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(1, Duration::ZERO)))]).await;
    let head = claim(&store, &ask(1, SHORT)).await.remove(0);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(matches!(store.settle(&mut tx, &head, &Ending::Done).await.unwrap(), Settled::Rest));
    tx.rollback().await.unwrap();
    assert_eq!(one(&store).await.what, "1");
}

/// With the count that it is told, and after the time that it is told, by the database's clock.
pub async fn a_head_is_put_off<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(1, Duration::ZERO))), letter("a", "2", None)]).await;
    let head = one(&store).await;
    let (wait, from) = (Duration::from_millis(150), Instant::now());
    rest(&store, &head, Ending::Again(failed(2, wait))).await;
    let head = one(&store).await;
    assert!(from.elapsed() >= wait, "it was tried after {:?}", from.elapsed());
    assert_eq!((head.what.as_str(), head.attempts), ("1", 3));
    assert_eq!(head.history, failed(2, wait).history);
    assert!(head.age >= wait, "its first failure was {:?} ago", head.age);
    rest(&store, &head, Ending::Again(failed(3, LONG))).await;
    let wait = nothing_is_due(&store).await.next.unwrap();
    assert!(wait > LONG / 2 && wait <= LONG, "{wait:?}");
}

/// The dead letter is kept with all that happened; the key goes on, and what is handled in it is counted.
pub async fn after_a_dead_letter_the_key_goes_on<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(1, Duration::ZERO))), letter("a", "2", None)]).await;
    let head = one(&store).await;
    let second = next(&store, &head, Ending::Dead { dead: given_up(&head), hold: false }).await;
    assert_eq!(second.what, "2");
    rest(&store, &second, Ending::Done).await;
    assert_eq!(states(&store, CONSUMER, &["a", "b"]).await, [LaneState::Passing, LaneState::Free]);
    let mut tx = store.begin(sealer()).await.unwrap();
    store.pass(&mut tx, CONSUMER, &[lane("a"), lane("b"), lane("a")]).await.unwrap();
    store.pass(&mut tx, "notification", &[lane("a")]).await.unwrap();
    tx.commit().await.unwrap();

    let rows = store.dead(&Filter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    let (row, dead) = store.dead_letter(rows[0].id).await.unwrap().expect("it is there");
    assert_eq!((row.what.as_str(), row.attempts, row.newer, row.holds_key), ("1", 2, 3, false));
    assert_eq!((dead.by, dead.key, dead.admission), (By::Consumer(CONSUMER.into()), Some("a".into()), head.admission));
    assert_eq!(
        (dead.history, dead.class, dead.correlation_id),
        (head.history, Class::Transient, Some("conversation".into()))
    );
    assert!(dead.record == head.record && row.first_at <= row.last_at);
    assert_eq!(store.seen(CONSUMER, head.admission.as_slice()).await.unwrap(), [true], "people decide, nobody else");
}

/// Nothing of it is due, and what comes goes behind.
pub async fn a_key_may_stay_held<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(1, Duration::ZERO))), letter("a", "2", None)]).await;
    let head = one(&store).await;
    rest(&store, &head, Ending::Dead { dead: given_up(&head), hold: true }).await;
    assert_eq!(states(&store, CONSUMER, &["a"]).await, [LaneState::Busy]);
    park(&store, &[letter("a", "3", None)]).await;
    assert_eq!(nothing_is_due(&store).await.next, None);
    let rows = store.parked(&Filter::default(), 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.what.as_str()).collect::<Vec<_>>(), ["2", "3"]);
    assert!(rows.iter().all(|row| row.held && row.due_at.is_none()));
    let status = store.status().await.unwrap();
    assert_eq!((status.consumers[0].held_keys, status.consumers[0].dead), (1, 1));
    assert!(store.dead(&Filter::default(), 10).await.unwrap()[0].holds_key);
}

/// One that is set aside at its first attempt counts, too, and once however often that is done.
pub async fn a_key_with_a_letter_that_was_set_aside_is_passing<S: FullStore>(store: S) {
    let message = letter("a", "1", None);
    let head = Parked {
        lane: message.lane.clone(),
        consumer: CONSUMER.into(),
        n: 0,
        epoch: 0,
        holds: LONG,
        what: message.what.clone(),
        admission: message.admission,
        attempts: 1,
        age: Duration::ZERO,
        history: History::default(),
        record: message.record.clone(),
    };
    for _ in 0..2 {
        let mut tx = store.begin(sealer()).await.unwrap();
        store.admit(&mut tx, CONSUMER, message.admission.as_slice()).await.unwrap();
        store.set_aside(&mut tx, &given_up(&head)).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(states(&store, CONSUMER, &["a"]).await, [LaneState::Passing]);
    let act = Act { actor: "conformance".into(), reason: "it is over".into() };
    assert_eq!(store.discard(&act, &Filter::default(), false).await.unwrap().done, 1);
    assert_eq!(states(&store, CONSUMER, &["a"]).await, [LaneState::Free]);
}

/// Many rounds of one that settles and one that comes behind: the one that comes is handled by itself,
/// or is parked and found.
pub async fn what_goes_behind_a_running_head_is_not_lost<S: FullStore>(store: S) {
    park(&store, &[letter("a", "1", Some(failed(1, Duration::ZERO)))]).await;
    let head = one(&store).await;
    park(&store, &[letter("a", "2", None)]).await;
    let second = next(&store, &head, Ending::Done).await;
    assert_eq!(second.what, "2");
    rest(&store, &second, Ending::Done).await;

    for round in 0..40 {
        let key = format!("race {round}");
        park(&store, &[letter(&key, &format!("{round} head"), Some(failed(1, Duration::ZERO)))]).await;
        let head = one(&store).await;
        let coming = tokio::spawn(come(store.clone(), key.clone(), format!("{round} behind")));
        let settled = settle(&store, &head, Ending::Done).await;
        let parked = coming.await.unwrap();
        match settled {
            Settled::Next(next) => rest(&store, &next, Ending::Done).await,
            _ if parked => {
                let found = one(&store).await;
                assert_eq!(found.lane.key, key);
                rest(&store, &found, Ending::Done).await;
            }
            _ => {}
        }
        assert_eq!(states(&store, CONSUMER, &[&key]).await, [LaneState::Free]);
    }
    assert!(store.parked(&Filter::default(), 10).await.unwrap().is_empty());
}

/// A message as a consumer takes it: behind the lane when that is busy. Says whether it was parked.
async fn come<S: ParkingStore>(store: S, key: String, what: String) -> bool {
    let message = letter(&key, &what, None);
    let mut tx = store.begin(sealer()).await.unwrap();
    store.admit(&mut tx, CONSUMER, message.admission.as_slice()).await.unwrap();
    let state = store.lanes(&mut tx, CONSUMER, std::slice::from_ref(&message.lane)).await.unwrap()[0];
    if state == LaneState::Busy {
        store.park(&mut tx, CONSUMER, &[message]).await.unwrap();
    }
    tx.commit().await.unwrap();
    state == LaneState::Busy
}
