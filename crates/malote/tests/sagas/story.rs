//! How sagas end.
use crate::{common::*, on_each_store, shop::*};
use malote::{
    Event,
    saga::{Saga, Status, step},
};

on_each_store!(
    a_saga_is_carried_out_to_its_end,
    a_refusal_undoes_what_came_before,
    ac_054_a_late_success_is_undone_once,
    ac_055_a_compensation_that_fails_stops_no_other_and_the_end_tells_the_truth,
    ac_056_a_second_start_begins_nothing,
    ac_060_a_compensation_that_is_refused_is_tried_again_and_then_shown,
    a_command_that_is_given_up_is_known_at_once,
    a_definition_that_cannot_be_meant_is_refused_at_start,
);

async fn a_saga_is_carried_out_to_its_end<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    let saga = ended(&sagas, id, Status::Completed).await;
    assert!(saga.state.charged);
    for name in ["open order", "reserve stock", "charge card"] {
        assert_eq!(step_of(&saga, name), "done", "{name}");
    }
    // each once; and nothing is left that would fire
    for kind in [Open::TYPE, Reserve::TYPE, Charge::TYPE] {
        assert_eq!(place.shop.times(kind, id), 1, "{kind}");
    }
    place.order.until_count("select count(*) from malote.scheduled", 0).await;
    let log = place.order.saga_log(id).await.unwrap();
    let told: Vec<String> = log
        .iter()
        .map(|row| format!("{} {}", row.entry.what.as_str(), row.entry.leg.as_ref().map_or("", |leg| &leg.step)))
        .collect();
    assert_eq!(
        told,
        [
            "started ",
            "asked open order",
            "done open order",
            "asked reserve stock",
            "done reserve stock",
            "asked charge card",
            "done charge card",
            "completed "
        ]
    );
    assert!(log.iter().zip(1..).all(|(row, n)| row.entry.n == n), "without a gap");
    let sent = log.iter().filter(|row| row.entry.leg.as_ref().is_some_and(|leg| leg.step != "open order"));
    assert!(
        sent.clone().all(|row| row.entry.envelope.is_some()),
        "intents and outcomes name their envelopes: {log:#?}"
    );
    running.stop().await;
}

async fn a_refusal_undoes_what_came_before<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.shop.will(Charge::TYPE, How::No);
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    let saga = ended(&sagas, id, Status::Compensated).await;
    assert_eq!((step_of(&saga, "reserve stock"), step_of(&saga, "open order")), ("undone", "undone"));
    assert!(saga.reason.as_ref().is_some_and(|why| why.contains("no money")), "{:?}", saga.reason);
    let kinds: Vec<&str> = place.shop.ran.all().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [Open::TYPE, Reserve::TYPE, Charge::TYPE, Release::TYPE, Cancel::TYPE]);
    running.stop().await;
}

async fn ac_054_a_late_success_is_undone_once<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    place.shop.will(Reserve::TYPE, How::Held(gate.clone()));
    let patience = Patience { reserve: std::time::Duration::from_millis(50), ..Patience::default() };
    let (running, sagas) = place.open(patience).await;
    let id = place.buy(&sagas).await;
    until(&sagas, id, |saga| saga.status == Status::Compensating).await;
    // now the reservation succeeds, after the saga has turned back
    gate.add_permits(1);
    let saga = ended(&sagas, id, Status::Compensated).await;
    assert_eq!(step_of(&saga, "reserve stock"), "undone");
    let kinds: Vec<&str> = place.shop.ran.all().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [Open::TYPE, Reserve::TYPE, Release::TYPE, Cancel::TYPE]);
    running.stop().await;
}

async fn ac_055_a_compensation_that_fails_stops_no_other_and_the_end_tells_the_truth<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.shop.will(Charge::TYPE, How::No);
    for _ in 0..3 {
        place.shop.will(Release::TYPE, How::No);
    }
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    let saga = ended(&sagas, id, Status::Stuck).await;
    assert_eq!((step_of(&saga, "reserve stock"), step_of(&saga, "open order")), ("undo failed", "undone"));
    let open: Vec<String> = saga.open().map(|leg| leg.id.to_string()).collect();
    assert_eq!(open, ["reserve stock"]);
    running.stop().await;
}

async fn ac_056_a_second_start_begins_nothing<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    // at once, and at the same time
    let at_once = futures::future::join_all((0..4).map(|_| place.begin(&sagas, id))).await;
    assert_eq!(at_once, [false; 4]);
    ended(&sagas, id, Status::Completed).await;
    assert!(!place.begin(&sagas, id).await);
    // and when all but the tombstone is gone
    malote_core::KeptStore::prune(&place.order, malote_core::Prune::Sagas(std::time::Duration::ZERO), 10, false)
        .await
        .unwrap();
    assert_eq!(sagas.find(id).await.unwrap(), None);
    assert!(!place.begin(&sagas, id).await);
    for kind in [Open::TYPE, Reserve::TYPE, Charge::TYPE] {
        assert_eq!(place.shop.times(kind, id), 1, "{kind}");
    }
    // two starts of one id at the same time are one
    let other = uuid::Uuid::now_v7();
    let begun = futures::future::join_all((0..8).map(|_| place.begin(&sagas, other))).await;
    assert_eq!(begun.iter().filter(|new| **new).count(), 1);
    ended(&sagas, other, Status::Completed).await;
    assert_eq!(place.shop.times(Charge::TYPE, other), 1);
    running.stop().await;
}

async fn ac_060_a_compensation_that_is_refused_is_tried_again_and_then_shown<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.shop.will(Charge::TYPE, How::No).will(Release::TYPE, How::No).will(Release::TYPE, How::No);
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    ended(&sagas, id, Status::Compensated).await;
    assert_eq!(place.shop.times(Release::TYPE, id), 3, "refused twice, then done");
    assert_eq!(place.shop.times(Cancel::TYPE, id), 1);
    running.stop().await;
}

async fn a_command_that_is_given_up_is_known_at_once<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    // once together with others, once alone: and then it is given up
    for _ in 0..2 {
        place.shop.will(Reserve::TYPE, How::Final);
    }
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    let saga = ended(&sagas, id, Status::Compensated).await;
    assert!(saga.reason.as_ref().is_some_and(|why| why.contains("given up")), "{:?}", saga.reason);
    assert_eq!(place.stock.count("select count(*) from malote.dead").await, 1);
    running.stop().await;
}

async fn a_definition_that_cannot_be_meant_is_refused_at_start<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let no_undo = Saga::named("bad", 1)
        .step(step("reserve", |o: &Order| Reserve::from(o.id)))
        .step(step("charge", |o: &Order| Charge::from(o.id)).pivot());
    let twice = [purchase(1, Patience::default()), purchase(1, Patience::default())];
    let local = malote::saga::Sagas::new("order", place.order.clone()).define(purchase(1, Patience::default()));
    for (sagas, says) in [
        (place.sagas([no_undo]), "nothing undoes it"),
        (place.sagas(twice), "defined twice"),
        (local, "nothing does it: add .local"),
    ] {
        let runtime = malote::Runtime::new().with(place.coordinator(&sagas));
        let error = runtime.run_until(std::future::pending::<()>()).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
