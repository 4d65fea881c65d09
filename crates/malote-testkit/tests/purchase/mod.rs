//! The purchase: an order over four services, as a saga.
#![allow(dead_code)]

use malote_core::retry::Policy;
use malote_core::saga::{Command, Never, Saga, compensation, each, step};
use malote_core::{Event, Message};
use malote_testkit::saga::Answers;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Declares messages about an order, each with its type and topic.
macro_rules! messages {
    ($($topic:literal { $($name:ident = $type:literal { $($field:ident: $of:ty),* }),* $(,)? })*) => { $($(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct $name { pub order: String, $(pub $field: $of),* }
        impl Event for $name {
            const TYPE: &'static str = $type;
            fn topic() -> &'static str { $topic }
            fn key(&self) -> String { self.order.clone() }
        }
    )*)* };
}

/// A refusal, with the member that says why.
macro_rules! refusals {
    ($($name:ident),*) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.why) }
        }
    )* };
}

macro_rules! commands {
    ($($command:ident => $done:ident | $refused:ident),* $(,)?) => { $(
        impl Command for $command { type Done = $done; type Refused = $refused; }
    )* };
}

messages! {
    "order.commands.v1" {
        CreateOrder = "order.create.v1" {},
        CancelOrder = "order.cancel.v1" {},
        ConfirmOrder = "order.confirm.v1" {},
        CorrectOrder = "order.correct.v1" {},
    }
    "inventory.commands.v1" {
        ReserveStock = "stock.reserve.v1" { warehouse: String, quantity: u32 },
        ReleaseStock = "stock.release.v1" { warehouse: String },
        WrapGift = "gift.wrap.v1" { card: String },
    }
    "billing.commands.v1" {
        AuthorisePayment = "payment.authorise.v1" { cents: u64, token: String },
        VoidAuthorisation = "payment.void.v1" { authorisation: Option<String> },
        CapturePayment = "payment.capture.v1" { authorisation: Option<String> },
        RefundPayment = "payment.refund.v1" { cents: u64 },
    }
    "shipping.commands.v1" {
        RequestShipment = "shipment.request.v1" { address: String },
        CancelShipment = "shipment.cancel.v1" {},
        RequestReturn = "shipment.return.v1" { shipment: Option<String> },
    }
    "order.replies.v1" {
        OrderCreated = "order.created.v1" {},
        OrderCancelled = "order.cancelled.v1" {},
        OrderConfirmed = "order.confirmed.v1" {},
        OrderCorrected = "order.corrected.v1" {},
        StockReserved = "stock.reserved.v1" { reservation: String },
        StockRefused = "stock.refused.v1" { why: String },
        StockReleased = "stock.released.v1" {},
        ReleaseRefused = "stock.release-refused.v1" { why: String },
        GiftWrapped = "gift.wrapped.v1" {},
        GiftRefused = "gift.refused.v1" { why: String },
        PaymentAuthorised = "payment.authorised.v1" { authorisation: String },
        PaymentDeclined = "payment.declined.v1" { why: String },
        AuthorisationVoided = "payment.voided.v1" {},
        VoidRefused = "payment.void-refused.v1" { why: String },
        PaymentCaptured = "payment.captured.v1" { cents: u64 },
        CaptureRefused = "payment.capture-refused.v1" { why: String },
        PaymentRefunded = "payment.refunded.v1" { fee_cents: u64 },
        RefundRefused = "payment.refund-refused.v1" { why: String },
        ShipmentRequested = "shipment.requested.v1" { shipment: String },
        ShipmentRefused = "shipment.refused.v1" { why: String },
        ShipmentCancelled = "shipment.cancelled.v1" {},
        AlreadyDispatched = "shipment.already-dispatched.v1" { why: String },
        ReturnRequested = "shipment.return-requested.v1" {},
        ReturnRefused = "shipment.return-refused.v1" { why: String },
    }
}

refusals!(
    StockRefused,
    ReleaseRefused,
    GiftRefused,
    PaymentDeclined,
    VoidRefused,
    CaptureRefused,
    RefundRefused,
    ShipmentRefused,
    AlreadyDispatched,
    ReturnRefused
);

commands! {
    CreateOrder => OrderCreated | Never,
    CancelOrder => OrderCancelled | Never,
    ConfirmOrder => OrderConfirmed | Never,
    CorrectOrder => OrderCorrected | Never,
    ReserveStock => StockReserved | StockRefused,
    ReleaseStock => StockReleased | ReleaseRefused,
    WrapGift => GiftWrapped | GiftRefused,
    AuthorisePayment => PaymentAuthorised | PaymentDeclined,
    VoidAuthorisation => AuthorisationVoided | VoidRefused,
    CapturePayment => PaymentCaptured | CaptureRefused,
    RefundPayment => PaymentRefunded | RefundRefused,
    RequestShipment => ShipmentRequested | ShipmentRefused,
    CancelShipment => ShipmentCancelled | AlreadyDispatched,
    RequestReturn => ReturnRequested | ReturnRefused,
}

/// What the steps know of each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Purchase {
    pub order: String,
    pub cents: u64,
    pub card: String,
    pub address: String,
    /// How much comes from where.
    pub from: BTreeMap<String, u32>,
    /// What is written on the gift's card.
    pub gift: Option<String>,
    pub reservations: BTreeMap<String, String>,
    pub authorisation: Option<String>,
    pub captured: u64,
    pub fee: u64,
    pub shipment: Option<String>,
    pub dispatched: bool,
}

/// One warehouse.
pub fn purchase() -> Purchase {
    Purchase {
        order: "o1".into(),
        cents: 1_500,
        card: "tok_ok".into(),
        address: "Rua das Flores 1, Porto".into(),
        from: BTreeMap::from([("porto".into(), 1)]),
        ..Purchase::default()
    }
}

/// Two warehouses, and a gift.
pub fn gift() -> Purchase {
    let from = BTreeMap::from([("braga".into(), 2), ("porto".into(), 1)]);
    Purchase { from, gift: Some("Parabéns".into()), ..purchase() }
}

const SECOND: Duration = Duration::from_secs(1);

/// The saga.
pub fn buy() -> Saga<Purchase> {
    buy_as(1)
}

/// The saga, under a version.
pub fn buy_as(version: u32) -> Saga<Purchase> {
    let id = |p: &Purchase| p.order.clone();
    let few = Policy::default().attempts(3).backoff(SECOND, 10 * SECOND);
    Saga::named("purchase", version)
        .step(
            step("create order", move |p| CreateOrder { order: id(p) })
                .undone_by(compensation(move |p| CancelOrder { order: id(p) }).local())
                .local(),
        )
        .parallel(|both| {
            both.step(
                each(
                    "reserve stock",
                    |p: &Purchase| p.from.keys().cloned().collect(),
                    move |p, warehouse| ReserveStock {
                        order: id(p),
                        warehouse: warehouse.into(),
                        quantity: p.from.get(warehouse).copied().unwrap_or_default(),
                    },
                )
                .done(|p, warehouse, stock| drop(p.reservations.insert(warehouse.into(), stock.reservation)))
                .compensate(move |p, warehouse| ReleaseStock { order: id(p), warehouse: warehouse.into() })
                .within(30 * SECOND),
            )
            .step(
                step("wrap gift", move |p: &Purchase| WrapGift {
                    order: id(p),
                    card: p.gift.clone().unwrap_or_default(),
                })
                .when(|p| p.gift.is_some())
                .nothing_to_undo(),
            )
        })
        .step(
            step("authorise payment", move |p: &Purchase| AuthorisePayment {
                order: id(p),
                cents: p.cents,
                token: p.card.clone(),
            })
            .done(|p, paid| p.authorisation = Some(paid.authorisation))
            .compensate(move |p| VoidAuthorisation { order: id(p), authorisation: p.authorisation.clone() })
            .within(60 * SECOND)
            .retry(few),
        )
        .step(
            step("capture payment", move |p: &Purchase| CapturePayment {
                order: id(p),
                authorisation: p.authorisation.clone(),
            })
            .done(|p, paid| p.captured += paid.cents)
            .pivot()
            .within(60 * SECOND)
            .undone_by(
                compensation(move |p: &Purchase| RefundPayment { order: id(p), cents: p.captured })
                    .done(|p, refund| p.fee += refund.fee_cents)
                    .within(3600 * SECOND)
                    .retry(few)
                    .on_request(),
            ),
        )
        .step(
            step("confirm order", move |p: &Purchase| ConfirmOrder { order: id(p) })
                .undone_by(compensation(move |p| CorrectOrder { order: id(p) }).local().on_request())
                .local(),
        )
        .step(
            step("request delivery", move |p: &Purchase| RequestShipment { order: id(p), address: p.address.clone() })
                .done(|p, sent| p.shipment = Some(sent.shipment))
                .undone_by(
                    compensation(move |p: &Purchase| CancelShipment { order: id(p) })
                        .refused(|p, _| p.dispatched = true)
                        .when(|p| !p.dispatched)
                        .on_request(),
                )
                .undone_by(
                    compensation(move |p: &Purchase| RequestReturn { order: id(p), shipment: p.shipment.clone() })
                        .on_request(),
                ),
        )
}

fn why() -> String {
    "the test says so".into()
}

/// What the services say.
pub fn answers() -> Answers {
    Answers::new()
        .always::<CreateOrder>(|c| OrderCreated { order: c.order })
        .always::<CancelOrder>(|c| OrderCancelled { order: c.order })
        .always::<ConfirmOrder>(|c| OrderConfirmed { order: c.order })
        .always::<CorrectOrder>(|c| OrderCorrected { order: c.order })
        .to::<ReserveStock>(
            |c| StockReserved { reservation: format!("{}/{}", c.order, c.warehouse), order: c.order },
            |c| StockRefused { order: c.order, why: why() },
        )
        .to::<ReleaseStock>(|c| StockReleased { order: c.order }, |c| ReleaseRefused { order: c.order, why: why() })
        .to::<WrapGift>(|c| GiftWrapped { order: c.order }, |c| GiftRefused { order: c.order, why: why() })
        .to::<AuthorisePayment>(
            |c| PaymentAuthorised { authorisation: format!("a-{}", c.order), order: c.order },
            |c| PaymentDeclined { order: c.order, why: why() },
        )
        .to::<VoidAuthorisation>(
            |c| AuthorisationVoided { order: c.order },
            |c| VoidRefused { order: c.order, why: why() },
        )
        .to::<CapturePayment>(
            |c| PaymentCaptured { order: c.order, cents: 1_500 },
            |c| CaptureRefused { order: c.order, why: why() },
        )
        .to::<RefundPayment>(
            |c| PaymentRefunded { order: c.order, fee_cents: 30 },
            |c| RefundRefused { order: c.order, why: why() },
        )
        .to::<RequestShipment>(
            |c| ShipmentRequested { shipment: format!("s-{}", c.order), order: c.order },
            |c| ShipmentRefused { order: c.order, why: why() },
        )
        .to::<CancelShipment>(
            |c| ShipmentCancelled { order: c.order },
            |c| AlreadyDispatched { order: c.order, why: why() },
        )
        .to::<RequestReturn>(|c| ReturnRequested { order: c.order }, |c| ReturnRefused { order: c.order, why: why() })
}

/// A message's payload.
pub fn json(event: &impl Event) -> String {
    String::from_utf8(Message::of(event).unwrap().payload.into()).unwrap()
}
