//! Sagas in a database that holds many of them, and in one that others use, too.
#![allow(missing_docs)]

mod common;

use common::{PATIENCE, open, sealer};
use malote_core::{
    inspect::Inspect,
    saga::{Direction, LegId, OperationId, Recalled, SagaFilter, SagaStore, Status},
};
use tokio::time::timeout;
use uuid::Uuid;

/// What has ended is kept for months, and nobody waits for its number: looking must not cost more each day.
#[tokio::test]
async fn what_has_ended_is_counted_no_further_than_said() {
    let Some(store) = open().await else { return };
    sqlx::query(
        "INSERT INTO malote.saga (id, definition, version, status, heading, on_request, state, legs, entries, revision, \
                                  steps, changed_at, ended_at) \
         SELECT gen_random_uuid(), 'buy', 1, CASE WHEN n <= 10020 THEN 'completed' ELSE 'running' END, 'do', false, \
                '{}', '[]', 1, 1, '[]', 'epoch'::timestamptz + n * interval '1 s', \
                CASE WHEN n <= 10020 THEN malote.clock() END FROM generate_series(1, 10050) AS n",
    )
    .execute(store.pool())
    .await
    .unwrap();
    let counts = store.status().await.unwrap().sagas;
    assert_eq!(
        counts.iter().map(|of| (of.status, of.count)).collect::<Vec<_>>(),
        [(Status::Running, 30), (Status::Completed, 10_000)]
    );
    assert!(counts[0].oldest_seconds < counts[1].oldest_seconds, "the first of all is the oldest");
    assert_eq!(store.sagas_under_way().await.unwrap(), [("buy".to_owned(), 1, 30)]);
    let first = store.sagas(&SagaFilter::default(), 3).await.unwrap();
    assert_eq!(first.iter().map(|row| row.changed_at.timestamp()).collect::<Vec<_>>(), [1, 2, 3]);
}

/// One transaction is about one operation; who is about another, or another consumer's, waits for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_about_something_else_waits_for_nobody() {
    let Some(store) = open().await else { return };
    let operation = |n: u128| OperationId {
        saga: Uuid::from_u128(n),
        leg: LegId::of("reserve"),
        direction: Direction::Do,
        attempt: 1,
    };
    let mut first = store.begin(sealer()).await.unwrap();
    assert_eq!(store.recall(&mut first, "stock", &operation(1)).await.unwrap(), Recalled::Unknown);
    let others = async {
        let mut second = store.begin(sealer()).await.unwrap();
        store.recall(&mut second, "stock", &operation(2)).await.unwrap();
        store.call_off(&mut second, "warehouse", &operation(1)).await.unwrap();
        second.commit().await.unwrap();
        store.saga(Uuid::from_u128(1)).await.unwrap()
    };
    assert_eq!(timeout(PATIENCE, others).await.expect("nobody waits"), None);
    assert_eq!(store.recall(&mut first, "stock", &operation(1)).await.unwrap(), Recalled::Unknown);
    first.commit().await.unwrap();
}

/// Whoever looks at a saga that is being changed sees it as it was, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_at_a_saga_waits_for_nobody() {
    let Some(store) = open().await else { return };
    sqlx::query(
        "INSERT INTO malote.saga (id, definition, version, status, heading, on_request, state, legs, entries, revision, steps) \
         VALUES ('00000000-0000-0000-0000-000000000001', 'buy', 1, 'running', 'do', false, '{}', '[]', 1, 1, '[]')",
    )
    .execute(store.pool())
    .await
    .unwrap();
    let id = Uuid::from_u128(1);
    let mut changing = store.begin(sealer()).await.unwrap();
    store.load_saga(&mut changing, id).await.unwrap();
    let look = async {
        let act = malote_core::inspect::Act { actor: "ana".into(), reason: "because".into() };
        store.ask_deed(&act, id, &malote_core::saga::Deed::Compensate).await.unwrap();
        (
            store.saga(id).await.unwrap().map(|saga| saga.revision),
            store.sagas(&SagaFilter::default(), 9).await.unwrap().len(),
        )
    };
    assert_eq!(timeout(PATIENCE, look).await.expect("nobody waits"), (Some(1), 1));
    changing.rollback().await.unwrap();
}
