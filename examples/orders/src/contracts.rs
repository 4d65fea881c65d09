//! What the services say to each other: commands with their two answers, which are public contracts.
//!
//! Commands of one service share its topic and are keyed by the order, so that an undoing never
//! overtakes what it undoes; answers go to the order service's topic. The type's name with its version
//! stays in the envelope. Amounts are whole minor units (cents).

use malote::{
    Event,
    saga::{Command, Never},
};
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// Commands to the inventory service.
pub const INVENTORY: &str = "inventory.commands.v1";
/// Commands to the billing service.
pub const BILLING: &str = "billing.commands.v1";
/// Commands to the shipping service.
pub const SHIPPING: &str = "shipping.commands.v1";
/// Answers to the order service.
pub const REPLIES: &str = "order.replies.v1";
/// What the order service says to itself within a transaction; never sent.
pub const LOCAL: &str = "order.commands.v1";

/// One line of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What.
    pub sku: String,
    /// How many of it.
    pub quantity: i64,
}

/// Declares messages about an order: the order that all of them name, and members of their own.
macro_rules! messages {
    ($topic:expr; $($(#[$meta:meta])* $name:ident = $type:literal { $($(#[$field_meta:meta])* $field:ident: $of:ty),* $(,)? })+) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            /// The order.
            pub order: Uuid,
            $($(#[$field_meta])* pub $field: $of,)*
        }

        impl Event for $name {
            const TYPE: &'static str = $type;
            fn topic() -> &'static str {
                $topic
            }
            fn key(&self) -> String {
                self.order.to_string()
            }
        }
    )+ };
}

/// Declares refusals: messages that say why.
macro_rules! refusals {
    ($($(#[$meta:meta])* $name:ident = $type:literal)+) => { $(
        messages! { REPLIES; $(#[$meta])* $name = $type {
            /// Why, for people.
            why: String,
        } }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.why)
            }
        }
    )+ };
}

/// Says which answers a command has.
macro_rules! answered {
    ($($command:ident => $done:ident | $refused:ident),+ $(,)?) => { $(
        impl Command for $command {
            type Done = $done;
            type Refused = $refused;
        }
    )+ };
}

messages! { LOCAL;
    /// Write the order down as pending.
    CreateOrder = "order.create.v1" {
        /// What is ordered, each item once.
        lines: Vec<Line>,
        /// What it costs, in whole minor units.
        amount: i64,
    }
    /// Mark it cancelled, or rejected.
    CancelOrder = "order.cancel.v1" {
        /// Which of the two.
        ending: Ending,
        /// Why.
        reason: Reason,
    }
    /// Mark it confirmed.
    ConfirmOrder = "order.confirm.v1" {}
    /// It was confirmed, and the customer was told so; say that this is over.
    CorrectOrder = "order.correct.v1" {}
}

messages! { INVENTORY;
    /// Set aside what is ordered, for a while.
    ReserveStock = "stock.reserve.v1" {
        /// What is ordered, each item once.
        lines: Vec<Line>,
    }
    /// What is set aside no longer expires: the order is about to be paid.
    KeepStock = "stock.keep.v1" {
        /// The version at which the reservation was made.
        version: i64,
    }
    /// Give back what was set aside, kept or not.
    ReleaseStock = "stock.release.v1" {}
    /// Said by the inventory service to itself, later: what is still only set aside expires.
    ExpireReservation = "stock.expire.v1" {
        /// The version at which the reservation was made.
        version: i64,
    }
}

messages! { "order.notice.v1";
    /// Something to tell the customer; said by the order service to itself.
    Notice = "order.notice.v1" {
        /// What it is about.
        about: About,
    }
}

messages! { BILLING;
    /// Have the provider hold the amount on the card.
    AuthorisePayment = "payment.authorise.v1" {
        /// Whole minor units.
        amount: i64,
        /// The provider's token for the card.
        card: String,
    }
    /// Have it let go again.
    VoidAuthorisation = "payment.void.v1" {}
    /// Take the money.
    CapturePayment = "payment.capture.v1" {
        /// Whole minor units.
        amount: i64,
        /// The provider's name for what it holds.
        authorisation: String,
        /// The version at which the payment was authorised.
        version: i64,
    }
    /// Give it back: an act of its own, which takes time and may cost a fee.
    RefundPayment = "payment.refund.v1" {}
}

messages! { SHIPPING;
    /// Have it delivered.
    RequestShipment = "shipment.request.v1" {
        /// What.
        lines: Vec<Line>,
        /// Where to.
        address: String,
    }
    /// Do not, while it is still here.
    CancelShipment = "shipment.cancel.v1" {}
    /// Have it sent back.
    RequestReturn = "shipment.return.v1" {}
}

messages! { REPLIES;
    /// The order is written down.
    OrderCreated = "order.created.v1" {}
    /// It has come to nothing.
    OrderCancelled = "order.cancelled.v1" {}
    /// It is confirmed.
    OrderConfirmed = "order.confirmed.v1" {}
    /// The customer was told that it is over.
    OrderCorrected = "order.corrected.v1" {}
    /// It is set aside.
    StockReserved = "stock.reserved.v1" {
        /// The reservation's version now.
        version: i64,
    }
    /// It is kept.
    StockKept = "stock.kept.v1" {}
    /// Nothing is set aside for the order.
    StockReleased = "stock.released.v1" {}
    /// The provider holds the amount.
    PaymentAuthorised = "payment.authorised.v1" {
        /// The provider's name for that.
        authorisation: String,
        /// The payment's version now.
        version: i64,
    }
    /// Nothing is held for the order.
    AuthorisationVoided = "payment.voided.v1" {}
    /// The money was taken.
    PaymentCaptured = "payment.captured.v1" {
        /// Whole minor units.
        amount: i64,
    }
    /// It was given back, or had not been taken.
    PaymentRefunded = "payment.refunded.v1" {
        /// What that cost, in whole minor units.
        fee: i64,
    }
    /// It will be delivered.
    ShipmentRequested = "shipment.requested.v1" {
        /// The carrier's name for it.
        shipment: Uuid,
    }
    /// It will not be.
    ShipmentCancelled = "shipment.cancelled.v1" {}
    /// It is to come back.
    ReturnRequested = "shipment.return-requested.v1" {}
}

refusals! {
    /// There is not enough, or no such item.
    StockRefused = "stock.refused.v1"
    /// It is not set aside any more.
    KeepRefused = "stock.keep-refused.v1"
    /// The provider declined.
    PaymentDeclined = "payment.declined.v1"
    /// It cannot be let go: it was taken.
    VoidRefused = "payment.void-refused.v1"
    /// It cannot be taken.
    CaptureRefused = "payment.capture-refused.v1"
    /// It cannot be given back.
    RefundRefused = "payment.refund-refused.v1"
    /// It cannot be delivered.
    ShipmentRefused = "shipment.refused.v1"
    /// It is on its way already.
    AlreadyDispatched = "shipment.already-dispatched.v1"
    /// It cannot be had back.
    ReturnRefused = "shipment.return-refused.v1"
}

answered! {
    CreateOrder => OrderCreated | Never,
    CancelOrder => OrderCancelled | Never,
    ConfirmOrder => OrderConfirmed | Never,
    CorrectOrder => OrderCorrected | Never,
    ReserveStock => StockReserved | StockRefused,
    KeepStock => StockKept | KeepRefused,
    ReleaseStock => StockReleased | Never,
    AuthorisePayment => PaymentAuthorised | PaymentDeclined,
    VoidAuthorisation => AuthorisationVoided | VoidRefused,
    CapturePayment => PaymentCaptured | CaptureRefused,
    RefundPayment => PaymentRefunded | RefundRefused,
    RequestShipment => ShipmentRequested | ShipmentRefused,
    CancelShipment => ShipmentCancelled | AlreadyDispatched,
    RequestReturn => ReturnRequested | ReturnRefused,
}

/// How an order came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Ending {
    /// The payment was refused.
    Rejected,
    /// Anything else.
    Cancelled,
}

impl Ending {
    /// As it is written in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "REJECTED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// Why an order came to nothing: a code for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// There is not enough of an item.
    OutOfStock,
    /// The card was declined.
    Declined,
    /// The payment could not be taken in the end.
    NotCaptured,
    /// A service did not answer in time, or a person turned the order back.
    NotFinished,
    /// The customer asked for it.
    Customer,
}

impl Reason {
    /// As it is written in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfStock => "OUT_OF_STOCK",
            Self::Declined => "DECLINED",
            Self::NotCaptured => "NOT_CAPTURED",
            Self::NotFinished => "NOT_FINISHED",
            Self::Customer => "CUSTOMER",
        }
    }
}

/// What a customer is told. What was told is never taken back: another notice follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum About {
    /// The order is confirmed.
    Confirmed,
    /// The payment was refused.
    Rejected,
    /// The order has come to nothing.
    Cancelled,
    /// It was confirmed, and is not any more.
    Correction,
}

impl About {
    /// As it is written in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "CONFIRMED",
            Self::Rejected => "REJECTED",
            Self::Cancelled => "CANCELLED",
            Self::Correction => "CORRECTION",
        }
    }
}
