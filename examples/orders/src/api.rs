//! The order service's HTTP interface, apart from any database: what comes in, what goes out.

use crate::contracts::{About, Line};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use malote::{
    edge::{Body, Problem},
    saga::{Direction, LegId, Outline, Status, Stored},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Most lines of an order.
const MAX_LINES: usize = 50;
/// Most of one item.
const MAX_QUANTITY: i64 = 1_000;
/// The longest address, in characters.
const MAX_ADDRESS: usize = 200;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What.
    pub items: Vec<Item>,
    /// The provider's token for the card.
    pub card: String,
    /// Where to.
    pub address: String,
}

/// A [`Line`] as a client writes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// What.
    pub sku: String,
    /// How many of it.
    pub quantity: i64,
}

/// A request that may be written down, as far as can be said without a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What, each item once.
    pub lines: Vec<Line>,
    /// The provider's token for the card.
    pub card: String,
    /// Where to.
    pub address: String,
}

impl Request {
    /// Says everything that is wrong with a request at once.
    pub fn check(self) -> Result<Checked, Problem> {
        let mut faults: Vec<(String, String)> = Vec::new();
        if !(1..=MAX_LINES).contains(&self.items.len()) {
            faults.push(("items".into(), format!("has {} lines, and must have 1 to {MAX_LINES}", self.items.len())));
        }
        let mut seen = BTreeSet::new();
        for (at, Item { sku, quantity }) in self.items.iter().enumerate() {
            if !(1..=MAX_QUANTITY).contains(quantity) {
                let fault = format!("is {quantity}, and must be from 1 to {MAX_QUANTITY}");
                faults.push((format!("items[{at}].quantity"), fault));
            }
            if !seen.insert(sku) {
                faults.push((format!("items[{at}].sku"), "names an item a second time: add the quantities".into()));
            }
        }
        if !is_token(&self.card) {
            let fault = "must be a token of the payment provider, such as tok_ok, and never a card's number";
            faults.push(("card".into(), fault.into()));
        }
        let length = self.address.chars().count();
        if !(1..=MAX_ADDRESS).contains(&length) || self.address.chars().any(char::is_control) {
            faults.push(("address".into(), format!("must be one line of 1 to {MAX_ADDRESS} characters")));
        }
        match faults.is_empty() {
            true => {
                let lines = self.items.into_iter().map(|Item { sku, quantity }| Line { sku, quantity }).collect();
                Ok(Checked { lines, card: self.card, address: self.address })
            }
            false => Err(invalid(&faults)),
        }
    }
}

fn invalid(faults: &[(String, String)]) -> Problem {
    let said: Vec<_> = faults.iter().map(|(field, fault)| format!("`{field}` {fault}")).collect();
    let errors: Vec<_> = faults.iter().map(|(field, fault)| json!({"field": field, "detail": fault})).collect();
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{}.", said.join("; ")));
    problem.kind("urn:orders:problem:invalid-order").title("Invalid order").with("errors", errors)
}

/// What an order costs by the prices of its lines; what has no price is not sold.
pub fn amount(lines: &[Line], prices: &[Option<i64>]) -> Result<i64, Problem> {
    let priced = || lines.iter().zip(prices);
    let unknown: Vec<_> = priced()
        .enumerate()
        .filter(|(_, (_, price))| price.is_none())
        .map(|(at, _)| (format!("items[{at}].sku"), "is not sold here".to_owned()))
        .collect();
    if !unknown.is_empty() {
        return Err(invalid(&unknown));
    }
    let costs = priced().map(|(line, price)| price.unwrap_or_default().checked_mul(line.quantity));
    let sum = costs.into_iter().try_fold(0_i64, |sum, cost| sum.checked_add(cost?));
    sum.ok_or_else(|| invalid(&[("items".into(), "cost more than can be paid".into())]))
}

/// The answer to an order that was written down: 202, with where to ask for its end.
pub fn accepted(id: Uuid) -> Response {
    let body = json!({"id": id, "outcome": "IN_PROGRESS", "now": "the order is being written down"});
    let mut answer = (StatusCode::ACCEPTED, Body(body)).into_response();
    if let Ok(location) = HeaderValue::try_from(format!("/orders/{id}")) {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}

/// An order's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stands {
    /// The order.
    pub id: Uuid,
    /// PENDING, CONFIRMED, REJECTED, CANCELLED or WITHDRAWN.
    pub status: String,
    /// Why it came to nothing, as a code.
    pub reason: Option<String>,
    /// Whole minor units.
    pub amount: i64,
    /// What was ordered.
    pub items: Vec<Line>,
    /// When.
    pub created_at: DateTime<Utc>,
    /// When its status changed last.
    pub changed_at: DateTime<Utc>,
}

/// What a client learns of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ordered {
    /// The order.
    pub id: Uuid,
    /// IN_PROGRESS, CONFIRMED, REJECTED, CANCELLED, REFUNDED, NEEDS_ATTENTION, ABANDONED.
    pub outcome: &'static str,
    /// What is true now, in words.
    pub now: String,
    /// Why it came to nothing, as a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whole minor units.
    pub amount: i64,
    /// What was ordered.
    pub items: Vec<Line>,
    /// What is done for it, in order, with the steps still to come.
    pub steps: Vec<Step>,
    /// When it was placed.
    pub created_at: DateTime<Utc>,
    /// When its status changed last.
    pub changed_at: DateTime<Utc>,
    #[serde(skip)]
    status: String,
}

/// A step of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its name.
    pub step: String,
    /// How it stands; `waiting` where it has not been reached.
    pub state: &'static str,
    /// How often its service was asked.
    pub asked: u32,
    /// Why it stands so, where there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Ordered {
    /// An order by its row and its saga, while that is kept.
    pub fn new(row: Stands, saga: Option<&Stored>, outline: Option<&Outline>) -> Self {
        let Stands { id, status, reason, amount, items, created_at, changed_at } = row;
        let outcome = outcome(&status, saga.map(|saga| saga.status));
        let steps = saga.map_or_else(Vec::new, |saga| steps(saga, outline));
        let now = now(outcome, &status, saga);
        Self { id, outcome, now, reason, amount, items, steps, created_at, changed_at, status }
    }

    /// What to say to a customer who wants to call it off and cannot any more, or need not: it is being
    /// called off, or has come to nothing.
    pub fn too_late(&self) -> Result<Option<Response>, Problem> {
        let conflict = |detail: &str| Err(Problem::new(StatusCode::CONFLICT, detail.to_owned()));
        let paying = self.steps.iter().any(|step| step.step == "capture payment" && step.state != "waiting");
        match (self.status.as_str(), self.outcome) {
            ("CANCELLED" | "REJECTED" | "WITHDRAWN", _) => Ok(Some(Body(self.clone()).into_response())),
            ("CONFIRMED", _) => conflict("It is confirmed and paid: ask us to take it back."),
            (_, "ABANDONED") => conflict("People have taken it in hand: ask them."),
            _ if self.now == UNDOING => Ok(Some(self.clone().cancelling())),
            _ if paying => conflict("The payment is being taken: ask again when the order is confirmed."),
            _ => Ok(None),
        }
    }

    /// The answer to a customer whose order is being called off.
    pub fn cancelling(self) -> Response {
        (StatusCode::ACCEPTED, Body(self)).into_response()
    }
}

const UNDOING: &str = "the order is being cancelled";

fn outcome(status: &str, saga: Option<Status>) -> &'static str {
    match (status, saga) {
        (_, Some(Status::Stuck)) => "NEEDS_ATTENTION",
        (_, Some(Status::Abandoned)) => "ABANDONED",
        ("REJECTED", _) => "REJECTED",
        ("CANCELLED", _) => "CANCELLED",
        ("WITHDRAWN", Some(Status::Compensated) | None) => "REFUNDED",
        ("CONFIRMED", Some(Status::Running | Status::Completed) | None) => "CONFIRMED",
        _ => "IN_PROGRESS",
    }
}

fn now(outcome: &str, status: &str, saga: Option<&Stored>) -> String {
    let pending = saga.and_then(|saga| saga.pending().next());
    let open = || saga.and_then(|saga| saga.open().next().map(|leg| leg.id.to_string())).unwrap_or_default();
    match (outcome, pending) {
        ("NEEDS_ATTENTION", _) => format!("people look at it: {} could not be settled", open()),
        ("ABANDONED", _) => "people have taken it in hand".into(),
        ("REJECTED", _) => "the payment was refused".into(),
        ("CANCELLED", _) => "the order was cancelled".into(),
        ("REFUNDED", _) => "the order was taken back, and the money given back".into(),
        (_, Some(leg)) if leg.state.is_undo() && leg.id.step == "capture payment" => "refund in progress".into(),
        (_, Some(leg)) if leg.state.is_undo() && status == "CONFIRMED" => "the order is being taken back".into(),
        (_, Some(leg)) if leg.state.is_undo() => UNDOING.into(),
        (_, Some(leg)) => doing(&leg.id).into(),
        ("CONFIRMED", None) => "the order is confirmed, and its delivery arranged".into(),
        _ => "the order is being worked on".into(),
    }
}

fn doing(leg: &LegId) -> &'static str {
    match leg.step.as_str() {
        "reserve stock" => "the items are being set aside",
        "authorise payment" | "keep stock" | "capture payment" => "payment in progress",
        "request delivery" => "the order is confirmed; its delivery is being arranged",
        _ => "the order is being worked on",
    }
}

/// The steps that were reached, then those that are still to come: none, once it has ended or turned back.
fn steps(saga: &Stored, outline: Option<&Outline>) -> Vec<Step> {
    let reached = saga.legs.iter().map(|leg| Step {
        step: leg.id.to_string(),
        state: leg.state.as_str(),
        asked: leg.asking(leg.direction()).map_or(0, |asking| asking.asks),
        reason: leg.state.reason().map(str::to_owned),
    });
    let come = |name: &str| saga.legs.iter().any(|leg| leg.id.step == name);
    let goes_on = saga.heading == Direction::Do && !saga.status.is_final();
    let names = outline.into_iter().filter(|_| goes_on).flat_map(|outline| outline.steps.iter());
    let names = names.map(|step| step.name.clone());
    let to_come = names.filter(|name| !come(name)).map(|step| Step { step, state: "waiting", asked: 0, reason: None });
    reached.chain(to_come).collect()
}

/// What a customer is told: a subject and a text.
pub fn letter(order: Uuid, about: About) -> (&'static str, String) {
    let (subject, text) = match about {
        About::Confirmed => ("Your order is confirmed", "is paid and confirmed; we are having it delivered"),
        About::Rejected => ("Your order was not accepted", "was not accepted: the payment was refused"),
        About::Cancelled => {
            ("Your order was cancelled", "was cancelled; if anything was charged, it is being given back")
        }
        About::Correction => (
            "A correction: your order was taken back",
            "was confirmed, and has been taken back since; what was charged is being given back",
        ),
    };
    (subject, format!("Your order {order} {text}."))
}

/// The path holds no id.
pub fn malformed_id() -> Problem {
    let detail = "The path must hold an order's id: a UUID such as 0197a6b0-8c1e-7d5b-9b3f-2a4c6e8f0a1b.";
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// There is no such order.
pub fn unknown_order(id: Uuid) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("There is no order {id}."))
}

/// What the provider gives out for a card. A card's own number must not come to lie in anybody's database.
fn is_token(card: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    card.len() <= 64 && card.strip_prefix("tok_").is_some_and(|rest| !rest.is_empty() && rest.chars().all(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(sku: &str, quantity: i64) -> Line {
        Line { sku: sku.into(), quantity }
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let bad = Request {
            items: [0, 1_001].map(|quantity| Item { sku: "book".into(), quantity }).into(),
            card: "4111 1111".into(),
            address: "two\nlines".into(),
        };
        let problem = bad.check().expect_err("refused");
        assert_eq!(problem.status(), 422);
        for said in ["`items[0].quantity` is 0", "`items[1].quantity` is 1001", "a second time", "`card`", "`address`"]
        {
            assert!(problem.detail().contains(said), "{}", problem.detail());
        }
    }

    #[test]
    fn a_card_is_a_token_and_no_number() {
        assert!(["tok_ok", "tok_a-b_9"].into_iter().all(is_token));
        let long = format!("tok_{}", "x".repeat(61));
        for card in ["", "tok_", "4111111111111111", "4111-1111-1111-1111", "tok_4111 1111", "TOK_ok", &long] {
            assert!(!is_token(card), "{card}");
        }
    }

    #[test]
    fn members_that_nobody_knows_are_refused_wherever_they_are() {
        for body in [
            r#"{"items": [], "card": "tok_ok", "address": "x", "gift": true}"#,
            r#"{"items": [{"sku": "pen", "quantity": 1, "gift": true}], "card": "tok_ok", "address": "x"}"#,
        ] {
            let error = serde_json::from_str::<Request>(body).expect_err("refused").to_string();
            assert!(error.contains("unknown field `gift`"), "{error}");
        }
    }

    #[test]
    fn an_order_costs_what_its_lines_cost() {
        let lines = [line("book", 2), line("pen", 3)];
        assert_eq!(amount(&lines, &[Some(1500), Some(250)]).ok(), Some(3750));
        let unknown = amount(&lines, &[Some(1500), None]).expect_err("refused");
        assert!(unknown.detail().contains("`items[1].sku` is not sold here"), "{}", unknown.detail());
        assert!(amount(&lines, &[Some(i64::MAX), Some(1)]).is_err(), "more than there is");
    }

    #[test]
    fn the_outcome_is_the_truth_about_the_row_and_the_saga() {
        for (status, saga, said) in [
            ("PENDING", Some(Status::Running), "IN_PROGRESS"),
            ("CONFIRMED", Some(Status::Running), "CONFIRMED"),
            ("CONFIRMED", Some(Status::Completed), "CONFIRMED"),
            ("CONFIRMED", Some(Status::Compensating), "IN_PROGRESS"),
            ("CONFIRMED", Some(Status::Stuck), "NEEDS_ATTENTION"),
            ("WITHDRAWN", Some(Status::Compensating), "IN_PROGRESS"),
            ("WITHDRAWN", Some(Status::Stuck), "NEEDS_ATTENTION"),
            ("WITHDRAWN", Some(Status::Compensated), "REFUNDED"),
            ("CANCELLED", Some(Status::Compensated), "CANCELLED"),
            ("REJECTED", None, "REJECTED"),
            ("CONFIRMED", None, "CONFIRMED"),
        ] {
            assert_eq!(outcome(status, saga), said, "{status} {saga:?}");
        }
    }
}
