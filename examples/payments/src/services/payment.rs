//! The payment service: writes payments down, and brings each to its end.
//!
//! It starts the business and tells nobody what to do: it says `payment.received.v1` and waits for
//! one of three outcomes. Two of them undo, by bringing the payment to REJECTED or FAILED. A payment
//! that has ended does not change any more.
//!
//! ```text
//!   CREATED ────settled, rejected, failed────▶ SETTLED, REJECTED, FAILED
//!      │ no outcome by the deadline                    ▲
//!      └────────────▶ UNDER_REVIEW ────────a late one──┘
//! ```
//!
//! The deadline is an event to itself, scheduled in the transaction that writes the payment down and
//! taken back in the one that ends it.

use super::{Db, Tx, failed as store_error};
use crate::{
    api::{self, Payment, PaymentRequest},
    contracts::{PaymentFailed, PaymentOverdue, PaymentReceived, PaymentRejected, PaymentSettled, Reason, Status},
};
use axum::{
    Router,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
    routing::{get, post},
};
use chrono::{DateTime, Utc};
use malote::{
    Failure, Outcome, Service, Transport,
    edge::{Attempt, Body, Idempotency, Problem},
    planted,
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/payment.sql");

/// The service and its handlers.
pub fn service(db: Db, transport: Arc<dyn Transport>) -> Service<Db> {
    Service::new("payment", db, transport)
        .emits::<PaymentReceived>()
        .emits::<PaymentOverdue>()
        .on(settled)
        .on(rejected)
        .on(failed)
        .on(overdue)
}

async fn settled(payment: PaymentSettled, tx: &mut Tx) -> Outcome {
    end(payment.id, Status::Settled, None, tx).await
}

async fn rejected(payment: PaymentRejected, tx: &mut Tx) -> Outcome {
    end(payment.id, Status::Rejected, Some(payment.reason), tx).await
}

async fn failed(payment: PaymentFailed, tx: &mut Tx) -> Outcome {
    end(payment.id, Status::Failed, Some(payment.reason), tx).await
}

/// A payment that has no outcome yet is put before people; one that has ended, or that nobody made, is
/// none of them.
async fn overdue(payment: PaymentOverdue, tx: &mut Tx) -> Outcome {
    let id = payment.id.to_string();
    let review = sqlx::query(
        "UPDATE payments SET status = 'UNDER_REVIEW', changed_at = CURRENT_TIMESTAMP, deadline = NULL
          WHERE id = $1 AND status = 'CREATED'",
    );
    if review.bind(&id).execute(&mut **tx).await?.rows_affected() == 1 {
        tracing::warn!(payment = id, "the payment has no outcome in time: under review");
    }
    Ok(())
}

/// Ends a payment, or records that it had ended already.
async fn end(id: Uuid, wanted: Status, reason: Option<Reason>, tx: &mut Tx) -> Outcome {
    const UPDATE: &str = "UPDATE payments SET status = $2, reason = $3, changed_at = CURRENT_TIMESTAMP
                           WHERE id = $1 RETURNING deadline";
    const IF_OPEN: &str = "UPDATE payments SET status = $2, reason = $3, changed_at = CURRENT_TIMESTAMP
                            WHERE id = $1 AND status IN ('CREATED', 'UNDER_REVIEW') RETURNING deadline";
    let update = if planted::is("payment-final") { UPDATE } else { IF_OPEN };
    let id = id.to_string();
    let reason = reason.as_ref().map(Reason::as_str);
    let changed = sqlx::query_scalar(update).bind(&id).bind(wanted.as_str()).bind(reason);
    let changed: Option<Option<String>> = changed.fetch_optional(&mut **tx).await?;
    if let Some(deadline) = changed {
        if let Some(deadline) = deadline.and_then(|id| id.parse().ok()) {
            tx.cancel(deadline).await?;
        }
        return Ok(());
    }
    let refused = sqlx::query(
        "INSERT INTO refused_changes (payment_id, status, wanted, reason)
         SELECT id, status, $2, $3 FROM payments WHERE id = $1",
    );
    let refused = refused.bind(&id).bind(wanted.as_str()).bind(reason).execute(&mut **tx).await?;
    if refused.rows_affected() == 0 {
        return Err(Failure::reject(format!("there is no payment {id} that could become {}", wanted.as_str())));
    }
    tracing::warn!(payment = id, wanted = wanted.as_str(), "the payment has ended already: refused and recorded");
    Ok(())
}

/// The service's HTTP interface.
pub fn router(db: Db, limits: api::Limits, deadline: Duration, idempotency: Idempotency<Db>) -> Router {
    let once = Router::new().route("/payment", post(create)).route("/payments", post(create));
    let read = Router::new().route("/payment/{id}", get(show)).route("/payments/{id}", get(show));
    once.route_layer(idempotency).merge(read).with_state(Edge { db, limits, deadline })
}

#[derive(Clone)]
struct Edge {
    db: Db,
    limits: api::Limits,
    /// How long a payment may be without an outcome.
    deadline: Duration,
}

async fn create(
    State(edge): State<Edge>,
    attempt: Attempt<Db>,
    Body(request): Body<PaymentRequest>,
) -> Result<Response, Problem> {
    let received = edge.limits.check(request)?.received(Uuid::now_v7(), Utc::now());
    let mut tx = attempt.begin().await?;
    let deadline = tx.schedule(received.overdue(), edge.deadline).await?;
    sqlx::query("INSERT INTO payments (id, amount, sender, receiver, deadline) VALUES ($1, $2, $3, $4, $5)")
        .bind(received.id.to_string())
        .bind(received.amount)
        .bind(&received.from)
        .bind(&received.to)
        .bind(deadline.to_string())
        .execute(&mut *tx)
        .await
        .map_err(|error| store_error(&edge.db, "writing a payment down", error))?;
    let answer = api::accepted(received.id);
    tx.publish(received).await?;
    Ok(attempt.commit(tx, answer).await)
}

async fn show(State(edge): State<Edge>, id: Result<Path<Uuid>, PathRejection>) -> Result<Body<Payment>, Problem> {
    let Ok(Path(id)) = id else { return Err(api::malformed_id()) };
    let payment = find(&edge.db, id).await.map_err(|error| store_error(&edge.db, "looking a payment up", error))?;
    payment.map(Body).ok_or_else(|| api::unknown_payment(id))
}

type Row = (i64, String, String, String, Option<String>, DateTime<Utc>, DateTime<Utc>);

async fn find(db: &Db, id: Uuid) -> Result<Option<Payment>, sqlx::Error> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT amount, sender, receiver, status, reason, created_at, changed_at FROM payments WHERE id = $1",
    )
    .bind(id.to_string())
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(|(amount, from, to, status, reason, created_at, changed_at)| Payment {
        id,
        status,
        reason,
        amount,
        from,
        to,
        created_at,
        changed_at,
    }))
}
