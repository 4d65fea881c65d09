//! The billing service: has the outside provider hold, take and give back money, and keeps what it did.
//!
//! ```text
//!   AUTHORISED ──capture──▶ CAPTURED ──refund──▶ REFUNDED
//!      │ void                                              DECLINED
//!      └──────▶ VOIDED
//! ```
//!
//! Every call goes out with no transaction open, under the key of the saga's operation: asked again, the
//! provider gives the same answer. What is undone is named by the key under which it was done, as
//! nobody may know what became of it.

use super::{Db, Tx, refuse};
use crate::{
    contracts::{
        AuthorisationVoided, AuthorisePayment, CapturePayment, CaptureRefused, PaymentAuthorised, PaymentCaptured,
        PaymentDeclined, PaymentRefunded, RefundPayment, RefundRefused, VoidAuthorisation, VoidRefused,
    },
    provider::{Done, Provider, Said},
};
use malote::{
    Failure, IdempotencyKey, Outcome, Service, Transport, planted,
    retry::Policy,
    retrying,
    saga::{Addressed, Answer, Command},
    with,
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/billing.sql");

/// The service and its effects.
pub fn service(db: Db, transport: Arc<dyn Transport>, provider: Provider) -> Service<Db> {
    // an outage of the provider is waited for, some minutes at most; then the saga decides
    let policy = Policy::default().backoff(Duration::from_millis(200), Duration::from_secs(15));
    let desk = Desk { db: db.clone(), provider: provider.clone() };
    Service::new("billing", db, transport)
        .command_effect(retrying(policy, with(provider.clone(), authorise)), authorised)
        .command_effect(retrying(policy, with(provider.clone(), void)), voided)
        .command_effect(retrying(policy, with(desk, capture)), captured)
        .command_effect(retrying(policy, with(provider, refund)), refunded)
}

/// For an effect that looks before it calls.
struct Desk {
    db: Db,
    provider: Provider,
}

/// A command, what the provider said to it, and under which key.
struct Told<C> {
    command: C,
    said: Said,
    key: IdempotencyKey,
}

async fn authorise(
    asked: AuthorisePayment,
    key: IdempotencyKey,
    provider: &Provider,
) -> Outcome<Told<AuthorisePayment>> {
    let key = if planted::is("billing-key-anew") { IdempotencyKey(Uuid::now_v7().to_string()) } else { key };
    let said = provider.authorise(&key, &asked.order.to_string(), asked.amount, &asked.card).await?;
    Ok(Told { command: asked, said, key })
}

async fn authorised(told: Told<AuthorisePayment>, tx: &mut Tx) -> Outcome<Answer<AuthorisePayment>> {
    let AuthorisePayment { order, amount, .. } = told.command;
    let (status, authorisation, why) = match told.said {
        Said::Done(done) => ("AUTHORISED", Some(done.authorisation), String::new()),
        Said::Refused { why, .. } => ("DECLINED", None, why),
    };
    let insert = "INSERT INTO payments (order_id, amount, status, authorisation) VALUES ($1, $2, $3, $4)
                  ON CONFLICT (order_id) DO UPDATE
                     SET status = excluded.status, authorisation = excluded.authorisation,
                         version = payments.version + 1, changed_at = CURRENT_TIMESTAMP
                   WHERE payments.status = 'DECLINED' RETURNING version";
    let version: Option<i64> = sqlx::query_scalar(insert)
        .bind(order.to_string())
        .bind(amount)
        .bind(status)
        .bind(&authorisation)
        .fetch_optional(&mut **tx)
        .await?;
    Ok(match (version, authorisation) {
        (Some(version), Some(authorisation)) => Ok(PaymentAuthorised { order, authorisation, version }),
        (Some(_), None) => Err(PaymentDeclined { order, why }),
        (None, _) => {
            let stands = stands(order, tx).await?;
            refuse(order, stands, status, tx).await?;
            Err(PaymentDeclined { order, why: "there is another payment for the order".into() })
        }
    })
}

async fn void(
    asked: Addressed<VoidAuthorisation>,
    key: IdempotencyKey,
    provider: &Provider,
) -> Outcome<Told<VoidAuthorisation>> {
    let said = provider.void(&key, &undone(&asked)?).await?;
    Ok(Told { command: asked.command, said, key })
}

/// Nothing is held for the order: it was let go, was never held, or was taken.
async fn voided(told: Told<VoidAuthorisation>, tx: &mut Tx) -> Outcome<Answer<VoidAuthorisation>> {
    let order = told.command.order;
    Ok(match told.said {
        Said::Refused { code, why } if code != "CAPTURED" => Err(VoidRefused { order, why }),
        Said::Refused { .. } => Ok(AuthorisationVoided { order }),
        Said::Done(_) => {
            change(order, "AUTHORISED", "VOIDED", tx).await?;
            Ok(AuthorisationVoided { order })
        }
    })
}

/// Looks first: a payment that has moved on since it was authorised is not taken.
async fn capture(asked: CapturePayment, key: IdempotencyKey, desk: &Desk) -> Outcome<Told<CapturePayment>> {
    let find = "SELECT status, version FROM payments WHERE order_id = $1";
    let stands: Option<(String, i64)> =
        sqlx::query_as(find).bind(asked.order.to_string()).fetch_optional(desk.db.pool()).await?;
    let said = match stands {
        Some((status, version)) if status == "AUTHORISED" && version == asked.version => {
            desk.provider.capture(&key, &asked.authorisation, asked.amount).await?
        }
        Some((status, version)) => Said::Refused {
            code: "VERSION".into(),
            why: format!("the payment is {status} at version {version}, not at {}", asked.version),
        },
        None => Said::Refused { code: "VERSION".into(), why: "nothing was authorised".into() },
    };
    Ok(Told { command: asked, said, key })
}

async fn captured(told: Told<CapturePayment>, tx: &mut Tx) -> Outcome<Answer<CapturePayment>> {
    let CapturePayment { order, amount, authorisation, .. } = told.command;
    if let Said::Refused { why, .. } = told.said {
        let stands = stands(order, tx).await?;
        refuse(order, stands, "CAPTURED", tx).await?;
        return Ok(Err(CaptureRefused { order, why }));
    }
    if !change(order, "AUTHORISED", "CAPTURED", tx).await? {
        // the provider took it all the same: that is not for a program to settle
        return Err(Failure::reject("the provider took what is not held here: see what became of it"));
    }
    sqlx::query("INSERT INTO captures (order_id, authorisation, amount, key) VALUES ($1, $2, $3, $4)")
        .bind(order.to_string())
        .bind(authorisation)
        .bind(amount)
        .bind(told.key.0)
        .execute(&mut **tx)
        .await?;
    Ok(Ok(PaymentCaptured { order, amount }))
}

async fn refund(
    asked: Addressed<RefundPayment>,
    key: IdempotencyKey,
    provider: &Provider,
) -> Outcome<Told<RefundPayment>> {
    let said = provider.refund(&key, &undone(&asked)?).await?;
    Ok(Told { command: asked.command, said, key })
}

async fn refunded(told: Told<RefundPayment>, tx: &mut Tx) -> Outcome<Answer<RefundPayment>> {
    let order = told.command.order;
    let fee = match told.said {
        Said::Refused { why, .. } => return Ok(Err(RefundRefused { order, why })),
        Said::Done(Done { fee, .. }) => fee,
    };
    if change(order, "CAPTURED", "REFUNDED", tx).await? {
        let insert = "INSERT INTO refunds (order_id, amount, fee, key)
                      SELECT order_id, amount, $2, $3 FROM captures WHERE order_id = $1";
        sqlx::query(insert).bind(order.to_string()).bind(fee).bind(told.key.0).execute(&mut **tx).await?;
    }
    Ok(Ok(PaymentRefunded { order, fee }))
}

/// The key of the operation that is to be undone.
fn undone<C: Command>(asked: &Addressed<C>) -> Outcome<IdempotencyKey> {
    let undoes = asked.address.as_ref().and_then(|address| address.undoes.as_ref());
    let none = || Failure::reject(format!("{} does not say what it undoes", C::TYPE));
    undoes.map(|operation| operation.idempotency_key()).ok_or_else(none)
}

async fn stands(order: Uuid, tx: &mut Tx) -> Outcome<Option<(String, i64)>> {
    let find = "SELECT status, version FROM payments WHERE order_id = $1";
    Ok(sqlx::query_as(find).bind(order.to_string()).fetch_optional(&mut **tx).await?)
}

/// Brings a payment from one status to another; false where it is in neither, or not known.
async fn change(order: Uuid, from: &str, to: &str, tx: &mut Tx) -> Outcome<bool> {
    let change = "UPDATE payments SET status = $3, version = version + 1, changed_at = CURRENT_TIMESTAMP
                   WHERE order_id = $1 AND status = $2";
    let changed = sqlx::query(change).bind(order.to_string()).bind(from).bind(to).execute(&mut **tx).await?;
    Ok(changed.rows_affected() == 1)
}
