//! What people may do to a saga, and what is written down of it.
use crate::{common::*, on_each_store, shop::*};
use malote::{
    Event, Runtime,
    inspect::Act,
    saga::{Deed, DeedOutcome, Status},
};
use uuid::Uuid;

on_each_store!(
    a_person_has_a_failed_compensation_tried_again,
    a_person_takes_a_step_as_done,
    a_person_has_a_saga_undone_or_gives_it_up,
    what_cannot_be_done_is_denied_with_the_reason,
    an_act_waits_for_a_process_that_can_do_it,
    acts_that_wait_for_another_process_keep_no_act_waiting,
);

fn act() -> Act {
    Act { actor: "ana".into(), reason: "the door is open again".into() }
}

/// Asks as the command line does, and waits for what comes of it.
async fn ask<S: TestStore>(store: &S, saga: Uuid, deed: &Deed) -> DeedOutcome {
    let id = store.ask_deed(&act(), saga, deed).await.unwrap();
    let end = std::time::Instant::now() + LONG;
    loop {
        if let Some(outcome) = store.deed_outcome(id).await.unwrap() {
            return outcome;
        }
        assert!(std::time::Instant::now() < end, "nobody dealt with it");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await; // between two looks
    }
}

async fn stuck<S: TestStore>(place: &Place<S>) -> (Running, malote::saga::Sagas<S>, Uuid) {
    place.shop.will(Charge::TYPE, How::No);
    for _ in 0..3 {
        place.shop.will(Release::TYPE, How::No);
    }
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    ended(&sagas, id, Status::Stuck).await;
    (running, sagas, id)
}

async fn a_person_has_a_failed_compensation_tried_again<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let (running, sagas, id) = stuck(&place).await;
    let outcome = ask(&place.order, id, &Deed::Retry { step: Some("reserve stock".into()) }).await;
    assert!(!outcome.denied, "{outcome:?}");
    ended(&sagas, id, Status::Compensated).await;
    let audit = place.order.audit(10).await.unwrap();
    assert_eq!((&*audit[0].act, &*audit[0].actor, &*audit[0].reason), ("saga retry", "ana", "the door is open again"));
    assert!(audit[0].target.contains(&id.to_string()) && audit[0].target.contains("reserve stock"), "{audit:?}");
    let log = place.order.saga_log(id).await.unwrap();
    assert!(log.iter().any(|row| row.entry.actor.as_deref() == Some("ana")), "{log:#?}");
    running.stop().await;
}

async fn a_person_takes_a_step_as_done<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let (running, sagas, id) = stuck(&place).await;
    let outcome = ask(&place.order, id, &Deed::Skip { step: "reserve stock".into(), answer: None }).await;
    assert!(!outcome.denied && outcome.says.contains("compensated"), "{outcome:?}");
    ended(&sagas, id, Status::Compensated).await;
    running.stop().await;
}

async fn a_person_has_a_saga_undone_or_gives_it_up<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let sagas = place.sagas([purchase(1, Patience::default())]);
    let coordinator = start(Runtime::new().with(place.coordinator(&sagas))).await;
    // nobody answers
    let (one, other) = (place.buy(&sagas).await, place.buy(&sagas).await);
    assert!(!ask(&place.order, one, &Deed::Compensate).await.denied);
    assert!(!ask(&place.order, other, &Deed::Abandon).await.denied);
    ended(&sagas, other, Status::Abandoned).await;
    let participants = start(place.participants()).await;
    ended(&sagas, one, Status::Compensated).await;
    coordinator.stop().await;
    participants.stop().await;
}

async fn what_cannot_be_done_is_denied_with_the_reason<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let (running, sagas) = place.open(Patience::default()).await;
    let id = place.buy(&sagas).await;
    let before = ended(&sagas, id, Status::Completed).await;
    for (deed, says) in [
        (Deed::Retry { step: None }, "ended"),
        (Deed::Compensate, "nothing says how to undo"),
        (Deed::Abandon, "ended"),
    ] {
        let outcome = ask(&place.order, id, &deed).await;
        assert!(outcome.denied && outcome.says.contains(says), "{deed:?}: {outcome:?}");
    }
    assert_eq!(sagas.read::<Order>(id).await.unwrap().unwrap(), before, "nothing has changed");
    let audit = place.order.audit(10).await.unwrap();
    assert_eq!(audit.iter().filter(|row| row.act.starts_with("saga ")).count(), 3, "{audit:?}");
    // without an actor, without a reason, without a saga: refused before it is written down
    let nobody = Act { actor: " ".into(), reason: "why".into() };
    let no_reason = Act { actor: "ana".into(), reason: String::new() };
    assert!(place.order.ask_deed(&nobody, id, &Deed::Abandon).await.is_err());
    assert!(place.order.ask_deed(&no_reason, id, &Deed::Abandon).await.is_err());
    assert!(place.order.ask_deed(&act(), Uuid::now_v7(), &Deed::Abandon).await.is_err());
    running.stop().await;
}

async fn an_act_waits_for_a_process_that_can_do_it<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let sagas = place.sagas([purchase(1, Patience::default())]);
    let id = place.buy(&sagas).await;
    // no process is at work, and the act is there for the one that comes
    let number = place.order.ask_deed(&act(), id, &Deed::Abandon).await.unwrap();
    assert_eq!(place.order.deed_outcome(number).await.unwrap(), None);
    assert_eq!(place.order.status().await.unwrap().open_acts, 1);
    let other = place.sagas([purchase(2, Patience::default())]);
    let lacking = Runtime::new().with(place.coordinator(&other));
    let health = lacking.health();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(lacking.run_until(stopped));
    eventually("it looks", || format!("{:?}", health.parts()).contains("version 1")).await;
    assert_eq!(place.order.deed_outcome(number).await.unwrap(), None, "left to one that has code for it");
    drop(stop);
    task.await.unwrap().unwrap();
    let running = start(Runtime::new().with(place.coordinator(&sagas))).await;
    ended(&sagas, id, Status::Abandoned).await;
    assert!(!place.order.deed_outcome(number).await.unwrap().unwrap().denied);
    assert_eq!(place.shop.times(Charge::TYPE, id), 0);
    running.stop().await;
}

async fn acts_that_wait_for_another_process_keep_no_act_waiting<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    // the next release has begun one; more acts on it than one look takes
    let newer = place.buy(&place.sagas([purchase(2, Patience::default())])).await;
    for _ in 0..300 {
        place.order.ask_deed(&act(), newer, &Deed::Retry { step: None }).await.unwrap();
    }
    let sagas = place.sagas([purchase(1, Patience::default())]);
    let running = start(Runtime::new().with(place.coordinator(&sagas))).await;
    let own = place.buy(&sagas).await;
    assert!(!ask(&place.order, own, &Deed::Abandon).await.denied);
    assert_eq!(place.order.status().await.unwrap().open_acts, 300, "and those still wait");
    running.stop().await;
}
