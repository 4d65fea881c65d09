//! The fraud service: says of each payment whether it may be made, and remembers what it said.

use super::{Db, Tx};
use crate::{
    contracts::{PaymentApproved, PaymentReceived, PaymentRejected, Reason},
    risk::Rules,
};
use malote::{Outcome, Service, Transport, events, with};
use std::sync::Arc;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/fraud.sql");

events! {
    /// How an assessment comes out.
    pub enum Assessment { Approved(PaymentApproved), Rejected(PaymentRejected) }
}

/// The service and its handlers.
pub fn service(db: Db, transport: Arc<dyn Transport>, rules: Rules) -> Service<Db> {
    Service::new("fraud", db, transport).on(with(rules, assess))
}

async fn assess(payment: PaymentReceived, tx: &mut Tx, rules: &Rules) -> Outcome<Assessment> {
    let minute = payment.received_at.timestamp().div_euclid(60);
    let earlier: i64 = match rules.per_minute {
        Some(_) => {
            sqlx::query_scalar("SELECT count(*) FROM decisions WHERE sender = $1 AND minute = $2")
                .bind(&payment.from)
                .bind(minute)
                .fetch_one(&mut **tx)
                .await?
        }
        None => 0,
    };
    let refusal = rules.assess(payment.id, payment.amount, earlier);
    // a decision that was made stands, and is what comes back
    let refusal: Option<Reason> = sqlx::query_scalar(
        "INSERT INTO decisions (payment_id, sender, amount, minute, approved, reason)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (payment_id) DO UPDATE SET payment_id = excluded.payment_id RETURNING reason",
    )
    .bind(payment.id.to_string())
    .bind(&payment.from)
    .bind(payment.amount)
    .bind(minute)
    .bind(refusal.is_none())
    .bind(refusal.as_ref().map(Reason::as_str))
    .fetch_one(&mut **tx)
    .await
    .map(|reason: Option<String>| reason.map(Reason::from))?;
    let PaymentReceived { id, amount, from, to, .. } = payment;
    Ok(match refusal {
        None => PaymentApproved { id, amount, from, to }.into(),
        Some(reason) => PaymentRejected { id, amount, from, to, reason }.into(),
    })
}
