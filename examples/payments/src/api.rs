//! The payment service's HTTP interface, apart from any database: what comes in, what goes out.

use crate::contracts::{PaymentReceived, Status};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use malote::{
    edge::{Body, Problem},
    planted,
};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::json;
use std::fmt;
use uuid::Uuid;

/// The longest name of an account, in characters.
pub const MAX_NAME: usize = 64;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaymentRequest {
    /// Whole minor units.
    pub amount: Amount,
    /// The account that pays.
    pub from: String,
    /// The account that is paid.
    pub to: String,
}

/// A whole number of minor units, as JSON has it: an integer, exact over the whole range of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub i64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount in whole minor units (cents) such as 1500, without fraction, exponent or quotes")
            }
            fn visit_i64<E: de::Error>(self, amount: i64) -> Result<Amount, E> {
                Ok(Amount(amount))
            }
            fn visit_u64<E: de::Error>(self, amount: u64) -> Result<Amount, E> {
                let amount = if planted::is("payment-exact") { amount as f64 as u64 } else { amount };
                i64::try_from(amount)
                    .map(Amount)
                    .map_err(|_| E::custom(format!("the amount {amount} is larger than any that can be paid")))
            }
        }
        deserializer.deserialize_i64(Visitor)
    }
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest amount, in minor units. The default of 10^15 is exact in every language; above
    /// 2^53 a reader whose numbers are doubles loses digits.
    pub amount: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { amount: 1_000_000_000_000_000 }
    }
}

/// A request that may be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked(PaymentRequest);

impl Limits {
    /// Says everything that is wrong with a request at once.
    pub fn check(&self, request: PaymentRequest) -> Result<Checked, Problem> {
        for (field, name) in [("from", &request.from), ("to", &request.to)] {
            if let Some(unseen) = name.chars().find(|c| is_unseen(*c)).filter(|_| !planted::is("payment-name")) {
                let unseen = format!("U+{:04X}", u32::from(unseen));
                let detail =
                    format!("`{field}` holds the control character {unseen}, which nobody can see: leave it out.");
                return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
            }
        }
        let faults: Vec<_> = [
            ("amount", self.amount_fault(request.amount.0)),
            ("from", name_fault(&request.from)),
            ("to", name_fault(&request.to)),
        ]
        .into_iter()
        .filter_map(|(field, fault)| fault.map(|fault| (field, fault)))
        .collect();
        if faults.is_empty() {
            return Ok(Checked(request));
        }
        let said: Vec<_> = faults.iter().map(|(field, fault)| format!("`{field}` {fault}")).collect();
        let errors: Vec<_> = faults.iter().map(|(field, fault)| json!({"field": field, "detail": fault})).collect();
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{}.", said.join("; ")));
        Err(problem.kind("urn:payments:problem:invalid-payment").title("Invalid payment").with("errors", errors))
    }

    fn amount_fault(&self, amount: i64) -> Option<String> {
        let most = self.amount;
        let fine = (1..=most).contains(&amount) || planted::is("payment-amount");
        (!fine).then(|| format!("is {amount}, and must be from 1 to {most} minor units (cents)"))
    }
}

/// What is wrong with an account's name. Names are taken as they come: nothing is cut off or changed.
fn name_fault(name: &str) -> Option<String> {
    let length = name.chars().count();
    if length == 0 {
        Some(format!("is empty, and must be 1 to {MAX_NAME} characters"))
    } else if length > MAX_NAME {
        Some(format!("has {length} characters, and must be 1 to {MAX_NAME}"))
    } else if name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) {
        Some("begins or ends with white space: leave it out".into())
    } else {
        None
    }
}

/// Characters that show nothing of themselves: control characters, and those that change the direction
/// of what is around them, join it, or take no room. With them two names look the same and are not, or
/// a line of a log is not what it seems.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

impl Checked {
    /// The event that says so.
    pub fn received(self, id: Uuid, received_at: DateTime<Utc>) -> PaymentReceived {
        let PaymentRequest { amount, from, to } = self.0;
        PaymentReceived { id, amount: amount.0, from, to, received_at }
    }
}

/// What a client learns of a payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Payment {
    /// The payment.
    pub id: Uuid,
    /// CREATED, SETTLED, REJECTED, FAILED or UNDER_REVIEW.
    pub status: String,
    /// Why it was rejected or failed, as a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whole minor units.
    pub amount: i64,
    /// The account that pays.
    pub from: String,
    /// The account that is paid.
    pub to: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When its status changed last.
    pub changed_at: DateTime<Utc>,
}

/// The answer to a payment that was written down: 202, with where to ask for its end.
pub fn accepted(id: Uuid) -> Response {
    #[derive(Serialize)]
    struct Accepted {
        id: Uuid,
        status: Status,
    }
    let mut answer = (StatusCode::ACCEPTED, Body(Accepted { id, status: Status::Created })).into_response();
    if let Ok(location) = HeaderValue::try_from(format!("/payment/{id}")) {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}

/// The path holds no id.
pub fn malformed_id() -> Problem {
    let detail = "The path must end in a payment's id: a UUID such as 0197a6b0-8c1e-7d5b-9b3f-2a4c6e8f0a1b.";
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// There is no such payment.
pub fn unknown_payment(id: Uuid) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("There is no payment {id}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Result<PaymentRequest, String> {
        serde_json::from_str(body).map_err(|error| error.to_string())
    }

    #[test]
    fn an_amount_is_read_exactly_or_not_at_all() {
        let with = |amount: &str| request(&format!(r#"{{"amount": {amount}, "from": "a", "to": "b"}}"#));
        assert_eq!(with("9007199254740993").map(|r| r.amount.0), Ok(9_007_199_254_740_993));
        assert_eq!(with("9223372036854775807").map(|r| r.amount.0), Ok(i64::MAX));
        assert_eq!(with("-9223372036854775808").map(|r| r.amount.0), Ok(i64::MIN));
        for (amount, said) in [
            ("9223372036854775808", "larger than any that can be paid"),
            ("99999999999999999999", "whole minor units"),
            ("15.00", "whole minor units"),
            ("1e3", "whole minor units"),
            ("-0", "whole minor units"),
            ("\"1500\"", "without fraction, exponent or quotes"),
            ("\"NaN\"", "whole minor units"),
            ("null", "whole minor units"),
            ("[1]", "whole minor units"),
        ] {
            let told = with(amount).expect_err(amount);
            assert!(told.contains(said), "{amount}: {told}");
        }
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let bad = PaymentRequest { amount: Amount(0), from: String::new(), to: "x".repeat(65) };
        let problem = Limits::default().check(bad).expect_err("refused");
        assert_eq!(problem.status(), 422);
        for said in ["`amount` is 0", "`from` is empty", "`to` has 65 characters"] {
            assert!(problem.detail().contains(said), "{}", problem.detail());
        }
    }

    #[test]
    fn limits_hold_on_both_sides() {
        let check = |amount, from: &str| {
            let request = PaymentRequest { amount: Amount(amount), from: from.into(), to: "bob".into() };
            Limits::default().check(request).is_ok()
        };
        assert!(check(1, "alice") && check(1_000_000_000_000_000, "alice"));
        assert!(!check(0, "alice") && !check(-1, "alice") && !check(1_000_000_000_000_001, "alice"));
        assert!(!check(i64::MIN, "alice") && !check(i64::MAX, "alice"));
        assert!(check(1, &"é".repeat(64)) && check(1, "<b>alice</b>") && check(1, "Ana Souza"));
        assert!(!check(1, " alice") && !check(1, "alice\n") && !check(1, "al\u{7f}ice"));
        assert!(check(1, "עליזה") && check(1, "علي") && check(1, "李雷"), "letters of any direction are letters");
    }
}
