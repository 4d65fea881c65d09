//! Requests at the edge: one of many wins, and a late one changes nothing.

use super::store::{PATIENCE, sealer};
use bytes::Bytes;
use malote_core::{Answer, Claim, IdempotencyStore, RequestKey, Transaction};
use std::time::{Duration, Instant};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);
const BODY: [u8; 32] = [7; 32];

fn request(caller: &str, scope: &str, key: &str) -> RequestKey {
    RequestKey { caller: caller.into(), scope: scope.into(), key: key.into() }
}

fn answer(status: u16) -> Answer {
    Answer {
        status,
        headers: vec![
            ("location".into(), "/payment/\"1\"".into()),
            ("x".into(), String::new()),
            ("x".into(), "2".into()),
        ],
        body: Bytes::from_static(b"{\"n\":9007199254740993}\0\xff"),
    }
}

async fn claim<S: IdempotencyStore>(store: &S, request: &RequestKey, owner: Uuid, lease: Duration) -> Claim {
    store.claim(request, &BODY, owner, lease).await.unwrap()
}

async fn finish<S: IdempotencyStore>(store: &S, request: &RequestKey, owner: Uuid, status: u16) -> bool {
    let mut tx = store.begin(sealer()).await.unwrap();
    let ours = store.finish(&mut tx, request, owner, &answer(status)).await.unwrap();
    if ours {
        tx.commit().await.unwrap()
    } else {
        tx.rollback().await.unwrap()
    }
    ours
}

/// Claims until the lease that is in the way has ended.
async fn await_claim<S: IdempotencyStore>(store: &S, request: &RequestKey, owner: Uuid, lease: Duration) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match claim(store, request, owner, lease).await {
            Claim::Won => return,
            Claim::Running(left) => assert!(left <= LONG),
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < deadline, "the lease never ended");
        tokio::task::yield_now().await;
    }
}

/// Of a hundred that come at once.
pub async fn ac_070_one_of_many_claims_wins<S: IdempotencyStore>(store: S) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let store = store.clone();
        tasks.spawn(async move { claim(&store, &request("alice", "POST /payment", "1"), Uuid::now_v7(), LONG).await });
    }
    let claims = tasks.join_all().await;
    assert_eq!(claims.iter().filter(|claim| **claim == Claim::Won).count(), 1);
    assert!(claims.iter().all(|claim| match claim {
        Claim::Won => true,
        Claim::Running(left) => *left <= LONG,
        _ => false,
    }));
}

/// A outlives its lease and B takes over: then A can neither answer nor free it, and C waits.
pub async fn ac_071_a_late_owner_changes_nothing<S: IdempotencyStore>(store: S) {
    let (a, b, c) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let request = request("alice", "POST /payment", "1");
    assert_eq!(claim(&store, &request, a, SHORT).await, Claim::Won);
    await_claim(&store, &request, b, LONG).await;
    assert!(!store.release(&request, a).await.unwrap());
    assert!(!finish(&store, &request, a, 201).await);
    assert!(matches!(claim(&store, &request, c, LONG).await, Claim::Running(_)));
    assert!(finish(&store, &request, b, 202).await);
    assert!(!finish(&store, &request, b, 203).await, "an answer is given once");
    assert!(!store.release(&request, b).await.unwrap(), "an answer cannot be freed");
    assert_eq!(claim(&store, &request, c, LONG).await, Claim::Done(answer(202)));
}

/// Callers, scopes and keys of any shape stay apart; long ones too.
pub async fn ac_068_names_do_not_cross<S: IdempotencyStore>(store: S) {
    let long = "x".repeat(20_000);
    let parts = ["", "a", "b", "a\u{1f}b", "a:b", "a/b", "a b", "'; DROP TABLE outbox", "\u{1f511}", &long];
    let mut names = Vec::new();
    for caller in parts {
        for scope in parts {
            for key in parts {
                names.push(request(caller, scope, key));
            }
        }
    }
    for name in &names {
        assert_eq!(
            claim(&store, name, Uuid::now_v7(), LONG).await,
            Claim::Won,
            "{:.30} {:.30} {:.30}",
            name.caller,
            name.scope,
            name.key
        );
    }
}

/// Another request first, then an answer, then a claim that lives.
pub async fn a_claim_checks_in_order<S: IdempotencyStore>(store: S) {
    let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
    let request = request("alice", "POST /payment", "1");
    let other = [8; 32];
    assert_eq!(claim(&store, &request, a, SHORT).await, Claim::Won);
    assert_eq!(store.claim(&request, &other, b, LONG).await.unwrap(), Claim::Mismatch);
    assert!(store.release(&request, a).await.unwrap());
    assert!(!store.release(&request, a).await.unwrap());

    // freed, it is free for another request
    assert_eq!(store.claim(&request, &other, b, LONG).await.unwrap(), Claim::Won);
    assert_eq!(claim(&store, &request, a, LONG).await, Claim::Mismatch);
    assert!(finish(&store, &request, b, 202).await);
    assert_eq!(claim(&store, &request, a, LONG).await, Claim::Mismatch);
    assert_eq!(store.claim(&request, &other, a, LONG).await.unwrap(), Claim::Done(answer(202)));

    // an answer that was rolled back is none
    let request = RequestKey { key: "2".into(), ..request };
    assert_eq!(claim(&store, &request, a, LONG).await, Claim::Won);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(store.finish(&mut tx, &request, a, &answer(202)).await.unwrap());
    tx.rollback().await.unwrap();
    assert!(matches!(claim(&store, &request, b, LONG).await, Claim::Running(_)));
}

/// And claims that came to nothing are forgotten, too; a few at a time.
pub async fn answers_are_kept_as_long_as_asked<S: IdempotencyStore>(store: S) {
    let (owner, next) = (Uuid::now_v7(), Uuid::now_v7());
    for n in 0..5 {
        let request = request("alice", "POST /payment", &n.to_string());
        assert_eq!(claim(&store, &request, owner, if n == 4 { Duration::ZERO } else { LONG }).await, Claim::Won);
        if n < 3 {
            assert!(finish(&store, &request, owner, 202).await);
        }
    }
    assert_eq!(store.forget(LONG, 100).await.unwrap(), 0);
    let deadline = Instant::now() + PATIENCE;
    let mut gone = 0;
    while gone < 4 {
        let now = store.forget(Duration::ZERO, 2).await.unwrap();
        assert!(now <= 2 && Instant::now() < deadline);
        gone += now;
        tokio::task::yield_now().await;
    }
    assert_eq!(store.forget(Duration::ZERO, 100).await.unwrap(), 0);
    let running = request("alice", "POST /payment", "3");
    assert!(matches!(claim(&store, &running, next, LONG).await, Claim::Running(_)), "what runs is not forgotten");
    assert_eq!(claim(&store, &request("alice", "POST /payment", "0"), next, LONG).await, Claim::Won);
}
