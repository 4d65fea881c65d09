//! What the services say to each other: the events, which are public contracts.
//!
//! Each event is named with its version, travels on the topic of that name, and is keyed by the
//! payment's id, so what is said about one payment arrives in order. Amounts are whole minor units
//! (cents) from 1 to at most `i64::MAX`, written as JSON integers; the edge keeps them below 10^15
//! unless it is told otherwise, so that readers whose numbers are doubles see them exactly.

use chrono::{DateTime, Utc};
use malote::Event;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};
use uuid::Uuid;

/// Declares an event about a payment: the members that all of them have, and its own.
macro_rules! payment_event {
    ($(#[$meta:meta])* $name:ident = $type:literal { $($(#[$field_meta:meta])* $field:ident: $of:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            /// The payment.
            pub id: Uuid,
            /// Whole minor units.
            pub amount: i64,
            /// The account that pays.
            pub from: String,
            /// The account that is paid.
            pub to: String,
            $($(#[$field_meta])* pub $field: $of,)*
        }

        impl Event for $name {
            const TYPE: &'static str = $type;
            fn key(&self) -> String {
                self.id.to_string()
            }
        }
    };
}

payment_event! {
    /// Somebody asked for a payment, and it was written down.
    PaymentReceived = "payment.received.v1" {
        /// When.
        received_at: DateTime<Utc>,
    }
}
impl PaymentReceived {
    /// The event that asks for a review of this payment.
    pub fn overdue(&self) -> PaymentOverdue {
        let Self { id, amount, from, to, .. } = self.clone();
        PaymentOverdue { id, amount, from, to }
    }
}
payment_event! {
    /// The payment may be made, as far as fraud is concerned.
    PaymentApproved = "payment.approved.v1" {}
}
payment_event! {
    /// The payment looks like fraud; no money was moved.
    PaymentRejected = "payment.rejected.v1" {
        /// Why.
        reason: Reason,
    }
}
payment_event! {
    /// The money was moved.
    PaymentSettled = "payment.settled.v1" {}
}
payment_event! {
    /// The money could not be moved; none was.
    PaymentFailed = "payment.failed.v1" {
        /// Why.
        reason: Reason,
    }
}

payment_event! {
    /// The payment should have had an outcome by now; said by the payment service to itself.
    PaymentOverdue = "payment.overdue.v1" {}
}

/// Why a payment came to nothing: a code for programs. Readers must expect codes they do not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reason(Cow<'static, str>);

impl Reason {
    /// Fraud: the score of the payment is too bad.
    pub const RISK: Self = Self::code("RISK");
    /// Fraud: the amount is above the limit of one payment.
    pub const OVER_LIMIT: Self = Self::code("OVER_LIMIT");
    /// Fraud: too many payments from the account within a minute.
    pub const VELOCITY: Self = Self::code("VELOCITY");
    /// Ledger: both sides are one account.
    pub const SAME_ACCOUNT: Self = Self::code("SAME_ACCOUNT");
    /// Ledger: there is no such account.
    pub const UNKNOWN_ACCOUNT: Self = Self::code("UNKNOWN_ACCOUNT");
    /// Ledger: the account that pays has not enough.
    pub const INSUFFICIENT_FUNDS: Self = Self::code("INSUFFICIENT_FUNDS");
    /// Ledger: the account that is paid would hold more than an account may.
    pub const BALANCE_TOO_LARGE: Self = Self::code("BALANCE_TOO_LARGE");
    /// Ledger: the amount is not positive.
    pub const INVALID_AMOUNT: Self = Self::code("INVALID_AMOUNT");

    const fn code(code: &'static str) -> Self {
        Self(Cow::Borrowed(code))
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Reason {
    fn from(code: String) -> Self {
        Self(Cow::Owned(code))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a payment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// On its way.
    Created,
    /// Without an outcome by its deadline: people look at it. A late outcome still counts.
    #[serde(rename = "UNDER_REVIEW")]
    UnderReview,
    /// The money was moved.
    Settled,
    /// Fraud said no.
    Rejected,
    /// The ledger said no.
    Failed,
}

impl Status {
    /// As it is written in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::UnderReview => "UNDER_REVIEW",
            Self::Settled => "SETTLED",
            Self::Rejected => "REJECTED",
            Self::Failed => "FAILED",
        }
    }
}
