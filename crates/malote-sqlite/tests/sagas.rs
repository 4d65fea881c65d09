//! Sagas in a file that holds many of them.
#![allow(missing_docs)]

mod common;

use common::{by_hand, store};
use malote_core::{
    inspect::Inspect,
    saga::{SagaFilter, SagaStore, Status},
};

/// What has ended is kept for months, and nobody waits for its number: looking must not cost more each day.
#[tokio::test]
async fn what_has_ended_is_counted_no_further_than_said() {
    let (_folder, store) = store().await;
    by_hand(
        &store,
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10050)
         INSERT INTO malote_saga (id, definition, version, status, heading, on_request, state, legs, entries, revision,
                                  steps, started_at, changed_at, ended_at)
         SELECT printf('01977c1f-0000-7000-8000-%012x', n), 'buy', 1, iif(n <= 10020, 'completed', 'running'), 'do', 0,
                '{}', '[]', 1, 1, '[]', n, n, iif(n <= 10020, n, NULL) FROM n",
    )
    .await;
    let counts = store.status().await.unwrap().sagas;
    assert_eq!(
        counts.iter().map(|of| (of.status, of.count)).collect::<Vec<_>>(),
        [(Status::Running, 30), (Status::Completed, 10_000)]
    );
    assert!(counts[0].oldest_seconds < counts[1].oldest_seconds, "the first of all is the oldest");
    assert_eq!(store.sagas_under_way().await.unwrap(), [("buy".to_owned(), 1, 30)]);
    let first = store.sagas(&SagaFilter::default(), 3).await.unwrap();
    assert_eq!(first.iter().map(|row| row.changed_at.timestamp_millis()).collect::<Vec<_>>(), [1, 2, 3]);
}
