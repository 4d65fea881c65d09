//! The ledger: moves money by double entry, or says why not.
//!
//! Entries, balances, the inbox row and the outbox row are one transaction. A refusal is no error: it
//! is `payment.failed.v1`, and the payment service undoes what it did.

use super::{Db, Tx};
use crate::{
    contracts::{PaymentApproved, PaymentFailed, PaymentSettled, Reason},
    money,
};
use malote::{Outcome, Service, Transport, events, planted};
use std::sync::Arc;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/ledger.sql");

events! {
    /// How a settlement ends.
    pub enum Settlement { Settled(PaymentSettled), Failed(PaymentFailed) }
}

/// The service and its handlers.
pub fn service(db: Db, transport: Arc<dyn Transport>) -> Service<Db> {
    Service::new("ledger", db, transport).on(settle)
}

/// Nothing comes of a payment whose entries are there already: it was settled and said so.
async fn settle(payment: PaymentApproved, tx: &mut Tx) -> Outcome<Option<Settlement>> {
    let moved = transfer(&payment, tx).await?;
    let PaymentApproved { id, amount, from, to } = payment;
    Ok(match moved {
        Ok(true) => Some(PaymentSettled { id, amount, from, to }.into()),
        Ok(false) => None,
        Err(reason) => Some(PaymentFailed { id, amount, from, to, reason }.into()),
    })
}

/// Moves the money; false when it was moved before.
async fn transfer(payment: &PaymentApproved, tx: &mut Tx) -> Outcome<Result<bool, Reason>> {
    if payment.from == payment.to {
        return Ok(Err(Reason::SAME_ACCOUNT));
    }
    let (from, to) = lock(&payment.from, &payment.to, tx).await?;
    let (left, held) = match money::transfer(payment.amount, from, to) {
        Ok(balances) => balances,
        Err(reason) => return Ok(Err(reason)),
    };
    if !write_entries(payment, tx).await? {
        return Ok(Ok(false));
    }
    set_balance(&payment.from, left, tx).await?;
    if !planted::is("ledger-credit") {
        set_balance(&payment.to, held, tx).await?;
    }
    Ok(Ok(true))
}

/// Locks both accounts in the order of their names, so that two payments never wait for each other in
/// a circle, and tells their balances in the order given.
async fn lock(from: &str, to: &str, tx: &mut Tx) -> Outcome<(Option<i64>, Option<i64>)> {
    if from < to {
        let from = balance(from, tx).await?;
        Ok((from, balance(to, tx).await?))
    } else {
        let to = balance(to, tx).await?;
        Ok((balance(from, tx).await?, to))
    }
}

/// Locks an account and tells its balance. An update that changes nothing is the lock that both
/// stores have.
async fn balance(account: &str, tx: &mut Tx) -> Outcome<Option<i64>> {
    let locked = sqlx::query_scalar("UPDATE accounts SET balance = balance WHERE name = $1 RETURNING balance");
    Ok(locked.bind(account).fetch_optional(&mut **tx).await?)
}

async fn set_balance(account: &str, balance: i64, tx: &mut Tx) -> Outcome {
    let set = sqlx::query("UPDATE accounts SET balance = $2 WHERE name = $1");
    set.bind(account).bind(balance).execute(&mut **tx).await?;
    Ok(())
}

/// Both sides in one statement with one amount; false when they are there already.
async fn write_entries(payment: &PaymentApproved, tx: &mut Tx) -> Outcome<bool> {
    let written = sqlx::query(
        "INSERT INTO entries (payment_id, side, account, amount)
         VALUES ($1, 'DEBIT', $2, $4), ($1, 'CREDIT', $3, $4) ON CONFLICT DO NOTHING",
    )
    .bind(payment.id.to_string())
    .bind(&payment.from)
    .bind(&payment.to)
    .bind(payment.amount)
    .execute(&mut **tx)
    .await?;
    Ok(written.rows_affected() == 2 || planted::is("ledger-twice"))
}
