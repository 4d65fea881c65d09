//! The purchase keeps the laws of all sagas, and tells its own stories.
#![allow(missing_docs)]

mod purchase;

use malote_core::saga::{Deed, Direction, Status};
use malote_testkit::saga::{given, laws};
use purchase::*;
use std::time::Duration;

fn order() -> String {
    "o1".into()
}

#[test]
fn the_purchase_keeps_the_laws_of_all_sagas() {
    laws(&buy(), [purchase(), gift()], &answers());
}

#[test]
fn a_good_purchase_is_confirmed_and_what_is_not_a_gift_is_not_wrapped() {
    let saga = buy();
    given(&saga, purchase())
        .then_asks::<CreateOrder>()
        .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
        .then_asks_that::<ReserveStock>(|c| c.warehouse == "porto" && c.quantity == 1)
        .then_step("wrap gift", "left out")
        .when::<ReserveStock>(Ok(StockReserved { order: order(), reservation: "r".into() }))
        .then_asks::<AuthorisePayment>()
        .when::<AuthorisePayment>(Ok(PaymentAuthorised { order: order(), authorisation: "a".into() }))
        .then_asks_that::<CapturePayment>(|c| c.authorisation.as_deref() == Some("a"))
        .when::<CapturePayment>(Ok(PaymentCaptured { order: order(), cents: 1_500 }))
        .then_asks::<ConfirmOrder>()
        .when::<ConfirmOrder>(Ok(OrderConfirmed { order: order() }))
        .then_asks::<RequestShipment>()
        .when::<RequestShipment>(Ok(ShipmentRequested { order: order(), shipment: "s".into() }))
        .then(Status::Completed);
}

#[test]
fn when_one_warehouse_refuses_the_other_gives_back_though_it_has_not_answered() {
    let saga = buy();
    given(&saga, gift())
        .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
        .then_asks::<CreateOrder>()
        .then_asks::<WrapGift>()
        .then_asks_that::<ReserveStock>(|c| c.warehouse == "braga")
        .then_asks_that::<ReserveStock>(|c| c.warehouse == "porto")
        .when_part::<ReserveStock>("porto", Err(StockRefused { order: order(), why: "none left".into() }))
        .then_asks_that::<ReleaseStock>(|c| c.warehouse == "braga")
        .then(Status::Compensating)
        .when_part::<ReserveStock>("braga", Ok(StockReserved { order: order(), reservation: "late".into() }))
        .then(Status::Compensating)
        .when::<ReleaseStock>(Ok(StockReleased { order: order() }))
        .then_asks::<CancelOrder>()
        .when::<CancelOrder>(Ok(OrderCancelled { order: order() }))
        .then(Status::Compensated);
}

/// A purchase that is confirmed and under way.
macro_rules! confirmed {
    ($saga:expr) => {{
        let mut story = given($saga, purchase());
        story
            .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
            .when::<ReserveStock>(Ok(StockReserved { order: order(), reservation: "r".into() }))
            .when::<AuthorisePayment>(Ok(PaymentAuthorised { order: order(), authorisation: "a".into() }))
            .when::<CapturePayment>(Ok(PaymentCaptured { order: order(), cents: 1_500 }))
            .when::<ConfirmOrder>(Ok(OrderConfirmed { order: order() }))
            .when::<RequestShipment>(Ok(ShipmentRequested { order: order(), shipment: "s".into() }))
            .then_asks::<CreateOrder>()
            .then_asks::<ReserveStock>()
            .then_asks::<AuthorisePayment>()
            .then_asks::<CapturePayment>()
            .then_asks::<ConfirmOrder>()
            .then_asks::<RequestShipment>()
            .then(Status::Completed);
        story
    }};
}

#[test]
fn a_person_may_have_a_confirmed_purchase_undone_and_a_sent_parcel_comes_back() {
    let saga = buy();
    confirmed!(&saga)
        .when_person(Deed::Compensate)
        .then_asks::<CancelShipment>()
        .when::<CancelShipment>(Err(AlreadyDispatched { order: order(), why: "on its way".into() }))
        .then(Status::Compensating)
        .when_time_passes(Duration::from_secs(1))
        .then_asks::<RequestReturn>()
        .when::<RequestReturn>(Ok(ReturnRequested { order: order() }))
        .then_asks::<CorrectOrder>()
        .when::<CorrectOrder>(Ok(OrderCorrected { order: order() }))
        .then_asks_that::<RefundPayment>(|c| c.cents == 1_500)
        .when::<RefundPayment>(Ok(PaymentRefunded { order: order(), fee_cents: 30 }))
        .then_asks::<VoidAuthorisation>()
        .when::<VoidAuthorisation>(Ok(AuthorisationVoided { order: order() }))
        .then_asks::<ReleaseStock>()
        .when::<ReleaseStock>(Ok(StockReleased { order: order() }))
        .then_asks::<CancelOrder>()
        .when::<CancelOrder>(Ok(OrderCancelled { order: order() }))
        .then(Status::Compensated);
}

#[test]
fn a_person_may_retry_skip_compensate_and_abandon_where_that_makes_sense() {
    let saga = buy();
    let mut story = given(&saga, purchase());
    story
        .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
        .when_person(Deed::Skip { step: "authorise payment".into(), answer: None })
        .then_denied("neither waits nor stands still")
        .when_person(Deed::Skip { step: "reserve stock#porto".into(), answer: None })
        .then_denied("stock.reserved.v1")
        .when_person(Deed::Skip { step: "reserve stock#porto".into(), answer: Some("{}".into()) })
        .then_denied("missing field")
        .when_person(Deed::Skip {
            step: "reserve stock#porto".into(),
            answer: Some(json(&StockReserved { order: order(), reservation: "by hand".into() })),
        })
        .then_step("reserve stock#porto", "skipped");
    assert_eq!(story.instance().state.reservations["porto"], "by hand");
    story.when_person(Deed::TurnBack).then_step("authorise payment", "undoing");
    assert!(story.asked(Direction::Undo) > 0);
    story.when_person(Deed::Compensate).then_denied("being undone already");
    story.when_person(Deed::Abandon);
    assert_eq!(story.instance().status, Status::Abandoned);
    assert_eq!(story.timers(), []);
    story.when_person(Deed::Retry { step: None }).then_denied("it is abandoned");
}

#[test]
fn whoever_calls_it_off_does_so_up_to_the_pivot_only() {
    let saga = buy();
    let mut story = given(&saga, purchase());
    story
        .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
        .when::<ReserveStock>(Ok(StockReserved { order: order(), reservation: "r".into() }))
        .when::<AuthorisePayment>(Ok(PaymentAuthorised { order: order(), authorisation: "a".into() }))
        .then_step("capture payment", "asked")
        .when_person(Deed::TurnBack)
        .then_denied("past the pivot")
        .when::<CapturePayment>(Ok(PaymentCaptured { order: order(), cents: 1_500 }))
        .when_person(Deed::TurnBack)
        .then_denied("past the pivot");
    assert_eq!(story.asked(Direction::Undo), 0);
    confirmed!(&saga).when_person(Deed::TurnBack).then_denied("it is completed");
}
