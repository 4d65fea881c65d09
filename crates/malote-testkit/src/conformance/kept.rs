//! What leaves: in bounded steps, and never what somebody still waits for.

use super::{
    parking::{failed, given_up, letter, one, park, settle, states},
    store::{PATIENCE, WallClock, sealer},
};
use chrono::{Days, NaiveDate};
use malote_core::{
    Admission, Answer, Claim, Clock, Ending, FullStore, IdempotencyStore, KeptStore, LaneState, Prune, RequestKey,
    Settled, Store, Transaction,
    inspect::{Act, Filter},
};
use std::time::{Duration, Instant};
use uuid::Uuid;

const CONSUMER: &str = "ledger";
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

/// Asks, then removes step by step; both say the same number.
pub(super) async fn prune<S: KeptStore>(store: &S, what: Prune, most: u32) -> u64 {
    let asked = store.prune(what, u32::MAX, true).await.unwrap();
    assert!(!asked.more);
    let again = store.prune(what, u32::MAX, true).await.unwrap();
    assert_eq!(asked, again, "asking changes nothing");
    let mut rows = 0;
    for _ in 0..100 {
        let step = store.prune(what, most, false).await.unwrap();
        rows += step.rows;
        if !step.more {
            assert_eq!(rows, asked.rows, "{}", what.name());
            return rows;
        }
    }
    panic!("{} is never done", what.name());
}

async fn admit<S: Store>(store: &S, events: &[Admission]) {
    let mut tx = store.begin(sealer()).await.unwrap();
    store.admit(&mut tx, CONSUMER, events).await.unwrap();
    tx.commit().await.unwrap();
}

/// By the event's own day and by when it was handled: an event may come long after its day, and a duplicate of
/// it as long after that. What is parked or dead stays however old, and what is young stays, too.
pub async fn old_inbox_rows_go_when_they_are_done<S: FullStore>(store: S) {
    let old = NaiveDate::from_ymd_opt(2020, 1, 1).unwrap();
    let today = WallClock.now().date_naive();
    let event = |day| Admission { event_id: Uuid::now_v7(), day };
    let done: Vec<Admission> = (0..25).map(|n| event(old + Days::new(n % 3))).collect();
    let young: Vec<Admission> = (0..5).map(|n| event(today + Days::new(n % 2))).collect();
    admit(&store, &[done.clone(), young.clone()].concat()).await;
    let mut waiting = [letter("a", "1", Some(failed(1, Duration::ZERO))), letter("a", "2", None)];
    for letter in &mut waiting {
        letter.admission = Some(event(old));
    }
    park(&store, &waiting).await;
    let dead = one(&store).await;
    let settled = settle(&store, &dead, Ending::Dead { dead: given_up(&dead), hold: false }).await;
    let Settled::Next(second) = settled else { panic!("{settled:?}") };

    let keep = Prune::Inbox(Duration::ZERO);
    assert_eq!(prune(&store, Prune::Inbox(Duration::from_secs(100 * 365 * 24 * 3600)), 10).await, 0);
    assert_eq!(prune(&store, Prune::Inbox(Duration::from_secs(7 * 24 * 3600)), 10).await, 0, "handled just now");
    assert_eq!(prune(&store, keep, 10).await, 25);
    assert_eq!(store.seen(CONSUMER, &done).await.unwrap(), [false; 25]);
    assert_eq!(store.seen(CONSUMER, &young).await.unwrap(), [true; 5]);
    let both = [dead.admission.unwrap(), second.admission.unwrap()];
    assert_eq!(store.seen(CONSUMER, &both).await.unwrap(), [true, true], "nobody may handle them again");

    settle(&store, &second, Ending::Done).await;
    assert_eq!(prune(&store, keep, 10).await, 1, "it is done now");
    assert_eq!(store.seen(CONSUMER, &both).await.unwrap(), [true, false]);
}

/// A message that waited long is remembered as long as one that did not: a copy may come after either.
pub async fn what_waited_is_kept_from_its_end_on<S: FullStore>(store: S) {
    let keep = Prune::Inbox(Duration::from_secs(3));
    let event = || Admission { event_id: Uuid::now_v7(), day: NaiveDate::from_ymd_opt(2020, 1, 1).unwrap() };
    let mut waiting = letter("a", "1", Some(failed(1, Duration::ZERO)));
    waiting.admission = Some(event());
    park(&store, std::slice::from_ref(&waiting)).await;
    let (done, waited) = ([event()], [waiting.admission.unwrap()]);
    admit(&store, &done).await;
    let head = one(&store).await;
    let end = Instant::now() + PATIENCE;
    while store.prune(keep, 10, true).await.unwrap().rows == 0 {
        assert!(Instant::now() < end, "nothing is old");
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
    assert!(matches!(settle(&store, &head, Ending::Done).await, Settled::Rest));
    while store.prune(keep, 10, false).await.unwrap().more {}
    assert_eq!(store.seen(CONSUMER, &done).await.unwrap(), [false]);
    assert_eq!(store.seen(CONSUMER, &waited).await.unwrap(), [true], "it was handled just now");
}

/// Their keys go on as if they had been discarded; one that holds its key waits for a person.
pub async fn old_dead_letters_go<S: FullStore>(store: S) {
    for n in 0..6 {
        let key = format!("key {}", n % 3);
        park(&store, &[letter(&key, &n.to_string(), Some(failed(1, Duration::ZERO)))]).await;
        let head = one(&store).await;
        settle(&store, &head, Ending::Dead { dead: given_up(&head), hold: n == 5 }).await;
    }
    assert_eq!(prune(&store, Prune::Dead(LONG), 2).await, 0);
    assert_eq!(prune(&store, Prune::Dead(Duration::ZERO), 2).await, 5);
    let left = store.dead(&Filter::default(), 10).await.unwrap();
    assert_eq!(left.iter().map(|row| row.what.as_str()).collect::<Vec<_>>(), ["5"]);
    let free = LaneState::Free;
    assert_eq!(states(&store, CONSUMER, &["key 0", "key 1", "key 2"]).await, [free, free, LaneState::Busy]);
}

/// Ones that are old enough.
pub async fn old_answers_go<S: FullStore + IdempotencyStore>(store: S) {
    for n in 0..5 {
        let request = RequestKey { caller: "c".into(), scope: "POST /".into(), key: n.to_string() };
        let owner = Uuid::now_v7();
        assert_eq!(store.claim(&request, &[0; 32], owner, LONG).await.unwrap(), Claim::Won);
        let answer = Answer { status: 200, headers: Vec::new(), body: Default::default() };
        let mut tx = store.begin(sealer()).await.unwrap();
        assert!(store.finish(&mut tx, &request, owner, &answer).await.unwrap());
        tx.commit().await.unwrap();
    }
    assert_eq!(prune(&store, Prune::Answers(LONG), 2).await, 0);
    assert_eq!(prune(&store, Prune::Answers(Duration::ZERO), 2).await, 5);
}

/// Ones that are old enough.
pub async fn old_acts_go<S: FullStore>(store: S) {
    for n in 0..5 {
        let act = Act { actor: "conformance".into(), reason: format!("act {n}") };
        store.erase(&act, "nobody", false).await.unwrap();
    }
    assert_eq!(prune(&store, Prune::Audit(LONG), 2).await, 0);
    assert_eq!(store.audit(10).await.unwrap().len(), 5);
    assert_eq!(prune(&store, Prune::Audit(Duration::ZERO), 2).await, 5);
    assert!(store.audit(10).await.unwrap().is_empty());
}

/// The beginning of an act stays until its end is there, whoever else did the same before or since.
pub async fn acts_under_way_stay<S: FullStore>(store: S) {
    let note = async |actor: &str, outcome: &str| {
        let act = Act { actor: actor.into(), reason: "tidy".into() };
        store.note(&act, "prune", "audit older than 0s", outcome).await.unwrap();
    };
    let begun = async || {
        let rows = store.audit(20).await.unwrap();
        let begun = rows.into_iter().rev().filter(|row| row.outcome == "begun");
        begun.map(|row| row.actor).collect::<Vec<_>>()
    };
    let (end, begin) = ("2 rows removed", "begun");
    // ana did it once and is at it again; rui's first process died, and another one did it; eva has done it
    for (actor, outcome) in [("ana", begin), ("ana", end), ("ana", begin), ("rui", begin), ("rui", begin), ("rui", end)]
    {
        note(actor, outcome).await;
    }
    note("eva", begin).await;
    note("eva", end).await;
    assert_eq!(store.prune(Prune::Audit(Duration::ZERO), 10, true).await.unwrap().rows, 5);
    assert_eq!(prune(&store, Prune::Audit(Duration::ZERO), 2).await, 5);
    assert_eq!(begun().await, ["ana", "rui", "rui"]);
    note("ana", end).await;
    assert_eq!(prune(&store, Prune::Audit(Duration::ZERO), 2).await, 2);
    assert_eq!(begun().await, ["rui", "rui"]);
}
