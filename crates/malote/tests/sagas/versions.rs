//! Two versions of one definition, and processes that have code for one of them only.
use crate::{common::*, on_each_store, shop::*};
use malote::{Event, Runtime, saga::Status};
use std::sync::Arc;
use tokio::sync::Semaphore;

on_each_store!(
    ac_063_an_instance_ends_under_its_own_version,
    ac_063_a_process_without_its_code_leaves_it_alone,
    a_process_says_again_and_again_which_versions_it_has_code_for,
);

async fn ac_063_an_instance_ends_under_its_own_version<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let gate = Arc::new(Semaphore::new(0));
    for _ in 0..10 {
        place.shop.will(Reserve::TYPE, How::Held(gate.clone()));
    }
    let participants = start(place.participants()).await;
    let old = place.sagas([purchase(1, Patience::default())]);
    let first = start(Runtime::new().with(place.coordinator(&old))).await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(place.buy(&old).await);
    }
    // the next release has both, and takes over while all of them are under way
    let both = place.sagas([purchase(1, Patience::default()), purchase(2, Patience::default())]);
    let second = start(Runtime::new().with(place.coordinator(&both))).await;
    first.stop().await;
    let mut newer = Vec::new();
    for _ in 0..10 {
        newer.push(place.buy(&both).await);
    }
    gate.add_permits(10);
    for (id, version) in ids.iter().map(|id| (id, 1)).chain(newer.iter().map(|id| (id, 2))) {
        let saga = ended(&both, *id, Status::Completed).await;
        assert_eq!((saga.version, saga.legs.len()), (version, 2 + version as usize), "{saga:#?}");
        assert_eq!(place.shop.times(Open::TYPE, *id), version as usize);
    }
    second.stop().await;
    participants.stop().await;
}

async fn ac_063_a_process_without_its_code_leaves_it_alone<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let participants = start(place.participants()).await;
    let old = place.sagas([purchase(1, Patience::default())]);
    let id = place.buy(&old).await;
    // this release has taken the old code away too early
    let new = place.sagas([purchase(2, Patience::default())]);
    let runtime = Runtime::new().with(place.coordinator(&new));
    let health = runtime.health();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(runtime.run_until(stopped));
    eventually("it says what it lacks", || format!("{:?}", health.parts()).contains("1 of purchase version 1")).await;
    assert!(!health.is_ready());
    // the answer has come, and waits; what is new goes on
    place.order.until_count("select count(*) from malote.parked", 1).await;
    let other = place.buy(&new).await;
    ended(&new, other, Status::Completed).await;
    assert_eq!(new.find(id).await.unwrap().unwrap().version, 1);
    assert_eq!(place.shop.times(Charge::TYPE, id), 0);
    drop(stop);
    task.await.unwrap().unwrap();
    // a release that has both finishes it
    let both = place.sagas([purchase(1, Patience::default()), purchase(2, Patience::default())]);
    let running = start(Runtime::new().with(place.coordinator(&both))).await;
    ended(&both, id, Status::Completed).await;
    running.stop().await;
    participants.stop().await;
}

async fn a_process_says_again_and_again_which_versions_it_has_code_for<S: TestStore>() {
    if !cfg!(feature = "planted") {
        return; // it says so once a minute
    }
    let Some(place) = Place::<S>::fresh().await else { return };
    let sagas = place.sagas([purchase(1, Patience::default())]);
    let running = start(Runtime::new().with(place.coordinator(&sagas))).await;
    let seen = async || place.order.status().await.unwrap().saga_versions.first().map(|of| of.seen_seconds);
    let end = std::time::Instant::now() + LONG;
    let mut last = None;
    loop {
        let now = seen().await;
        if now.zip(last).is_some_and(|(now, last): (f64, f64)| now < last) {
            break; // it was said anew
        }
        last = now;
        assert!(std::time::Instant::now() < end, "said once, and never again: {last:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await; // between two looks
    }
    running.stop().await;
}
