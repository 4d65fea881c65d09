//! What every store lets operators see and do.
//!
//! Each function is one promise of [`malote_core::inspect::Inspect`]; it takes a fresh, migrated store. An
//! adapter runs them all as tests of their own by [`inspect_conformance!`](crate::inspect_conformance).

pub use super::inspect_acts::*;

use super::store::{PATIENCE, WallClock, commit, message, sealer};
use bytes::Bytes;
use malote_core::{
    Admission, Budget, By, ClaimDue, Class, Clock, Dead, Ending, Envelope, Failed, FullStore, History, Incarnation,
    Lane, LaneState, Parked, RawRecord, Setback, Settled, Store, Taken, ToPark, Transaction,
    inspect::{Act, DeadRow, Filter, Grade, Redrive, Status},
    relay::{Cursor, Ranges},
    wire,
};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Makes a test of each promise. `$open` is an `async fn() -> Option<impl FullStore>` that gives a fresh,
/// migrated store, or `None` where its server cannot be had.
#[macro_export]
macro_rules! inspect_conformance {
    ($open:path) => {
        $crate::inspect_conformance! { @each $open:
            status_tells_what_waits
            outbox_rows_are_found
            parked_messages_are_found
            dead_letters_are_found_with_their_record
            ac_049_ac_051_a_redriven_message_keeps_its_id_and_its_history
            ac_047_a_stale_letter_is_refused_and_audited
            letters_of_a_key_come_back_in_their_order
            a_held_key_is_let_go_with_its_letter_in_front
            a_redrive_is_spread_over_time
            letters_of_a_relay_are_sent_again
            a_discarded_letter_lets_its_key_go
            the_next_attempt_can_be_made_now
            what_was_published_is_sent_again_under_its_id
            an_erased_key_is_nowhere
            an_act_without_a_name_or_a_reason_is_refused
            a_dry_run_changes_nothing
            a_healthy_store_has_no_fault
        }
    };
    (@each $open:path: $($name:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if let Some(store) = $open().await {
                $crate::conformance::inspect::$name(store).await;
            }
        })+
    };
}

pub(super) const CONSUMER: &str = "ledger";
pub(super) const LONG: Duration = Duration::from_secs(600);
pub(super) const AT_ONCE: Redrive = Redrive { dry: false, per_second: 0, although_newer: false };

pub(super) fn act() -> Act {
    Act { actor: "ana".into(), reason: "the bank is back".into() }
}

pub(super) fn all() -> Filter {
    Filter::default()
}

pub(super) fn of_key(key: &str) -> Filter {
    Filter { key: Some(key.into()), ..Filter::default() }
}

pub(super) fn envelope(key: &str) -> Envelope {
    let mut envelope = sealer().seal(message(key)).unwrap();
    envelope.headers.push(("dataschema".into(), "https://example.org/thing".into()));
    envelope
}

pub(super) fn lane(envelope: &Envelope) -> Lane {
    Lane { topic: envelope.topic.clone(), key: envelope.key.clone() }
}

pub(super) fn to_park(envelope: &Envelope, setback: Option<Failed>) -> ToPark {
    ToPark {
        lane: lane(envelope),
        what: envelope.id.to_string(),
        admission: Some(Admission::of(envelope)),
        kind: Some(envelope.kind.clone()),
        record: wire::encode(envelope),
        setback,
    }
}

/// A failed attempt after those that the history tells of.
pub(super) fn failed(history: &History, attempts: u32, why: &str) -> Failed {
    let mut history = history.clone();
    history.push(Setback::failed(WallClock.now(), attempts, Class::Transient, why));
    Failed { class: Class::Transient, error: why.into(), attempts, history, wait: Duration::ZERO }
}

pub(super) fn letter(by: By, envelope: &Envelope, history: History, attempts: u32, why: &str) -> Dead {
    Dead {
        by,
        what: envelope.id.to_string(),
        admission: Some(Admission::of(envelope)),
        kind: Some(envelope.kind.clone()),
        topic: envelope.topic.clone(),
        key: Some(envelope.key.clone()),
        partition: Some(3),
        offset: Some(17),
        class: Class::Final,
        reason: why.into(),
        attempts,
        history,
        correlation_id: envelope.correlation_id.clone(),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        record: wire::encode(envelope),
    }
}

pub(super) async fn admit<S: Store>(store: &S, tx: &mut S::Tx, envelope: &Envelope) -> bool {
    store.admit(tx, CONSUMER, &[Admission::of(envelope)]).await.unwrap() == [true]
}

/// A delivery: handled, or put behind, as a consumer does it.
pub(super) async fn deliver<S: FullStore>(store: &S, envelope: &Envelope) -> LaneState {
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(admit(store, &mut tx, envelope).await);
    let state = store.lanes(&mut tx, CONSUMER, &[lane(envelope)]).await.unwrap()[0];
    match state {
        LaneState::Busy => store.park(&mut tx, CONSUMER, &[to_park(envelope, None)]).await.unwrap(),
        LaneState::Passing => store.pass(&mut tx, CONSUMER, &[lane(envelope)]).await.unwrap(),
        LaneState::Free => {}
    }
    tx.commit().await.unwrap();
    state
}

/// Fails for good at the first attempt.
pub(super) async fn dies<S: FullStore>(store: &S, envelope: &Envelope, why: &str) {
    let mut history = History::default();
    history.push(Setback::failed(WallClock.now(), 1, Class::Final, why));
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(admit(store, &mut tx, envelope).await);
    let dead = letter(By::Consumer(CONSUMER.into()), envelope, history, 1, why);
    store.set_aside(&mut tx, &dead).await.unwrap();
    tx.commit().await.unwrap();
}

/// Fails for now, and waits.
pub(super) async fn waits<S: FullStore>(store: &S, envelope: &Envelope, wait: Duration) {
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(admit(store, &mut tx, envelope).await);
    let setback = Failed { wait, ..failed(&History::default(), 1, "away") };
    store.park(&mut tx, CONSUMER, &[to_park(envelope, Some(setback))]).await.unwrap();
    tx.commit().await.unwrap();
}

pub(super) async fn claim<S: FullStore>(store: &S) -> Vec<Parked> {
    let budget = Budget { per_second: 1e6, burst: 1e6 };
    let ask = ClaimDue { who: Incarnation(Uuid::now_v7()), most: 100, holds: LONG, budget };
    store.claim_due(CONSUMER, &ask).await.unwrap().heads
}

/// The next head that is due.
pub(super) async fn head<S: FullStore>(store: &S) -> Parked {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(head) = claim(store).await.pop() {
            return head;
        }
        assert!(Instant::now() < deadline, "nothing becomes due");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(super) async fn settle<S: FullStore>(store: &S, head: &Parked, ending: &Ending) -> Settled {
    let mut tx = store.begin(sealer()).await.unwrap();
    let settled = store.settle(&mut tx, head, ending).await.unwrap();
    tx.commit().await.unwrap();
    settled
}

pub(super) async fn gives_up<S: FullStore>(store: &S, head: &Parked, why: &str, hold: bool) {
    let envelope = wire::decode(&head.lane.topic, &head.record).unwrap();
    let setback = failed(&head.history, head.attempts, why);
    let by = By::Consumer(CONSUMER.into());
    let dead = Box::new(letter(by, &envelope, setback.history, head.attempts, why));
    settle(store, head, &Ending::Dead { dead, hold }).await;
}

pub(super) async fn dead<S: FullStore>(store: &S, filter: &Filter) -> Vec<DeadRow> {
    store.dead(filter, 100).await.unwrap()
}

pub(super) async fn handled<S: FullStore>(store: &S) -> Vec<String> {
    let mut keys = Vec::new();
    let mut heads = claim(store).await;
    while let Some(head) = heads.pop() {
        keys.push(head.what.clone());
        if let Settled::Next(next) = settle(store, &head, &Ending::Done).await {
            heads.push(*next);
        }
    }
    keys
}

/// Counts, and the oldest of each.
pub async fn status_tells_what_waits<S: FullStore>(store: S) {
    let status = store.status().await.unwrap();
    assert_eq!((status.outbox.pending, status.outbox.last, status.consumers.len()), (0, 0, 0));
    assert_eq!((status.outbox.oldest_seconds, status.scheduled_late_seconds), (None, None), "nothing has no age");
    assert_eq!(status.tables.0, status.tables.1);
    dies(&store, &envelope("z"), "never").await;
    let status = store.status().await.unwrap();
    assert_eq!((status.consumers[0].dead, status.consumers[0].oldest_parked_seconds), (1, None));
    commit(&store, &["a", "b", "c"]).await;
    let who = Incarnation(Uuid::now_v7());
    let Taken::Mine { lease, .. } = store.take_lease("ledger", who, LONG).await.unwrap() else { panic!("not free") };
    let cursor = Cursor { high: 2, gaps: [(1, 1)].into_iter().collect() };
    store.save(&lease, &cursor, LONG).await.unwrap();
    // a lease like another, and no relay that is far behind
    store.take_lease("janitor ledger", who, LONG).await.unwrap();
    let (first, other) = (envelope("k"), envelope("l"));
    waits(&store, &first, LONG).await;
    deliver(&store, &envelope("k")).await;
    dies(&store, &other, "never").await;
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.schedule(Duration::ZERO.into(), envelope("m")).await.unwrap();
    tx.schedule(LONG.into(), envelope("m")).await.unwrap();
    let refused = letter(By::Relay("ledger".into()), &envelope("n"), History::default(), 1, "too large");
    store.set_aside(&mut tx, &refused).await.unwrap();
    tx.commit().await.unwrap();

    let status = until_late(&store).await;
    assert_eq!((status.outbox.pending, status.outbox.last, status.outbox.gaps), (2, 3, 1), "{status:?}");
    assert_eq!(status.outbox.oldest, Some(("thing.happened.v1".into(), "a".into())));
    assert!(status.outbox.oldest_seconds.is_some_and(|age| (0.0..600.0).contains(&age)));
    let [relay] = &*status.relays else { panic!("{:?}", status.relays) };
    assert_eq!((relay.name.as_str(), relay.incarnation, relay.high, relay.gaps), ("ledger", Some(who.0), 2, 1));
    assert!(relay.lease_seconds.is_some_and(|left| left > 500.0));
    let consumer = &status.consumers[0];
    assert_eq!((consumer.name.as_str(), consumer.parked_keys, consumer.parked_messages), (CONSUMER, 1, 2));
    assert_eq!((consumer.held_keys, consumer.dead, status.relay_dead, status.scheduled), (0, 2, 1, 2));
    assert!(consumer.oldest_parked_seconds.is_some());
    assert!(status.scheduled_late_seconds.is_some_and(|late| late >= 0.0));
    let scheduled = store.scheduled(10).await.unwrap();
    assert_eq!(scheduled.len(), 2);
    assert!(scheduled[0].due_at < scheduled[1].due_at && scheduled[0].key == "m");
}

/// The status, once the first of what is scheduled is due by the store's clock.
async fn until_late<S: FullStore>(store: &S) -> Status {
    for _ in 0..10_000 {
        let status = store.status().await.unwrap();
        if status.scheduled_late_seconds.is_some() {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(1)).await; // between two looks
    }
    panic!("it is never due")
}

/// By key, by number, by event, and by whether they are published.
pub async fn outbox_rows_are_found<S: FullStore>(store: S) {
    commit(&store, &["a", "b", "a"]).await;
    let who = Incarnation(Uuid::now_v7());
    let Taken::Mine { lease, .. } = store.take_lease("ledger", who, LONG).await.unwrap() else { panic!("not free") };
    store.save(&lease, &Cursor { high: 2, gaps: Ranges::new() }, LONG).await.unwrap();
    let found = |filter: Filter| {
        let store = store.clone();
        async move { store.outbox(&filter, 10).await.unwrap().iter().map(|row| row.seq).collect::<Vec<_>>() }
    };
    assert_eq!(found(all()).await, [1, 2, 3]);
    assert_eq!(found(of_key("a")).await, [1, 3]);
    assert_eq!(found(Filter { pending: true, ..all() }).await, [3]);
    assert_eq!(found(Filter { ids: Some(vec![2]), ..all() }).await, [2]);
    assert_eq!(
        found(Filter { kind: Some("thing.happened.v1".into()), topic: Some("no".into()), ..all() }).await,
        [0; 0]
    );
    assert_eq!(found(Filter { until: Some(WallClock.now() - chrono::Days::new(1)), ..all() }).await, [0; 0]);
    assert_eq!(found(Filter { class: Some("final".into()), ..all() }).await, [0; 0]);
    let rows = store.outbox(&all(), 1).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert!(rows[0].published && rows[0].payload_bytes > 0);
    assert_eq!(found(Filter { event: Some(rows[0].id.clone()), ..all() }).await, [1]);
}

/// In the order of their lanes; only the head has a time.
pub async fn parked_messages_are_found<S: FullStore>(store: S) {
    let (first, second, other) = (envelope("k"), envelope("k"), envelope("a"));
    waits(&store, &first, LONG).await;
    assert_eq!(deliver(&store, &second).await, LaneState::Busy);
    waits(&store, &other, LONG).await;
    let rows = store.parked(&all(), 10).await.unwrap();
    let whats: Vec<&str> = rows.iter().map(|row| row.what.as_str()).collect();
    assert_eq!(whats, [other.id.to_string(), first.id.to_string(), second.id.to_string()]);
    let shown: Vec<_> = rows.iter().map(|row| (row.attempts, row.due_at.is_some(), row.class.as_deref())).collect();
    assert_eq!(shown, [(1, true, Some("transient")), (1, true, Some("transient")), (0, false, None)]);
    assert_eq!(rows[0].error.as_deref(), Some("away"));
    for (filter, count) in [
        (of_key("k"), 2),
        (Filter { by: Some(CONSUMER.into()), ..all() }, 3),
        (Filter { by: Some("nobody".into()), ..all() }, 0),
        (Filter { event: Some(second.id.to_string()), ..all() }, 1),
        (Filter { class: Some("transient".into()), ..all() }, 2),
    ] {
        assert_eq!(store.parked(&filter, 10).await.unwrap().len(), count, "{filter:?}");
    }
}

/// With everything that came with them.
pub async fn dead_letters_are_found_with_their_record<S: FullStore>(store: S) {
    let envelope = envelope("k");
    dies(&store, &envelope, "no such account").await;
    let unreadable = Dead {
        what: "things partition 1 offset 2".into(),
        admission: None,
        kind: None,
        key: None,
        correlation_id: None,
        trace: None,
        record: RawRecord { key: None, headers: Vec::new(), payload: Some(Bytes::from_static(b"\0\xff")) },
        ..letter(By::Consumer(CONSUMER.into()), &envelope, History::default(), 1, "not a CloudEvent")
    };
    let mut tx = store.begin(sealer()).await.unwrap();
    store.set_aside(&mut tx, &unreadable).await.unwrap();
    store.set_aside(&mut tx, &unreadable).await.unwrap();
    tx.commit().await.unwrap();

    let rows = dead(&store, &all()).await;
    assert_eq!(rows.len(), 2);
    let (row, whole) = store.dead_letter(rows[0].id).await.unwrap().unwrap();
    assert_eq!((row.by.as_str(), row.class.as_str(), row.newer), ("consumer ledger", "final", 0));
    assert_eq!(whole.record, wire::encode(&envelope));
    assert_eq!((whole.admission, whole.history.entries().len()), (Some(Admission::of(&envelope)), 1));
    assert_eq!((row.partition, row.offset, row.attempts, row.holds_key), (Some(3), Some(17), 1, false));
    assert!(row.trace.is_some() && row.correlation_id == envelope.correlation_id && row.payload_bytes.is_some());
    assert_eq!(store.dead_letter(rows[1].id).await.unwrap().unwrap().1.record, unreadable.record);
    assert!(store.dead_letter(i64::MAX).await.unwrap().is_none());
    for (filter, count) in [
        (of_key("k"), 1),
        (Filter { by: Some("consumer ledger".into()), ..all() }, 2),
        (Filter { by: Some("relay ledger".into()), ..all() }, 0),
        (Filter { kind: Some("thing.happened.v1".into()), ..all() }, 1),
        (Filter { event: envelope.correlation_id.clone(), ..all() }, 1),
        (Filter { since: Some(WallClock.now() + chrono::Days::new(1)), ..all() }, 0),
    ] {
        assert_eq!(dead(&store, &filter).await.len(), count, "{filter:?}");
    }
}

/// And says so, thing by thing.
pub async fn a_healthy_store_has_no_fault<S: FullStore>(store: S) {
    commit(&store, &["a"]).await;
    let findings = store.doctor().await.unwrap();
    assert!(findings.len() >= 3 && findings.iter().all(|finding| !finding.says.is_empty()), "{findings:?}");
    for what in ["clock", "tables"] {
        let found = findings.iter().find(|finding| finding.what == what);
        assert!(found.is_some_and(|found| found.grade == Grade::Fine), "{what}: {findings:?}");
    }
}
