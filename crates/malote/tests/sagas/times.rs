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

/// Deadlines that expire just when the answers come, with the coordinator in three processes. When the answers have to
/// be let go for that is found by trying: later after answers in time, sooner after late ones.
async fn ac_057_of_a_deadline_and_an_answer_one_wins<S: TestStore>() {
    const AT_ONCE: usize = 4;
    let Some(place) = Place::<S>::fresh().await else { return };
    let patience = |reserve| Patience { reserve, ..Patience::default() };
    let sagas = place.sagas([purchase(1, Patience::default())]);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(start(Runtime::new().with(place.coordinator(&sagas))).await);
    }
    let participants = start(place.participants()).await;
    let (mut completed, mut compensated) = (0, 0);
    let (mut deadline, mut held) = (Duration::from_millis(300), Duration::from_millis(300));
    let mut change = Duration::from_millis(60);
    for _ in 0..10 {
        let gate = Arc::new(Semaphore::new(0));
        let hurried = place.sagas([purchase(1, patience(deadline))]);
        let mut ids = Vec::new();
        for _ in 0..AT_ONCE {
            place.shop.will(Reserve::TYPE, How::Held(gate.clone()));
            ids.push(place.buy(&hurried).await);
        }
        tokio::time::sleep(held).await;
        gate.add_permits(AT_ONCE);
        let before = completed;
        for id in ids {
            let saga = until(&sagas, id, |saga| saga.status.is_final() || saga.status == Status::Stuck).await;
            let log = place.order.saga_log(id).await.unwrap();
            let told: Vec<What> = log.iter().map(|row| row.entry.what).collect();
            assert!(log.iter().zip(1..).all(|(row, n)| row.entry.n == n), "{told:?}");
            let ends = told.iter().filter(|what| matches!(what, What::Completed | What::Compensated));
            assert_eq!(ends.count(), 1, "{told:?}");
            let (charges, releases) = match saga.status {
                Status::Completed => (1, 0),
                Status::Compensated => (0, 1),
                other => panic!("{other:?}: {log:#?}"),
            };
            (completed, compensated) = (completed + charges, compensated + releases);
            let silent = told.iter().filter(|what| **what == What::Silent);
            assert_eq!(silent.count(), releases, "a deadline counts where no answer came before it: {log:#?}");
            let ran = |kind| place.shop.times(kind, id);
            assert_eq!((ran(Charge::TYPE), ran(Release::TYPE)), (charges, releases));
            assert!(ran(Reserve::TYPE) <= 1);
        }
        match (completed - before) * 2 > AT_ONCE {
            true => held += change,
            // not even an answer at once comes in time here
            false if held.is_zero() => deadline *= 2,
            false => held = held.saturating_sub(change),
        }
        change = change.mul_f64(0.7).max(Duration::from_millis(5));
    }
    println!("{completed} completed, {compensated} compensated");
    assert!(completed > 0 && compensated > 0, "one side always won: {completed} and {compensated}");
    for node in nodes {
        node.stop().await;
    }
    participants.stop().await;
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
        let ended = |what| matches!(what, What::Abandoned | What::Completed | What::Compensated);
        let mut after = log.iter().map(|row| row.entry.what).skip_while(|what| !ended(*what)).skip(1);
        assert!(after.all(|what| what == What::Ignored), "nothing happens after the end: {log:#?}");
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
