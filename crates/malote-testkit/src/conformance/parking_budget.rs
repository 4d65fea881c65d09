//! Who has the next turn, and how many have one: old failures starve nobody, all processes share a budget.

use super::{
    parking::{CONSUMER, LONG, ask, claim, failed, letter, next, one, park, rest},
    store::PATIENCE,
};
use malote_core::{Budget, ClaimDue, Ending, FullStore, ToPark};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// However many old rows fail for ever, a fresh one has its turn.
pub async fn the_longest_overdue_comes_first<S: FullStore>(store: S) {
    let waits = (0..10u64).rev().map(|n| {
        let wait = Duration::from_millis(5 * (10 - n));
        letter(&format!("key {n}"), &n.to_string(), Some(failed(1, wait)))
    });
    park(&store, &waits.collect::<Vec<_>>()).await;
    let mut order = Vec::new();
    for _ in 0..10 {
        let head = one(&store).await;
        order.push(head.what.clone());
        rest(&store, &head, Ending::Again(failed(1, LONG))).await;
    }
    assert_eq!(order, ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]);

    let old: Vec<ToPark> =
        (0..30).map(|n| letter(&format!("a old {n}"), &format!("old {n}"), Some(failed(1, Duration::ZERO)))).collect();
    park(&store, &old).await;
    park(&store, &[letter("z fresh", "fresh", Some(failed(1, Duration::from_millis(1))))]).await;
    for claims in 1.. {
        let heads = claim(&store, &ask(5, LONG)).await;
        let found = heads.iter().any(|head| head.what == "fresh");
        for head in heads {
            rest(&store, &head, Ending::Again(failed(1, Duration::ZERO))).await;
        }
        if found {
            break;
        }
        assert!(claims < 200, "a fresh message waits behind those that always fail");
    }
}

/// All processes together make no more second and later attempts than the budget says; a message that
/// has not failed takes nothing of it.
pub async fn the_budget_is_shared<S: FullStore>(store: S) {
    let mut letters: Vec<ToPark> =
        (0..20).map(|n| letter(&format!("a {n}"), &n.to_string(), Some(failed(1, Duration::ZERO)))).collect();
    letters.push(letter("z deferred", "deferred", Some(failed(0, Duration::from_millis(1)))));
    park(&store, &letters).await;
    let budget = Budget { per_second: 1e-6, burst: 5.0 };
    let deadline = Instant::now() + PATIENCE;
    let mut retries = 0;
    let mut deferred = false;
    while !deferred || retries < 5 {
        let mut claimers = JoinSet::new();
        for _ in 0..4 {
            let (store, ask) = (store.clone(), ClaimDue { budget, ..ask(10, LONG) });
            claimers.spawn(async move { store.claim_due(CONSUMER, &ask).await.unwrap() });
        }
        for due in claimers.join_all().await {
            retries += due.heads.iter().filter(|head| head.attempts > 1).count();
            deferred |= due.heads.iter().any(|head| head.what == "deferred");
            assert!(due.next.is_some(), "others are due");
        }
        assert!(Instant::now() < deadline, "{retries} retries, deferred: {deferred}");
    }
    assert_eq!(retries, 5);
    let due = store.claim_due(CONSUMER, &ClaimDue { budget, ..ask(10, LONG) }).await.unwrap();
    assert!(due.heads.is_empty() && due.next.is_some_and(|next| !next.is_zero()), "not asked for again at once");

    let faster = Budget { per_second: 1e4, burst: 1.0 };
    let deadline = Instant::now() + PATIENCE;
    while retries < 20 {
        retries += store.claim_due(CONSUMER, &ClaimDue { budget: faster, ..ask(10, LONG) }).await.unwrap().heads.len();
        assert!(Instant::now() < deadline, "the bucket fills again");
    }
}

/// A message that waited behind is handled under the claim of the one before, and takes nothing of the
/// budget.
pub async fn what_only_waited_takes_nothing_of_the_budget<S: FullStore>(store: S) {
    let mut letters = vec![letter("a", "head", Some(failed(1, Duration::ZERO)))];
    letters.extend((0..20).map(|n| letter("a", &n.to_string(), None)));
    park(&store, &letters).await;
    let budget = Budget { per_second: 1e-6, burst: 1.0 };
    let mut head = claim(&store, &ClaimDue { budget, ..ask(10, LONG) }).await.remove(0);
    for n in 0..20 {
        head = next(&store, &head, Ending::Done).await;
        assert_eq!((head.what, head.attempts), (n.to_string(), 1));
        head.what = n.to_string();
    }
}
