//! The saga of an order without servers: it keeps the laws of all sagas, and tells its own stories.
#![allow(missing_docs)]

use malote::saga::{Deed, Outline, Saga, Status};
use malote_testkit::saga::{Answers, Scenario, given, laws};
use orders::{
    contracts::*,
    saga::{Purchase, Waits, place_order},
};
use std::time::Duration;
use uuid::Uuid;

const ORDER: Uuid = Uuid::from_u128(0x0a);

fn purchase() -> Purchase {
    let lines = vec![Line { sku: "book".into(), quantity: 1 }];
    Purchase::new(ORDER, lines, 1500, "tok_ok".into(), "Rua das Flores 1, Porto".into())
}

fn why() -> String {
    "the test says so".into()
}

/// What the services say.
fn answers() -> Answers {
    Answers::new()
        .always::<CreateOrder>(|c| OrderCreated { order: c.order })
        .always::<CancelOrder>(|c| OrderCancelled { order: c.order })
        .always::<ConfirmOrder>(|c| OrderConfirmed { order: c.order })
        .always::<CorrectOrder>(|c| OrderCorrected { order: c.order })
        .to::<ReserveStock>(
            |c| StockReserved { order: c.order, version: 1 },
            |c| StockRefused { order: c.order, why: why() },
        )
        .to::<KeepStock>(|c| StockKept { order: c.order }, |c| KeepRefused { order: c.order, why: why() })
        .always::<ReleaseStock>(|c| StockReleased { order: c.order })
        .to::<AuthorisePayment>(
            |c| PaymentAuthorised { order: c.order, authorisation: "a".into(), version: 1 },
            |c| PaymentDeclined { order: c.order, why: why() },
        )
        .to::<VoidAuthorisation>(
            |c| AuthorisationVoided { order: c.order },
            |c| VoidRefused { order: c.order, why: why() },
        )
        .to::<CapturePayment>(
            |c| PaymentCaptured { order: c.order, amount: 1500 },
            |c| CaptureRefused { order: c.order, why: why() },
        )
        .to::<RefundPayment>(
            |c| PaymentRefunded { order: c.order, fee: 30 },
            |c| RefundRefused { order: c.order, why: why() },
        )
        .to::<RequestShipment>(
            |c| ShipmentRequested { order: c.order, shipment: c.order },
            |c| ShipmentRefused { order: c.order, why: why() },
        )
        .to::<CancelShipment>(
            |c| ShipmentCancelled { order: c.order },
            |c| AlreadyDispatched { order: c.order, why: why() },
        )
        .to::<RequestReturn>(|c| ReturnRequested { order: c.order }, |c| ReturnRefused { order: c.order, why: why() })
}

/// An order for which stock is reserved.
fn reserved(saga: &Saga<Purchase>) -> Scenario<'_, Purchase> {
    let mut story = given(saga, purchase());
    story
        .then_asks::<CreateOrder>()
        .when::<CreateOrder>(Ok(OrderCreated { order: ORDER }))
        .then_asks_that::<ReserveStock>(|c| c.lines[0].sku == "book")
        .when::<ReserveStock>(Ok(StockReserved { order: ORDER, version: 1 }))
        .then_asks_that::<AuthorisePayment>(|c| c.amount == 1500 && c.card == "tok_ok")
        .then(Status::Running);
    story
}

/// An order that is paid, confirmed and on its way.
fn confirmed(saga: &Saga<Purchase>) -> Scenario<'_, Purchase> {
    let mut story = reserved(saga);
    story
        .when::<AuthorisePayment>(Ok(PaymentAuthorised { order: ORDER, authorisation: "a".into(), version: 1 }))
        .then_asks_that::<KeepStock>(|c| c.version == 1)
        .when::<KeepStock>(Ok(StockKept { order: ORDER }))
        .then_asks_that::<CapturePayment>(|c| c.version == 1 && c.authorisation == "a")
        .when::<CapturePayment>(Ok(PaymentCaptured { order: ORDER, amount: 1500 }))
        .then_asks::<ConfirmOrder>()
        .when::<ConfirmOrder>(Ok(OrderConfirmed { order: ORDER }))
        .then_asks::<RequestShipment>()
        .when::<RequestShipment>(Ok(ShipmentRequested { order: ORDER, shipment: ORDER }))
        .then(Status::Completed);
    story
}

#[test]
fn an_order_keeps_the_laws_of_all_sagas() {
    laws(&place_order(Waits::default()), [purchase()], &answers());
}

#[test]
fn a_good_order_is_confirmed_and_delivered() {
    confirmed(&place_order(Waits::default()));
}

#[test]
fn a_declined_card_rejects_the_order_and_frees_the_stock() {
    reserved(&place_order(Waits::default()))
        .when::<AuthorisePayment>(Err(PaymentDeclined { order: ORDER, why: "the card was declined".into() }))
        .then_asks::<ReleaseStock>()
        .then(Status::Compensating)
        .when::<ReleaseStock>(Ok(StockReleased { order: ORDER }))
        .then_asks_that::<CancelOrder>(|c| (c.ending, c.reason) == (Ending::Rejected, Reason::Declined))
        .when::<CancelOrder>(Ok(OrderCancelled { order: ORDER }))
        .then(Status::Compensated);
}

#[test]
fn without_stock_the_order_is_cancelled_and_nobody_pays() {
    let saga = place_order(Waits::default());
    given(&saga, purchase())
        .when::<CreateOrder>(Ok(OrderCreated { order: ORDER }))
        .when::<ReserveStock>(Err(StockRefused { order: ORDER, why: "1 wanted, 0 there".into() }))
        .then_asks::<CreateOrder>()
        .then_asks::<ReserveStock>()
        .then_asks_that::<CancelOrder>(|c| (c.ending, c.reason) == (Ending::Cancelled, Reason::OutOfStock))
        .when::<CancelOrder>(Ok(OrderCancelled { order: ORDER }))
        .then(Status::Compensated);
}

#[test]
fn a_silent_authorisation_is_asked_for_again_by_its_key_and_then_voided() {
    let waits = Waits { asks: 2, ..Waits::default() };
    let saga = place_order(waits);
    let mut story = reserved(&saga);
    let first = story.operation::<AuthorisePayment>(None);
    story.when_the_next_timer_fires().then_step("authorise payment", "resting");
    story.when_the_next_timer_fires().then_asks::<AuthorisePayment>();
    assert_eq!(story.operation::<AuthorisePayment>(None), first, "the same intention");
    story
        .when_time_passes(waits.payment)
        .then_step("authorise payment", "undoing")
        .then_asks::<VoidAuthorisation>()
        // a late yes changes nothing: it is being voided
        .when_answer::<AuthorisePayment>(
            first,
            Ok(PaymentAuthorised { order: ORDER, authorisation: "a".into(), version: 1 }),
        )
        .then(Status::Compensating)
        .when::<VoidAuthorisation>(Ok(AuthorisationVoided { order: ORDER }))
        .then_asks::<ReleaseStock>()
        .when::<ReleaseStock>(Ok(StockReleased { order: ORDER }))
        .then_asks_that::<CancelOrder>(|c| c.reason == Reason::NotFinished)
        .when::<CancelOrder>(Ok(OrderCancelled { order: ORDER }))
        .then(Status::Compensated);
}

#[test]
fn stock_that_has_expired_meanwhile_costs_nobody_money() {
    reserved(&place_order(Waits::default()))
        .when::<AuthorisePayment>(Ok(PaymentAuthorised { order: ORDER, authorisation: "a".into(), version: 1 }))
        .then_asks::<KeepStock>()
        .when::<KeepStock>(Err(KeepRefused { order: ORDER, why: "the reservation is EXPIRED".into() }))
        .then_asks::<VoidAuthorisation>()
        .when::<VoidAuthorisation>(Ok(AuthorisationVoided { order: ORDER }))
        .then_asks::<ReleaseStock>()
        .when::<ReleaseStock>(Ok(StockReleased { order: ORDER }))
        .then_asks_that::<CancelOrder>(|c| c.ending == Ending::Cancelled)
        .when::<CancelOrder>(Ok(OrderCancelled { order: ORDER }))
        .then(Status::Compensated);
}

#[test]
fn a_silent_capture_is_never_undone_and_a_late_answer_counts() {
    let waits = Waits { asks: 2, ..Waits::default() };
    let saga = place_order(waits);
    let mut story = reserved(&saga);
    story
        .when::<AuthorisePayment>(Ok(PaymentAuthorised { order: ORDER, authorisation: "a".into(), version: 1 }))
        .when::<KeepStock>(Ok(StockKept { order: ORDER }))
        .then_asks::<KeepStock>()
        .then_asks::<CapturePayment>()
        .when_time_passes(Duration::from_secs(3600))
        .then_asks::<CapturePayment>()
        .then_step("capture payment", "unknown")
        .then(Status::Stuck)
        .when::<CapturePayment>(Ok(PaymentCaptured { order: ORDER, amount: 1500 }))
        .then_asks::<ConfirmOrder>()
        .then(Status::Running);
}

#[test]
fn a_refund_that_fails_for_good_is_stuck_at_that_step_until_a_person_mends_it() {
    let saga = place_order(Waits { asks: 2, ..Waits::default() });
    let mut story = confirmed(&saga);
    let refused = || RefundRefused { order: ORDER, why: "the card's bank takes no refunds".into() };
    story
        .when_person(Deed::Compensate)
        .then_asks::<CancelShipment>()
        .when::<CancelShipment>(Err(AlreadyDispatched { order: ORDER, why: "it is on its way".into() }))
        .when_the_next_timer_fires()
        .then_asks::<RequestReturn>()
        .when::<RequestReturn>(Ok(ReturnRequested { order: ORDER }))
        .then_asks::<CorrectOrder>()
        .when::<CorrectOrder>(Ok(OrderCorrected { order: ORDER }))
        .then_asks::<RefundPayment>()
        .when::<RefundPayment>(Err(refused()))
        .when_the_next_timer_fires()
        .then_asks::<RefundPayment>()
        .when::<RefundPayment>(Err(refused()))
        .then_step("capture payment", "undo failed")
        // what can be put right is put right
        .then_asks::<VoidAuthorisation>()
        .when::<VoidAuthorisation>(Ok(AuthorisationVoided { order: ORDER }))
        .then_asks::<ReleaseStock>()
        .when::<ReleaseStock>(Ok(StockReleased { order: ORDER }))
        .then_asks::<CancelOrder>()
        .when::<CancelOrder>(Ok(OrderCancelled { order: ORDER }))
        .then(Status::Stuck);
    let open: Vec<_> = story.instance().open().map(|leg| leg.id.to_string()).collect();
    assert_eq!(open, ["capture payment"]);
    // the money went back by another way: whoever saw to that says so
    story.when_person(Deed::Skip { step: "capture payment".into(), answer: None }).then(Status::Compensated);
}

#[test]
fn the_bank_that_takes_refunds_again_is_asked_again() {
    let saga = place_order(Waits { asks: 1, ..Waits::default() });
    let mut story = confirmed(&saga);
    story
        .when_person(Deed::Compensate)
        .when::<CancelShipment>(Ok(ShipmentCancelled { order: ORDER }))
        .when::<CorrectOrder>(Ok(OrderCorrected { order: ORDER }))
        .when::<RefundPayment>(Err(RefundRefused { order: ORDER, why: why() }))
        .when::<VoidAuthorisation>(Ok(AuthorisationVoided { order: ORDER }))
        .when::<ReleaseStock>(Ok(StockReleased { order: ORDER }))
        .when::<CancelOrder>(Ok(OrderCancelled { order: ORDER }))
        .then_step("capture payment", "undo failed");
    let first = story.operation::<RefundPayment>(None);
    story.when_person(Deed::Retry { step: Some("capture payment".into()) });
    assert_ne!(story.operation::<RefundPayment>(None), first, "a new intention: the first one was answered");
    story.when::<RefundPayment>(Ok(PaymentRefunded { order: ORDER, fee: 30 }));
    assert_eq!(story.instance().status, Status::Compensated);
}

#[test]
fn a_customer_may_turn_back_before_the_money_is_taken() {
    reserved(&place_order(Waits::default()))
        .when_person(Deed::Compensate)
        .then_asks::<VoidAuthorisation>()
        .when::<VoidAuthorisation>(Ok(AuthorisationVoided { order: ORDER }))
        .then_asks::<ReleaseStock>()
        .when::<ReleaseStock>(Ok(StockReleased { order: ORDER }))
        .then_asks::<CancelOrder>()
        .when::<CancelOrder>(Ok(OrderCancelled { order: ORDER }))
        .then(Status::Compensated);
}

/// Instances end under the version that began them: what they would not survive needs a new version.
/// `place-order.v1.json` is written once for a version and then left as it is.
#[test]
fn instances_under_way_survive_what_the_definition_is_now() {
    let kept: Outline = serde_json::from_str(include_str!("../place-order.v1.json")).expect("an outline");
    let now = place_order(Waits::default()).outline();
    assert_eq!(kept.differences(&now), Vec::<String>::new());
    assert_eq!((kept.saga, kept.version), (now.saga, now.version));
}
