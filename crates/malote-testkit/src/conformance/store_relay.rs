//! Lease and cursor: one holder at a time, and whoever lost the lease changes nothing.

use super::store::{PATIENCE, append, commit, message, sealer};
use malote_core::{
    Incarnation, Lease, Saved, Store, Taken, Transaction,
    relay::{Cursor, Ranges, Window},
};
use std::time::{Duration, Instant};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);

fn somebody() -> Incarnation {
    Incarnation(Uuid::now_v7())
}

fn cursor(high: i64, gaps: &[(i64, i64)]) -> Cursor {
    Cursor { high, gaps: gaps.iter().copied().collect() }
}

async fn take<S: Store>(store: &S, who: Incarnation, lasts: Duration) -> Option<(Lease, Cursor)> {
    match store.take_lease("relay", who, lasts).await.unwrap() {
        Taken::Mine { lease, cursor, .. } => Some((lease, cursor)),
        Taken::Theirs(left) => {
            assert!(!left.is_zero() && left <= LONG, "{left:?}");
            None
        }
    }
}

/// Takes it as soon as it is free.
async fn await_lease<S: Store>(store: &S, who: Incarnation, lasts: Duration) -> (Lease, Cursor) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(taken) = take(store, who, lasts).await {
            return taken;
        }
        assert!(Instant::now() < deadline, "the lease never ended");
        tokio::task::yield_now().await;
    }
}

/// AC-001, the store's half: an owner is a row with an end and a rising number, and each change of the
/// cursor checks the number.
pub async fn ac_001_a_lease_has_one_holder_and_fences_the_last<S: Store>(store: S) {
    let (first, second) = (somebody(), somebody());
    let (old, empty) = take(&store, first, LONG).await.expect("a lease that nobody ever had");
    assert_eq!(empty, Cursor::default());
    assert!(take(&store, second, LONG).await.is_none());
    assert_eq!(take(&store, first, SHORT).await.expect("renewed").0, old);

    let kept = store.save(&old, &cursor(3, &[(2, 2)]), SHORT).await.unwrap();
    assert!(matches!(kept, Saved::Kept { .. }));
    let (new, taken_up) = await_lease(&store, second, LONG).await;
    assert!(new.epoch > old.epoch);
    assert_eq!(taken_up, cursor(3, &[(2, 2)]));

    // the first wakes up and knows of nothing
    assert_eq!(store.save(&old, &cursor(9, &[]), LONG).await.unwrap(), Saved::Fenced);
    store.release_lease(&old).await.unwrap();
    assert!(take(&store, first, LONG).await.is_none(), "releasing an old lease releases nothing");
    let (again, untouched) = take(&store, second, SHORT).await.expect("still the second's");
    assert_eq!((again, untouched), (new.clone(), taken_up));

    // the first comes back, and its own old number is as good as a stranger's
    let (newest, _) = await_lease(&store, first, LONG).await;
    assert!(newest.epoch > new.epoch);
    assert_eq!(store.save(&old, &cursor(9, &[]), LONG).await.unwrap(), Saved::Fenced);
    assert_eq!(store.save(&new, &cursor(9, &[]), LONG).await.unwrap(), Saved::Fenced);
}

/// A process that comes back under the same name is another, and waits like any other.
pub async fn ac_006_the_same_name_is_another_incarnation<S: Store>(store: S) {
    commit(&store, &["a"]).await;
    let (before, _) = take(&store, somebody(), LONG).await.unwrap();
    assert!(take(&store, somebody(), LONG).await.is_none(), "the lease is the incarnation's, not the name's");
    store.save(&before, &cursor(1, &[]), SHORT).await.unwrap();
    let (after, stored) = await_lease(&store, somebody(), LONG).await;
    assert_ne!(after.who, before.who);
    assert_eq!(stored, cursor(1, &[]));
    assert_eq!(store.save(&before, &cursor(7, &[]), LONG).await.unwrap(), Saved::Fenced);
}

/// And whoever gave it back holds it no longer.
pub async fn a_lease_that_is_given_back_is_free_at_once<S: Store>(store: S) {
    let (first, second) = (somebody(), somebody());
    let (lease, _) = take(&store, first, LONG).await.unwrap();
    store.release_lease(&lease).await.unwrap();
    assert_eq!(store.save(&lease, &cursor(9, &[]), LONG).await.unwrap(), Saved::Fenced);
    let (next, stored) = take(&store, second, LONG).await.expect("free at once");
    assert!(next.epoch > lease.epoch);
    assert_eq!(stored, Cursor::default());
}

/// With its gaps; and the last position that was handed out is told.
pub async fn a_cursor_survives<S: Store>(store: S) {
    let who = somebody();
    let (lease, _) = take(&store, who, LONG).await.unwrap();
    let many: Ranges = (0..500).map(|n| (n * 10 + 1, n * 10 + 5)).collect();
    for stored in [cursor(5_000, &[(1, 1), (4, 9), (11, 11)]), Cursor { high: 6_000, gaps: many }, cursor(7_000, &[])] {
        store.save(&lease, &stored, LONG).await.unwrap();
        assert_eq!(take(&store, who, LONG).await.unwrap().1, stored);
    }
    let last = |taken| if let Taken::Mine { last, .. } = taken { last } else { unreachable!("it is ours") };
    assert_eq!(last(store.take_lease("other", who, LONG).await.unwrap()), 0);
    commit(&store, &["a", "b", "c"]).await;
    assert_eq!(last(store.take_lease("other", who, LONG).await.unwrap()), 3);
}

/// The id of the transaction that stored the cursor is not reached while a transaction that wrote
/// before it is open, and is reached afterwards.
pub async fn a_bound_is_reached_when_everyone_before_has_ended<S: Store>(store: S) {
    let (lease, _) = take(&store, somebody(), LONG).await.unwrap();
    let window = Window { high: 0, gaps: Ranges::new(), limit: 10 };
    let mut bounds = Vec::new();
    for key in ["a", "b"] {
        let mut tx = store.begin(sealer()).await.unwrap();
        append(&mut tx, vec![message(key)]).await.unwrap();
        // A store with one writer has no open transaction beside the one that saves.
        let saving =
            tokio::time::timeout(Duration::from_millis(300), store.save(&lease, &Cursor::default(), LONG)).await;
        if let Ok(saved) = saving {
            let Saved::Kept { bound } = saved.unwrap() else { panic!("fenced") };
            bounds.push(bound);
            assert!(store.read(&window).await.unwrap().ended_below < bound, "the writer has not ended");
        }
        tx.commit().await.unwrap();
        let Saved::Kept { bound } = store.save(&lease, &Cursor::default(), LONG).await.unwrap() else {
            panic!("fenced")
        };
        bounds.push(bound);
        let deadline = Instant::now() + PATIENCE;
        // other databases of the server may have transactions open, too
        while store.read(&window).await.unwrap().ended_below < bound {
            assert!(Instant::now() < deadline, "the bound is never reached");
            tokio::task::yield_now().await;
        }
    }
    assert!(bounds.is_sorted(), "{bounds:?}");
}

/// Nothing above the floor of the cursor.
pub async fn upkeep_removes_nothing_that_is_needed<S: Store>(store: S) {
    let keys: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    commit(&store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let read = store.read(&Window { high: 0, gaps: Ranges::new(), limit: 1_000 }).await.unwrap();
    let (middle, last) = (read.rows[150].seq, read.rows[299].seq);
    let cursor = Cursor { high: last, gaps: [(middle, middle)].into_iter().collect() };
    for _ in 0..3 {
        store.upkeep(&cursor).await.unwrap();
    }
    let rest = store.read(&Window { high: middle - 1, gaps: Ranges::new(), limit: 1_000 }).await.unwrap();
    assert_eq!(rest.rows.len(), 150);
    commit(&store, &["still takes rows"]).await;
    let tail = store.read(&Window { high: last, gaps: Ranges::new(), limit: 10 }).await.unwrap();
    assert_eq!(tail.rows.len(), 1);
}
