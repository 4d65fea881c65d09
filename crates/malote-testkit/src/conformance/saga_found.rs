//! Sagas are found and counted, and their definitions are known, by whoever has no code for them.

use super::{
    saga::{LONG, bring, insert, instance, leg},
    store::PATIENCE,
};
use malote_core::{
    EventType, FullStore,
    saga::{
        CommandType, Direction, LegId, Outline, SagaCount, SagaFilter, SagaRow, Status, StepKind, StepOutline,
        StepState, Stored,
    },
};
use std::time::Duration;
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

/// Two versions of one definition, and another one whose name begins like it.
async fn several<S: FullStore>(store: &S) -> Vec<Stored> {
    let refused = || StepState::Refused { reason: "no".into() };
    let with = |mut saga: Stored, legs| {
        saga.legs = legs;
        saga
    };
    let stuck = Stored { reason: Some("nobody answers".into()), ..instance("buy", 2, Status::Stuck) };
    let back = Stored { heading: Direction::Undo, ..instance("buy", 2, Status::Compensating) };
    let all = vec![
        with(instance("buy", 1, Status::Running), vec![leg("order", StepState::Done), leg("pay", StepState::Asked)]),
        with(instance("buy", 1, Status::Completed), vec![leg("pay", StepState::Asked)]),
        with(stuck, vec![leg("pay", refused()), leg("order", StepState::Done)]),
        with(back, vec![leg("pay", refused()), leg("reserve#porto", StepState::Undoing)]),
        instance("buy ahead", 1, Status::Abandoned),
        with(instance("buy ahead", 1, Status::Running), vec![leg("reserve#faro", StepState::Resting)]),
        instance("buy", 2, Status::Compensated),
    ];
    for saga in &all {
        assert!(insert(store, saga).await);
    }
    all
}

/// By all that a filter can say, the longest unchanged first.
pub async fn sagas_are_found<S: FullStore>(store: S) {
    let all = several(&store).await;
    bring(&store, all[0].id, Status::Running).await;
    let order = [1, 2, 3, 4, 5, 6, 0];
    let find = async |filter: SagaFilter, most: u32| -> Vec<usize> {
        let rows = store.sagas(&filter, most).await.unwrap();
        assert!(rows.is_sorted_by_key(|row| row.changed_at), "the longest unchanged first");
        let mut found: Vec<usize> =
            rows.iter().map(|row| all.iter().position(|saga| saga.id == row.id).unwrap()).collect();
        found.sort_by_key(|at| order.iter().position(|place| place == at));
        found
    };
    let any = SagaFilter::default;
    assert_eq!(find(any(), 100).await, order);
    assert_eq!(find(any(), 0).await, [] as [usize; 0]);
    assert_eq!(find(any(), 1).await.len(), 1);
    assert_eq!(find(SagaFilter { definition: Some("buy".into()), ..any() }, 100).await, [1, 2, 3, 6, 0]);
    assert_eq!(find(SagaFilter { version: Some(1), ..any() }, 100).await, [1, 4, 5, 0]);
    let stuck = SagaFilter { statuses: vec![Status::Stuck, Status::Completed, Status::Stuck], ..any() };
    assert_eq!(find(stuck, 100).await, [1, 2]);
    assert_eq!(find(SagaFilter { older_than: Some(Duration::ZERO), ..any() }, 100).await, order);
    assert_eq!(find(SagaFilter { older_than: Some(LONG), ..any() }, 100).await, [] as [usize; 0]);
    for (step, found) in [("pay", vec![2, 0]), ("reserve", vec![3, 5]), ("reserve#faro", vec![5]), ("res", vec![])] {
        assert_eq!(find(SagaFilter { step: Some(step.into()), ..any() }, 100).await, found, "{step}");
    }

    let row = store.sagas(&SagaFilter { statuses: vec![Status::Stuck], ..any() }, 1).await.unwrap().remove(0);
    let (id, definition) = (all[2].id, "buy".to_owned());
    let steps = vec![LegId::of("pay")];
    let (started_at, changed_at) = (row.started_at, row.changed_at);
    let reason = Some("nobody answers".to_owned());
    assert_eq!(
        row,
        SagaRow { id, definition, version: 2, status: Status::Stuck, reason, steps, started_at, changed_at }
    );
    assert_eq!(started_at, changed_at);
    let moved = store.sagas(&SagaFilter { statuses: vec![Status::Running], ..any() }, 9).await.unwrap();
    assert!(moved.iter().all(|row| row.changed_at == row.started_at || row.id == all[0].id), "{moved:?}");
    let mut ids: Vec<Uuid> = all.iter().map(|saga| saga.id).collect();
    ids.sort();
    assert_eq!(store.saga_ids(Uuid::nil(), Uuid::max(), 100).await.unwrap(), ids);
    assert_eq!(store.saga_ids(ids[1], ids[3], 2).await.unwrap(), ids[1..3]);
    assert!(store.saga_ids(ids[3], ids[1], 9).await.unwrap().is_empty());
    assert_eq!(store.saga(Uuid::now_v7()).await.unwrap(), None);
    assert_eq!(store.saga_log(Uuid::now_v7()).await.unwrap(), []);
}

/// By definition, version and status; what is under way without what has ended.
pub async fn sagas_are_counted<S: FullStore>(store: S) {
    assert_eq!(store.sagas_under_way().await.unwrap(), []);
    let all = several(&store).await;
    insert(&store, &instance("buy", 1, Status::Running)).await;
    let counts = store.status().await.unwrap().sagas;
    assert!(counts.iter().all(|of| of.oldest_seconds >= 0.0 && of.oldest_seconds < PATIENCE.as_secs_f64()));
    let plain = |of: &SagaCount| (of.definition.clone(), of.version, of.status, of.count);
    let expected = [
        ("buy", 1, Status::Running, 2),
        ("buy", 1, Status::Completed, 1),
        ("buy", 2, Status::Compensating, 1),
        ("buy", 2, Status::Compensated, 1),
        ("buy", 2, Status::Stuck, 1),
        ("buy ahead", 1, Status::Running, 1),
        ("buy ahead", 1, Status::Abandoned, 1),
    ];
    let expected = expected.map(|(name, version, status, count)| (name.to_owned(), version, status, count));
    assert_eq!(counts.iter().map(plain).collect::<Vec<_>>(), expected);
    let under_way = |n| vec![("buy".to_owned(), 1, n), ("buy".to_owned(), 2, 2), ("buy ahead".to_owned(), 1, 1)];
    assert_eq!(store.sagas_under_way().await.unwrap(), under_way(2));
    bring(&store, all[0].id, Status::Compensated).await;
    assert_eq!(store.sagas_under_way().await.unwrap(), under_way(1));
}

fn outline(saga: &str, version: u32, step: &str) -> Outline {
    let event = |name: &str| EventType { name: name.into(), topic: name.into() };
    let asks = CommandType { command: event("pay.v1"), done: event("paid.v1"), refused: Some(event("unpaid.v1")) };
    let step = StepOutline {
        stage: 0,
        name: step.into(),
        kind: StepKind::Pivot,
        per_part: true,
        conditional: false,
        asks,
        deadline_ms: Some(1000),
        attempts: 3,
        undone_by: Vec::new(),
        nothing_to_undo: version == 2,
    };
    Outline { saga: saga.into(), version, steps: vec![step] }
}

/// By name and version, as the process said that spoke last; several may speak at once, in any order.
pub async fn definitions_are_known<S: FullStore>(store: S) {
    assert_eq!(store.saga_definitions().await.unwrap(), []);
    store.define_sagas(&[]).await.unwrap();
    let first = [outline("buy", 2, "pay \u{1f511}"), outline("buy", 1, "pay"), outline("alone", 10, "pay")];
    store.define_sagas(&first).await.unwrap();
    let seen = store.status().await.unwrap().saga_versions;
    assert!(seen.iter().all(|of| of.seen_seconds >= 0.0 && of.seen_seconds < PATIENCE.as_secs_f64()), "{seen:?}");
    let seen: Vec<_> = seen.iter().map(|of| (of.definition.as_str(), of.version)).collect();
    assert_eq!(seen, [("alone", 10), ("buy", 1), ("buy", 2)]);
    let sorted = |[b, a, alone]: [Outline; 3]| vec![alone, a, b];
    assert_eq!(store.saga_definitions().await.unwrap(), sorted(first.clone()));
    let later = first.map(|of| outline(&of.saga, of.version, "settle"));
    let mut all = JoinSet::new();
    for n in 0..8 {
        let (store, mut mine) = (store.clone(), later.clone());
        if n % 2 == 0 {
            mine.reverse();
        }
        all.spawn(async move { store.define_sagas(&mine).await.unwrap() });
    }
    timeout(PATIENCE, all.join_all()).await.expect("nobody waits for ever");
    assert_eq!(store.saga_definitions().await.unwrap(), sorted(later));
}
