//! Deadlines, and what comes in the same instant.
use crate::{common::*, on_each_store, shop::*};
use malote::{
    Event, Runtime,
    saga::{Saga, Status, What, step},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

on_each_store!(
    ac_053_every_history_is_a_path_whatever_races,
    ac_057_of_a_deadline_and_an_answer_one_wins,
    ac_058_an_answer_takes_back_its_own_timer_only,
    ac_059_a_deadline_that_is_past_when_it_is_set_fires_once,
);

/// Deadlines that expire just when the answers come, with the coordinator in three processes.
async fn races<S: TestStore>(orders: usize) -> Option<()> {
    let place = Place::<S>::fresh().await?;
    let patience = |ms| Patience { reserve: Duration::from_millis(ms), ..Patience::default() };
    // what an answer takes here, roughly: then half of the deadlines come before it
    let sagas = place.sagas([purchase(1, patience(1)), purchase(2, patience(60))]);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(start(Runtime::new().with(place.coordinator(&sagas))).await);
    }
    let participants = start(place.participants()).await;
    let mut ids = Vec::new();
    for _ in 0..orders {
        ids.push(place.buy(&sagas).await);
    }
    let (mut completed, mut compensated) = (0, 0);
    for id in &ids {
        let saga = until(&sagas, *id, |saga| saga.status.is_final() || saga.status == Status::Stuck).await;
        let log = place.order.saga_log(*id).await.unwrap();
        let told: Vec<What> = log.iter().map(|row| row.entry.what).collect();
        assert!(log.iter().zip(1..).all(|(row, n)| row.entry.n == n), "{told:?}");
        let ends = told.iter().filter(|what| matches!(what, What::Completed | What::Compensated));
        assert_eq!(ends.count(), 1, "{told:?}");
        match saga.status {
            Status::Completed => {
                completed += 1;
                assert_eq!((place.shop.times(Charge::TYPE, *id), place.shop.times(Release::TYPE, *id)), (1, 0));
            }
            Status::Compensated => {
                compensated += 1;
                assert_eq!((place.shop.times(Charge::TYPE, *id), place.shop.times(Release::TYPE, *id)), (0, 1));
            }
            other => panic!("{other:?}: {told:?}"),
        }
        assert!(place.shop.times(Reserve::TYPE, *id) <= 1);
    }
    println!("{completed} completed, {compensated} compensated");
    for node in nodes {
        node.stop().await;
    }
    participants.stop().await;
    Some(())
}

async fn ac_057_of_a_deadline_and_an_answer_one_wins<S: TestStore>() {
    races::<S>(60).await;
}

async fn ac_053_every_history_is_a_path_whatever_races<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let (running, sagas) = place.open(Patience::default()).await;
    // people act in the instant in which the saga ends: each is told the truth, and nothing is overwritten
    for _ in 0..20 {
        let id = place.buy(&sagas).await;
        let act = malote::inspect::Act { actor: "ana".into(), reason: "a race".into() };
        let acts = futures::future::join_all((0..4).map(|n| {
            let deed = if n % 2 == 0 { malote::saga::Deed::Compensate } else { malote::saga::Deed::Abandon };
            let (sagas, act) = (sagas.clone(), act.clone());
            async move { sagas.act(&act, id, &deed).await.unwrap() }
        }))
        .await;
        let saga = until(&sagas, id, |saga| saga.status.is_final()).await;
        let log = place.order.saga_log(id).await.unwrap();
        assert!(log.iter().zip(1..).all(|(row, n)| row.entry.n == n), "{log:#?}");
        let abandoned = log.iter().filter(|row| row.entry.what == What::Abandoned).count();
        assert!(abandoned <= 1, "{log:#?}");
        assert_eq!(saga.status == Status::Abandoned, abandoned == 1, "{log:#?}");
        assert!(acts.iter().filter(|outcome| !outcome.denied).count() >= 1);
    }
    running.stop().await;
}

async fn ac_058_an_answer_takes_back_its_own_timer_only<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    // three at the same time: one answers, two are silent, each with a deadline of its own
    let soon = Duration::from_millis(700);
    let part = |name, within| {
        step(name, |o: &Order| Reserve::from(o.id)).within(within).compensate(|o: &Order| Release::from(o.id))
    };
    let three = Saga::named("purchase", 1).parallel(|all| {
        all.step(step("answers", |o: &Order| Charge::from(o.id)).within(LONG).nothing_to_undo())
            .step(part("is silent", soon))
            .step(part("is silent for longer", LONG))
    });
    let silent = Arc::new(Semaphore::new(0));
    place.shop.will(Reserve::TYPE, How::Held(silent.clone()));
    let sagas = place.sagas([three]);
    let running = start(place.participants().with(place.coordinator(&sagas))).await;
    let id = place.buy(&sagas).await;
    let saga = until(&sagas, id, |saga| saga.legs.iter().any(|leg| leg.state.as_str() == "done")).await;
    assert_eq!((saga.legs.len(), step_of(&saga, "answers")), (3, "done"));
    // the answer took back the first timer; the second one fires, and turns the saga back
    until(&sagas, id, |saga| saga.status == Status::Compensating).await;
    let log = place.order.saga_log(id).await.unwrap();
    let late: Vec<&str> = log
        .iter()
        .filter(|row| row.entry.what == What::Silent)
        .filter_map(|row| Some(&*row.entry.leg.as_ref()?.step))
        .collect();
    assert_eq!(late, ["is silent"]);
    silent.add_permits(10);
    ended(&sagas, id, Status::Compensated).await;
    place.order.until_count("select count(*) from malote.scheduled", 0).await;
    running.stop().await;
}

async fn ac_059_a_deadline_that_is_past_when_it_is_set_fires_once<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let patience = Patience { reserve: Duration::from_nanos(1), ..Patience::default() };
    let sagas = place.sagas([purchase(1, patience)]);
    let coordinator = start(Runtime::new().with(place.coordinator(&sagas))).await;
    let id = place.buy(&sagas).await;
    until(&sagas, id, |saga| saga.status == Status::Compensating).await;
    coordinator.stop().await;
    // and again after a restart: nothing is left that could fire
    let running = start(place.participants().with(place.coordinator(&sagas))).await;
    ended(&sagas, id, Status::Compensated).await;
    place.order.until_count("select count(*) from malote.scheduled", 0).await;
    let log = place.order.saga_log(id).await.unwrap();
    let silent = log.iter().filter(|row| row.entry.what == What::Silent).count();
    assert_eq!(silent, 1, "{log:#?}");
    running.stop().await;
}
