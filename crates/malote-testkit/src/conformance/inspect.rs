//! What every store lets operators see and do.
//!
//! Each function is one promise of [`malote_core::inspect::Inspect`]; it takes a fresh, migrated store. An
//! adapter runs them all as tests of their own by [`inspect_conformance!`](crate::inspect_conformance).

use super::store::{PATIENCE, WallClock, commit, message, sealer};
use bytes::Bytes;
use malote_core::{
    Admission, Budget, By, ClaimDue, Class, Clock, Dead, Ending, Envelope, Failed, FullStore, History, Incarnation,
    Lane, LaneState, Parked, RawRecord, Setback, Settled, Store, Taken, ToPark, Transaction,
    inspect::{Act, DeadRow, Filter, Grade, ONLY_FOR, Redrive, Replay},
    relay::{Cursor, Ranges, Window},
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

const CONSUMER: &str = "ledger";
const LONG: Duration = Duration::from_secs(600);
const AT_ONCE: Redrive = Redrive { dry: false, per_second: 0, although_newer: false };

fn act() -> Act {
    Act { actor: "ana".into(), reason: "the bank is back".into() }
}

fn all() -> Filter {
    Filter::default()
}

fn of_key(key: &str) -> Filter {
    Filter { key: Some(key.into()), ..Filter::default() }
}

fn envelope(key: &str) -> Envelope {
    let mut envelope = sealer().seal(message(key)).unwrap();
    envelope.headers.push(("dataschema".into(), "https://example.org/thing".into()));
    envelope
}

fn lane(envelope: &Envelope) -> Lane {
    Lane { topic: envelope.topic.clone(), key: envelope.key.clone() }
}

fn to_park(envelope: &Envelope, setback: Option<Failed>) -> ToPark {
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
fn failed(history: &History, attempts: u32, why: &str) -> Failed {
    let mut history = history.clone();
    history.push(Setback::failed(WallClock.now(), attempts, Class::Transient, why));
    Failed { class: Class::Transient, error: why.into(), attempts, history, wait: Duration::ZERO }
}

fn letter(by: By, envelope: &Envelope, history: History, attempts: u32, why: &str) -> Dead {
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

async fn admit<S: Store>(store: &S, tx: &mut S::Tx, envelope: &Envelope) -> bool {
    store.admit(tx, CONSUMER, &[Admission::of(envelope)]).await.unwrap() == [true]
}

/// A delivery: handled, or put behind, as a consumer does it.
async fn deliver<S: FullStore>(store: &S, envelope: &Envelope) -> LaneState {
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
async fn dies<S: FullStore>(store: &S, envelope: &Envelope, why: &str) {
    let mut history = History::default();
    history.push(Setback::failed(WallClock.now(), 1, Class::Final, why));
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(admit(store, &mut tx, envelope).await);
    let dead = letter(By::Consumer(CONSUMER.into()), envelope, history, 1, why);
    store.set_aside(&mut tx, &dead).await.unwrap();
    tx.commit().await.unwrap();
}

/// Fails for now, and waits.
async fn waits<S: FullStore>(store: &S, envelope: &Envelope, wait: Duration) {
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(admit(store, &mut tx, envelope).await);
    let setback = Failed { wait, ..failed(&History::default(), 1, "away") };
    store.park(&mut tx, CONSUMER, &[to_park(envelope, Some(setback))]).await.unwrap();
    tx.commit().await.unwrap();
}

async fn claim<S: FullStore>(store: &S) -> Vec<Parked> {
    let budget = Budget { per_second: 1e6, burst: 1e6 };
    let ask = ClaimDue { who: Incarnation(Uuid::now_v7()), most: 100, holds: LONG, budget };
    store.claim_due(CONSUMER, &ask).await.unwrap().heads
}

/// The next head that is due.
async fn head<S: FullStore>(store: &S) -> Parked {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(head) = claim(store).await.pop() {
            return head;
        }
        assert!(Instant::now() < deadline, "nothing becomes due");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn settle<S: FullStore>(store: &S, head: &Parked, ending: &Ending) -> Settled {
    let mut tx = store.begin(sealer()).await.unwrap();
    let settled = store.settle(&mut tx, head, ending).await.unwrap();
    tx.commit().await.unwrap();
    settled
}

async fn gives_up<S: FullStore>(store: &S, head: &Parked, why: &str, hold: bool) {
    let envelope = wire::decode(&head.lane.topic, &head.record).unwrap();
    let setback = failed(&head.history, head.attempts, why);
    let by = By::Consumer(CONSUMER.into());
    let dead = Box::new(letter(by, &envelope, setback.history, head.attempts, why));
    settle(store, head, &Ending::Dead { dead, hold }).await;
}

async fn dead<S: FullStore>(store: &S, filter: &Filter) -> Vec<DeadRow> {
    store.dead(filter, 100).await.unwrap()
}

async fn handled<S: FullStore>(store: &S) -> Vec<String> {
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
    assert_eq!(status.tables.0, status.tables.1);
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

    let status = store.status().await.unwrap();
    assert_eq!((status.outbox.pending, status.outbox.last, status.outbox.gaps), (2, 3, 1), "{status:?}");
    assert_eq!(status.outbox.oldest, Some(("thing.happened.v1".into(), "a".into())));
    assert!(status.outbox.oldest_seconds.is_some_and(|age| (0.0..600.0).contains(&age)));
    let [relay] = &*status.relays else { panic!("{:?}", status.relays) };
    assert_eq!((relay.name.as_str(), relay.incarnation, relay.high, relay.gaps), ("ledger", Some(who.0), 2, 1));
    assert!(relay.lease_seconds.is_some_and(|left| left > 500.0));
    let consumer = &status.consumers[0];
    assert_eq!((consumer.name.as_str(), consumer.parked_keys, consumer.parked_messages), (CONSUMER, 1, 2));
    assert_eq!((consumer.held_keys, consumer.dead, status.relay_dead, status.scheduled), (0, 1, 1, 2));
    assert!(consumer.oldest_parked_seconds.is_some());
    assert!(status.scheduled_late_seconds.is_some_and(|late| late >= 0.0));
    let scheduled = store.scheduled(10).await.unwrap();
    assert_eq!(scheduled.len(), 2);
    assert!(scheduled[0].due_at < scheduled[1].due_at && scheduled[0].key == "m");
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

/// Fail, dead letter, redrive, fail again, redrive, succeed: one id, every attempt in the history, one effect.
pub async fn ac_049_ac_051_a_redriven_message_keeps_its_id_and_its_history<S: FullStore>(store: S) {
    let envelope = envelope("k");
    dies(&store, &envelope, "first").await;
    let first = dead(&store, &all()).await.remove(0);
    assert_eq!(store.redrive(&act(), &all(), AT_ONCE).await.unwrap().done, 1);
    assert_eq!(dead(&store, &all()).await.len(), 0);

    let again = head(&store).await;
    assert_eq!((again.what.clone(), again.admission), (envelope.id.to_string(), Some(Admission::of(&envelope))));
    assert_eq!((again.attempts, again.age), (1, Duration::ZERO), "its attempts count anew");
    assert_eq!(wire::decode(&again.lane.topic, &again.record).unwrap(), envelope, "nothing that came with it is lost");
    gives_up(&store, &again, "second", false).await;
    let second = dead(&store, &all()).await.remove(0);
    assert_eq!((second.what.as_str(), second.key.as_deref()), (first.what.as_str(), Some("k")));
    assert_eq!(second.first_at.timestamp_millis(), first.first_at.timestamp_millis());

    assert_eq!(store.redrive(&act(), &all(), AT_ONCE).await.unwrap().done, 1);
    let last = head(&store).await;
    let whys: Vec<(&str, &str)> = last.history.entries().iter().map(|e| (e.what.as_str(), e.why.as_str())).collect();
    let redriven = ("redriven", "ana: the bank is back");
    assert_eq!(whys, [("final", "first"), redriven, ("transient", "second"), redriven]);
    assert!(matches!(settle(&store, &last, &Ending::Done).await, Settled::Rest));
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(!admit(&store, &mut tx, &envelope).await, "what was handled is not handled again");
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&envelope)]).await.unwrap(), [LaneState::Free]);
    tx.rollback().await.unwrap();
    let acts = store.audit(10).await.unwrap();
    assert_eq!(acts.len(), 2);
    assert!(
        acts.iter()
            .all(|a| (a.act.as_str(), a.actor.as_str(), a.reason.as_str()) == ("redrive", "ana", "the bank is back"))
    );
    assert!(acts[0].target.contains(&envelope.id.to_string()));
}

/// Apply v1, give v2 up, apply v3, redrive v2: it is not handled, and it is written down that it was asked for.
pub async fn ac_047_a_stale_letter_is_refused_and_audited<S: FullStore>(store: S) {
    assert_eq!(deliver(&store, &envelope("k")).await, LaneState::Free);
    let second = envelope("k");
    dies(&store, &second, "no such account").await;
    assert_eq!(deliver(&store, &envelope("k")).await, LaneState::Passing);
    assert_eq!(deliver(&store, &envelope("l")).await, LaneState::Free);
    assert_eq!(dead(&store, &all()).await[0].newer, 1);

    let acted = store.redrive(&act(), &all(), AT_ONCE).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (0, 1));
    assert!(acted.refused[0].stale && acted.refused[0].why.contains("discard"), "{acted:?}");
    assert_eq!(claim(&store).await.len(), 0, "nothing waits");
    assert_eq!(dead(&store, &all()).await.len(), 1);
    assert_eq!(store.audit(10).await.unwrap()[0].outcome, "stale");

    let although = Redrive { although_newer: true, ..AT_ONCE };
    assert_eq!(store.redrive(&act(), &all(), although).await.unwrap().done, 1);
    assert_eq!(handled(&store).await, [second.id.to_string()]);
}

/// Also when the first is handled before the second has been put back; what came later goes behind.
pub async fn letters_of_a_key_come_back_in_their_order<S: FullStore>(store: S) {
    let letters = [envelope("k"), envelope("other"), envelope("k"), envelope("k")];
    for letter in &letters {
        dies(&store, letter, "never").await;
    }
    let acted = store.redrive(&act(), &of_key("k"), AT_ONCE).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (3, 0));
    let later = envelope("k");
    assert_eq!(deliver(&store, &later).await, LaneState::Busy);
    let expected = [&letters[0], &letters[2], &letters[3], &later].map(|envelope| envelope.id.to_string());
    assert_eq!(handled(&store).await, expected);
    assert_eq!(dead(&store, &all()).await.len(), 1);
}

/// Those that came meanwhile wait, and go on behind it.
pub async fn a_held_key_is_let_go_with_its_letter_in_front<S: FullStore>(store: S) {
    let (first, second, third) = (envelope("k"), envelope("k"), envelope("k"));
    waits(&store, &first, Duration::ZERO).await;
    assert_eq!(deliver(&store, &second).await, LaneState::Busy);
    gives_up(&store, &head(&store).await, "for good", true).await;
    assert_eq!(deliver(&store, &third).await, LaneState::Busy, "a held key takes nothing");
    assert_eq!(claim(&store).await.len(), 0);
    let status = store.status().await.unwrap();
    assert_eq!((status.consumers[0].held_keys, status.consumers[0].parked_messages), (1, 2));
    let rows = dead(&store, &all()).await;
    assert!(rows[0].holds_key);
    assert!(store.parked(&all(), 10).await.unwrap().iter().all(|row| row.held && row.due_at.is_none()));
    assert_eq!(store.redrive(&act(), &all(), AT_ONCE).await.unwrap().done, 1);
    assert_eq!(handled(&store).await, [&first, &second, &third].map(|envelope| envelope.id.to_string()));
    let mut tx = store.begin(sealer()).await.unwrap();
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&first)]).await.unwrap(), [LaneState::Free]);
}

/// A thousand at once would be the next storm.
pub async fn a_redrive_is_spread_over_time<S: FullStore>(store: S) {
    for key in ["a", "b", "c"] {
        dies(&store, &envelope(key), "never").await;
        dies(&store, &envelope(key), "never").await;
    }
    let slowly = Redrive { per_second: 1, ..AT_ONCE };
    assert_eq!(store.redrive(&act(), &all(), slowly).await.unwrap().done, 6);
    let rows = store.parked(&all(), 10).await.unwrap();
    let due: Vec<_> = rows.iter().filter_map(|row| row.due_at).collect();
    assert_eq!(due.len(), 3, "one a key");
    for pair in due.windows(2) {
        assert!(pair[1] - pair[0] >= chrono::TimeDelta::milliseconds(900), "{due:?}");
    }
}

/// To the outbox, under their own id; what cannot be read cannot be sent.
pub async fn letters_of_a_relay_are_sent_again<S: FullStore>(store: S) {
    let envelope = envelope("k");
    let by = By::Relay("ledger".into());
    let unreadable = Dead {
        what: "outbox row 7".into(),
        record: RawRecord::default(),
        ..letter(by.clone(), &envelope, History::default(), 1, "the headers cannot be read")
    };
    let mut tx = store.begin(sealer()).await.unwrap();
    store.set_aside(&mut tx, &letter(by, &envelope, History::default(), 1, "too large")).await.unwrap();
    store.set_aside(&mut tx, &unreadable).await.unwrap();
    tx.commit().await.unwrap();
    let acted = store.redrive(&act(), &all(), AT_ONCE).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (1, 1));
    assert!(acted.refused[0].why.contains("the headers cannot be read") && !acted.refused[0].stale, "{acted:?}");
    let rows = store.read(&Window { high: 0, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows;
    let sent = rows[0].envelope.clone().unwrap();
    assert_eq!(Envelope { sequence: None, ..sent }, envelope);
    assert_eq!((rows.len(), dead(&store, &all()).await.len()), (1, 1));
}

/// And is not handled when it comes again.
pub async fn a_discarded_letter_lets_its_key_go<S: FullStore>(store: S) {
    let (first, second) = (envelope("k"), envelope("k"));
    waits(&store, &first, Duration::ZERO).await;
    deliver(&store, &second).await;
    gives_up(&store, &head(&store).await, "for good", true).await;
    let acted = store.discard(&act(), &all(), false).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (1, 0));
    assert_eq!(handled(&store).await, [second.id.to_string()]);
    assert_eq!(dead(&store, &all()).await.len(), 0);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(!admit(&store, &mut tx, &first).await);
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&first)]).await.unwrap(), [LaneState::Free]);
    tx.rollback().await.unwrap();
    let acts = store.audit(10).await.unwrap();
    assert_eq!((acts.len(), acts[0].act.as_str(), acts[0].actor.as_str()), (1, "discard", "ana"));
}

/// Without waiting for its time.
pub async fn the_next_attempt_can_be_made_now<S: FullStore>(store: S) {
    let (wanted, other) = (envelope("k"), envelope("l"));
    waits(&store, &wanted, LONG).await;
    waits(&store, &other, LONG).await;
    assert_eq!(claim(&store).await.len(), 0);
    assert_eq!(store.retry_now(&act(), &of_key("k"), false).await.unwrap().done, 1);
    assert_eq!(handled(&store).await, [wanted.id.to_string()]);
    let acts = store.audit(10).await.unwrap();
    assert_eq!((acts.len(), acts[0].act.as_str()), (1, "retry"));
}

/// With its own time; to another topic or for one consumer where asked. What the relay has not come to is left to it.
pub async fn what_was_published_is_sent_again_under_its_id<S: FullStore>(store: S) {
    let old: Vec<Envelope> = ["a", "b", "a", "c"].map(envelope).into();
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.append(old.clone()).await.unwrap();
    tx.commit().await.unwrap();
    let who = Incarnation(Uuid::now_v7());
    let Taken::Mine { lease, .. } = store.take_lease("ledger", who, LONG).await.unwrap() else { panic!("not free") };
    let cursor = Cursor { high: 3, gaps: [(2, 2)].into_iter().collect() };
    store.save(&lease, &cursor, LONG).await.unwrap();
    let plain = Replay { dry: false, topic: None, consumer: None, most: 100 };
    let aimed = Replay { topic: Some("again".into()), consumer: Some("audit".into()), ..plain.clone() };
    assert_eq!(store.replay(&act(), &all(), plain.clone()).await.unwrap().done, 2);
    assert_eq!(store.replay(&act(), &of_key("a"), Replay { most: 1, ..aimed }).await.unwrap().done, 1);
    let rows = store.read(&Window { high: 4, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows;
    let sent: Vec<Envelope> =
        rows.into_iter().map(|row| Envelope { sequence: None, ..row.envelope.unwrap() }).collect();
    assert_eq!(sent[..2], [old[0].clone(), old[2].clone()]);
    let only = (ONLY_FOR.to_owned(), "audit".to_owned());
    assert_eq!((sent.len(), sent[2].id, sent[2].topic.as_str()), (3, old[0].id, "again"));
    assert!(sent[2].headers.contains(&only) && sent[2].time == old[0].time);

    // of an event that lies there twice, one goes; and a copy is no copy of a copy
    store.save(&lease, &Cursor { high: 7, gaps: Ranges::new() }, LONG).await.unwrap();
    assert_eq!(store.replay(&act(), &of_key("a"), plain).await.unwrap().done, 2);
    let rows = store.read(&Window { high: 7, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows;
    assert!(rows.iter().all(|row| !row.envelope.as_ref().unwrap().headers.contains(&only)));
    assert_eq!(store.audit(10).await.unwrap().len(), 3);
}

/// In payload, headers, key or error; also not in what was written down about it.
pub async fn an_erased_key_is_nowhere<S: FullStore>(store: S) {
    let (first, other) = (envelope("maria@example.org"), envelope("l"));
    waits(&store, &first, Duration::ZERO).await;
    let behind = envelope("maria@example.org");
    deliver(&store, &behind).await;
    gives_up(&store, &head(&store).await, "maria@example.org is unknown", false).await;
    dies(&store, &other, "never").await;
    let acted = store.erase(&act(), "maria@example.org", false).await.unwrap();
    assert_eq!(acted.done, 2);
    let rows = dead(&store, &all()).await;
    let (_, erased) = store.dead_letter(rows[0].id).await.unwrap().unwrap();
    let told = format!("{rows:?} {erased:?} {:?} {:?}", store.parked(&all(), 10).await, store.audit(10).await);
    assert!(!told.contains("maria@example.org"), "{told}");
    assert_eq!((erased.record, rows[0].payload_bytes, rows[0].key.as_deref()), (RawRecord::default(), None, None));
    assert_eq!(store.parked(&all(), 10).await.unwrap().len(), 0);
    let (_, kept) = store.dead_letter(rows[1].id).await.unwrap().unwrap();
    assert_eq!(kept.record, wire::encode(&other));
    let acted = store.redrive(&act(), &Filter { ids: Some(vec![rows[0].id]), ..all() }, AT_ONCE).await.unwrap();
    assert!(acted.done == 0 && acted.refused[0].why.contains("erased"), "{acted:?}");
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(!admit(&store, &mut tx, &behind).await, "it is not handled when it comes again");
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&first)]).await.unwrap(), [LaneState::Free]);
}

/// It says what it would do, and writes nothing down.
pub async fn a_dry_run_changes_nothing<S: FullStore>(store: S) {
    commit(&store, &["a"]).await;
    let who = Incarnation(Uuid::now_v7());
    let Taken::Mine { lease, .. } = store.take_lease("ledger", who, LONG).await.unwrap() else { panic!("not free") };
    store.save(&lease, &Cursor { high: 1, gaps: Ranges::new() }, LONG).await.unwrap();
    dies(&store, &envelope("k"), "never").await;
    waits(&store, &envelope("l"), LONG).await;
    let before = format!("{:?} {:?}", store.dead(&all(), 10).await, store.parked(&all(), 10).await);
    let dry = Redrive { dry: true, ..AT_ONCE };
    assert_eq!(store.redrive(&act(), &all(), dry).await.unwrap().done, 1);
    assert_eq!(store.discard(&act(), &all(), true).await.unwrap().done, 1);
    assert_eq!(store.retry_now(&act(), &all(), true).await.unwrap().done, 1);
    assert_eq!(store.erase(&act(), "k", true).await.unwrap().done, 1);
    let replay = Replay { dry: true, topic: None, consumer: None, most: 100 };
    assert_eq!(store.replay(&act(), &all(), replay).await.unwrap().done, 1);
    let after = format!("{:?} {:?}", store.dead(&all(), 10).await, store.parked(&all(), 10).await);
    assert_eq!(before, after);
    assert_eq!(store.audit(10).await.unwrap().len(), 0);
    assert_eq!(store.read(&Window { high: 1, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows.len(), 0);
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
