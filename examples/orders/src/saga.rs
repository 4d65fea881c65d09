//! The saga of an order: what is asked of whom, in which order, and what undoes it.

use crate::contracts::*;
use malote::{
    retry::Policy,
    saga::{Saga, compensation, step},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// Its name.
pub const NAME: &str = "place-order";

/// What the steps know of each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Purchase {
    /// The order; the saga's id, too.
    pub order: Uuid,
    /// What is ordered, each item once.
    pub lines: Vec<Line>,
    /// What it costs, in whole minor units.
    pub amount: i64,
    /// The provider's token for the card.
    pub card: String,
    /// Where it goes.
    pub address: String,
    /// The version at which stock was reserved.
    pub reservation: i64,
    /// The provider's name for what it holds; empty until then.
    pub authorisation: String,
    /// The version at which the payment was authorised.
    pub payment: i64,
    /// Whether the parcel was gone when its delivery was to be cancelled.
    pub dispatched: bool,
    /// How it comes to nothing, as far as a service said so.
    pub ending: Option<(Ending, Reason)>,
}

impl Purchase {
    /// Of an order that was just placed.
    pub fn new(order: Uuid, lines: Vec<Line>, amount: i64, card: String, address: String) -> Self {
        Self {
            order,
            lines,
            amount,
            card,
            address,
            reservation: 0,
            authorisation: String::new(),
            payment: 0,
            dispatched: false,
            ending: None,
        }
    }
}

/// How long services are waited for. These may change without a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// An answer of inventory or shipping.
    pub answer: Duration,
    /// An answer of billing, which has to wait for the provider.
    pub payment: Duration,
    /// How often billing is asked when it is silent.
    pub asks: u32,
}

impl Default for Waits {
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), payment: Duration::from_secs(60), asks: 5 }
    }
}

/// The first version.
pub fn place_order(waits: Waits) -> Saga<Purchase> {
    let Waits { answer, payment, asks } = waits;
    let patient = Policy::default().attempts(asks);
    Saga::named(NAME, 1)
        .step(step("create pending order", create).undone_by(compensation(cancel).local()).local())
        .step(
            step("reserve stock", |o: &Purchase| ReserveStock { order: o.order, lines: o.lines.clone() })
                .done(|o, stock| o.reservation = stock.version)
                .refused(|o, _| o.ending = Some((Ending::Cancelled, Reason::OutOfStock)))
                .compensate(|o| ReleaseStock { order: o.order })
                .within(answer),
        )
        .step(
            step("authorise payment", authorise)
                .done(|o, held| (o.authorisation, o.payment) = (held.authorisation, held.version))
                .refused(|o, _| o.ending = Some((Ending::Rejected, Reason::Declined)))
                .undone_by(
                    compensation(|o: &Purchase| VoidAuthorisation { order: o.order }).within(payment).retry(patient),
                )
                .within(payment)
                .retry(patient), // asked again by its key, so that it is known what became of it
        )
        .step(
            // before the money is taken: what is paid for must not expire
            step("keep stock", |o: &Purchase| KeepStock { order: o.order, version: o.reservation })
                .refused(|o, _| o.ending = Some((Ending::Cancelled, Reason::OutOfStock)))
                .nothing_to_undo() // the release takes back what is kept, too
                .within(answer),
        )
        .step(
            step("capture payment", capture)
                .refused(|o, _| o.ending = Some((Ending::Rejected, Reason::NotCaptured)))
                .pivot()
                .within(payment)
                .retry(patient)
                .undone_by(
                    compensation(|o: &Purchase| RefundPayment { order: o.order })
                        .within(payment)
                        .retry(patient)
                        .on_request(),
                ),
        )
        .step(
            step("confirm order", |o: &Purchase| ConfirmOrder { order: o.order })
                .undone_by(compensation(|o: &Purchase| CorrectOrder { order: o.order }).local().on_request())
                .local(),
        )
        .step(
            step("request delivery", deliver)
                .within(answer)
                .undone_by(
                    compensation(|o: &Purchase| CancelShipment { order: o.order })
                        .refused(|o, _| o.dispatched = true)
                        .when(|o| !o.dispatched)
                        .within(answer)
                        .on_request(),
                )
                .undone_by(compensation(|o: &Purchase| RequestReturn { order: o.order }).within(answer).on_request()),
        )
}

fn create(o: &Purchase) -> CreateOrder {
    CreateOrder { order: o.order, lines: o.lines.clone(), amount: o.amount }
}

fn cancel(o: &Purchase) -> CancelOrder {
    let (ending, reason) = o.ending.unwrap_or((Ending::Cancelled, Reason::NotFinished));
    CancelOrder { order: o.order, ending, reason }
}

fn authorise(o: &Purchase) -> AuthorisePayment {
    AuthorisePayment { order: o.order, amount: o.amount, card: o.card.clone() }
}

fn capture(o: &Purchase) -> CapturePayment {
    CapturePayment { order: o.order, amount: o.amount, authorisation: o.authorisation.clone(), version: o.payment }
}

fn deliver(o: &Purchase) -> RequestShipment {
    RequestShipment { order: o.order, lines: o.lines.clone(), address: o.address.clone() }
}
