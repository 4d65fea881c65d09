//! An operation takes effect once, however often it is asked for, and not at all once it was called off.
use crate::{common::*, on_each_store, shop::*};
use malote::{
    Envelope, Event, Message, Outbox, Runtime, Transaction,
    retry::Policy,
    saga::{Address, Command, Direction, LegId, OperationId, Status},
};
use malote_core::saga::Recalled;
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use uuid::Uuid;

on_each_store!(
    what_is_asked_again_is_answered_again_and_done_once,
    ac_061_a_step_that_comes_after_its_undoing_is_not_done,
    ac_061_a_repeat_does_not_undo_what_a_person_has_done,
    ac_064_every_call_of_one_intent_has_one_key,
);

async fn what_is_asked_again_is_answered_again_and_done_once<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let gate = Arc::new(Semaphore::new(0));
    place.shop.will(Charge::TYPE, How::Held(gate.clone()));
    let charge = Policy::default().attempts(1000).deadline(Duration::from_millis(30));
    let charge = charge.backoff(Duration::from_millis(10), Duration::from_millis(30));
    let (running, sagas) = place.open(Patience { charge, ..Patience::default() }).await;
    let id = place.buy(&sagas).await;
    // asked several times while the first call is under way
    until(&sagas, id, |saga| saga.legs.iter().any(|leg| leg.id.step == "charge card" && leg.doing.asks >= 3)).await;
    gate.add_permits(1);
    ended(&sagas, id, Status::Completed).await;
    // every asking was answered by now, or will be without another call
    place.card.until_count("select count(*) from malote.parked", 0).await;
    assert_eq!(place.shop.times(Charge::TYPE, id), 1);
    assert_eq!(place.card.count("select count(*) from malote.operation").await, 1);
    running.stop().await;
}

fn operation(saga: Uuid, step: &str, direction: Direction) -> OperationId {
    OperationId { saga, leg: LegId::of(step), direction, attempt: 1 }
}

/// A command as a coordinator would send it.
fn command<C: Command, T: Transaction>(
    tx: &mut T,
    command: &C,
    operation: OperationId,
    undoes: Option<OperationId>,
) -> Envelope {
    let address = Address { definition: "elsewhere".into(), version: 1, operation, undoes };
    Envelope { headers: address.headers(), ..tx.sealer().seal(Message::of(command).unwrap()).unwrap() }
}

async fn ac_061_a_step_that_comes_after_its_undoing_is_not_done<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let running = start(place.participants().with(place.coordinator(&place.sagas([])))).await;
    let (id, outbox) = (Uuid::now_v7(), Outbox::new("order", place.order.clone()));
    let (doing, undoing) = (operation(id, "reserve", Direction::Do), operation(id, "reserve", Direction::Undo));
    let mut tx = outbox.begin().await.unwrap();
    let first = command(&mut tx, &Release::from(id), undoing.clone(), Some(doing.clone()));
    let then = command(&mut tx, &Reserve::from(id), doing.clone(), None);
    let other = command(&mut tx, &Reserve::from(id), operation(id, "other", Direction::Do), None);
    tx.append(vec![first, then, other]).await.unwrap();
    tx.commit().await.unwrap();
    let ran = place.shop.ran.until(|ran| ran.len() == 2).await;
    assert_eq!(ran, [(Release::TYPE, id), (Reserve::TYPE, id)], "the second is the other one");
    place.stock.until_count("select count(*) from malote.operation", 3).await;
    let mut tx = Outbox::new("stock", place.stock.clone()).begin().await.unwrap();
    assert_eq!(place.stock.recall(&mut tx, "stock", &doing).await.unwrap(), Recalled::CalledOff);
    assert!(matches!(place.stock.recall(&mut tx, "stock", &undoing).await.unwrap(), Recalled::Answered(_)));
    tx.rollback().await.unwrap();
    running.stop().await;
}

async fn ac_061_a_repeat_does_not_undo_what_a_person_has_done<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let running = start(place.participants()).await;
    let (id, outbox) = (Uuid::now_v7(), Outbox::new("order", place.order.clone()));
    let send = async |wanted: usize| {
        let mut tx = outbox.begin().await.unwrap();
        let one = command(&mut tx, &Reserve::from(id), operation(id, "reserve", Direction::Do), None);
        tx.append(vec![one]).await.unwrap();
        tx.commit().await.unwrap();
        let answers = "select count(*) from malote.outbox where type = 'stock.reserved.v1'";
        place.stock.until_count(answers, wanted.try_into().unwrap()).await;
    };
    // the relay of the one who asks runs here, too
    let asking = start(
        Runtime::new().with(malote::Service::new("order", place.order.clone(), place.log.clone()).emits::<Reserve>()),
    )
    .await;
    send(1).await;
    // a person changes what was done; the coordinator, back from a crash, asks again
    send(2).await;
    assert_eq!(place.shop.times(Reserve::TYPE, id), 1, "answered again, not done again");
    asking.stop().await;
    running.stop().await;
}

async fn ac_064_every_call_of_one_intent_has_one_key<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    // the first process dies with the call under way: cut off, it has recorded nothing
    place.shop.will(Charge::TYPE, How::Held(Arc::new(Semaphore::new(0))));
    let sagas = place.sagas([purchase(1, Patience::default())]);
    let dying = place.participants().with(place.coordinator(&sagas)).grace(Duration::from_millis(1));
    let dying = start(dying).await;
    let id = place.buy(&sagas).await;
    place.shop.calls.until(|calls| calls.len() == 1).await;
    dying.stop().await;
    let running = start(place.participants().with(place.coordinator(&sagas))).await;
    ended(&sagas, id, Status::Completed).await;
    let calls = place.shop.calls.all();
    assert!(calls.len() >= 2, "called again after the death: {calls:?}");
    let key = operation(id, "charge card", Direction::Do).idempotency_key().0;
    assert!(calls.iter().all(|call| *call == key), "{calls:?}, not {key}");
    running.stop().await;
}
