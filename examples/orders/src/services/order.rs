//! The order service: takes orders, leads each to its end, and tells the customer.
//!
//! ```text
//!   PENDING ──confirm──▶ CONFIRMED ──a person has it undone──▶ WITHDRAWN
//!      │ came to nothing
//!      └──────▶ CANCELLED, REJECTED
//! ```
//!
//! The order's id is the saga's, too. The row says what the order is to the customer; how far the saga
//! has come is the saga's own affair, and both are shown together. What the customer was told is told by
//! an effect, and never taken back: a correction follows.

use super::{Db, Tx, failed as store_error, refuse};
use crate::{
    api::{self, Ordered, Stands},
    contracts::{
        About, CancelOrder, ConfirmOrder, CorrectOrder, CreateOrder, Ending, Line, Notice, OrderCancelled,
        OrderConfirmed, OrderCorrected, OrderCreated,
    },
    saga::{self, Purchase, Waits, place_order},
};
use axum::{
    Router,
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
    routing::{get, post},
};
use chrono::{DateTime, Utc};
use malote::{
    IdempotencyKey, Outbox, Outcome, Service, StoreError, Transport,
    edge::{Attempt, Body, Problem, Unsound},
    inspect::Act,
    saga::{Answer, Deed, Sagas},
    with,
};
use std::sync::Arc;
use support::{app::Kit, mailbox::Mailbox};
use uuid::Uuid;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/order.sql");

/// Its name, and that of its outbox.
const NAME: &str = "order";

/// The sagas that it leads.
pub fn sagas(db: Db, waits: Waits) -> Sagas<Db> {
    Sagas::new(NAME, db).define(place_order(waits)).local(create).local(cancel).local(confirm).local(correct)
}

/// The service, its sagas and its effects; notices go to `mailbox`.
pub fn service(db: Db, transport: Arc<dyn Transport>, sagas: Sagas<Db>, mailbox: Mailbox) -> Service<Db> {
    Service::new(NAME, db, transport).sagas(sagas).emits::<Notice>().effect(with(mailbox, tell), keep)
}

async fn create(asked: CreateOrder, tx: &mut Tx) -> Outcome<Answer<CreateOrder>> {
    let CreateOrder { order, lines, amount } = asked;
    let id = order.to_string();
    sqlx::query("INSERT INTO orders (id, amount) VALUES ($1, $2)").bind(&id).bind(amount).execute(&mut **tx).await?;
    for Line { sku, quantity } in lines {
        sqlx::query("INSERT INTO order_lines (order_id, sku, quantity) VALUES ($1, $2, $3)")
            .bind(&id)
            .bind(sku)
            .bind(quantity)
            .execute(&mut **tx)
            .await?;
    }
    Ok(Ok(OrderCreated { order }))
}

/// An order that was confirmed meanwhile and withdrawn stays what the customer was told.
async fn cancel(asked: CancelOrder, tx: &mut Tx) -> Outcome<Answer<CancelOrder>> {
    let CancelOrder { order, ending, reason } = asked;
    let change = "UPDATE orders SET status = $2, version = version + 1, changed_at = CURRENT_TIMESTAMP,
                         reason = CASE WHEN unwanted AND $3 = 'NOT_FINISHED' THEN 'CUSTOMER' ELSE $3 END
                   WHERE id = $1 AND status = 'PENDING'";
    let changed = sqlx::query(change).bind(order.to_string()).bind(ending.as_str()).bind(reason.as_str());
    if changed.execute(&mut **tx).await?.rows_affected() == 1 {
        let about = match ending {
            Ending::Rejected => About::Rejected,
            Ending::Cancelled => About::Cancelled,
        };
        tx.publish(Notice { order, about }).await?;
        return Ok(Ok(OrderCancelled { order }));
    }
    match stands(order, tx).await? {
        Some((status, _)) if status == "WITHDRAWN" => {}
        other => refuse(order, other, ending.as_str(), tx).await?,
    }
    Ok(Ok(OrderCancelled { order }))
}

async fn confirm(asked: ConfirmOrder, tx: &mut Tx) -> Outcome<Answer<ConfirmOrder>> {
    let order = asked.order;
    become_or_refuse(order, ("PENDING", "CONFIRMED"), About::Confirmed, tx).await?;
    Ok(Ok(OrderConfirmed { order }))
}

async fn correct(asked: CorrectOrder, tx: &mut Tx) -> Outcome<Answer<CorrectOrder>> {
    let order = asked.order;
    become_or_refuse(order, ("CONFIRMED", "WITHDRAWN"), About::Correction, tx).await?;
    Ok(Ok(OrderCorrected { order }))
}

/// Brings an order from one status to the next and has the customer told; or records that it was in
/// another one.
async fn become_or_refuse(order: Uuid, (from, to): (&str, &str), about: About, tx: &mut Tx) -> Outcome {
    let change = "UPDATE orders SET status = $3, version = version + 1, changed_at = CURRENT_TIMESTAMP
                   WHERE id = $1 AND status = $2";
    let changed = sqlx::query(change).bind(order.to_string()).bind(from).bind(to).execute(&mut **tx).await?;
    if changed.rows_affected() == 1 {
        tx.publish(Notice { order, about }).await?;
        return Ok(());
    }
    let stands = stands(order, tx).await?;
    refuse(order, stands, to, tx).await
}

async fn stands(order: Uuid, tx: &mut Tx) -> Outcome<Option<(String, i64)>> {
    let find = "SELECT status, version FROM orders WHERE id = $1";
    Ok(sqlx::query_as(find).bind(order.to_string()).fetch_optional(&mut **tx).await?)
}

/// What a customer was told, and under which key.
struct Told {
    notice: Notice,
    key: IdempotencyKey,
    body: String,
}

async fn tell(notice: Notice, key: IdempotencyKey, mailbox: &Mailbox) -> Outcome<Told> {
    let (subject, body) = api::letter(notice.order, notice.about);
    mailbox.put(&key, subject, &body).await?;
    Ok(Told { notice, key, body })
}

async fn keep(told: Told, tx: &mut Tx) -> Outcome {
    sqlx::query("INSERT INTO notices (key, order_id, about, body) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING")
        .bind(told.key.0)
        .bind(told.notice.order.to_string())
        .bind(told.notice.about.as_str())
        .bind(told.body)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The service's HTTP interface.
pub fn router(db: Db, sagas: Sagas<Db>, kit: &Kit) -> Result<Router, Unsound> {
    let placing = Router::new().route("/orders", post(place)).route_layer(kit.once(NAME, db.clone())?);
    let others = Router::new().route("/orders/{id}", get(show)).route("/orders/{id}/cancel", post(call_off));
    Ok(placing.merge(others).with_state(Edge { outbox: Outbox::new(NAME, db.clone()), db, sagas }))
}

#[derive(Clone)]
struct Edge {
    db: Db,
    outbox: Outbox<Db>,
    sagas: Sagas<Db>,
}

async fn place(
    State(edge): State<Edge>,
    attempt: Attempt<Db>,
    Body(request): Body<api::Request>,
) -> Result<Response, Problem> {
    let api::Checked { lines, card, address } = request.check()?;
    let mut tx = attempt.begin().await?;
    let mut prices = Vec::new();
    for line in &lines {
        let price = sqlx::query_scalar("SELECT price FROM products WHERE sku = $1").bind(&line.sku);
        let price: Option<i64> =
            price.fetch_optional(&mut *tx).await.map_err(|error| store_error(&edge.db, "looking up prices", error))?;
        prices.push(price);
    }
    let amount = api::amount(&lines, &prices)?;
    let order = Uuid::now_v7();
    let purchase = Purchase::new(order, lines, amount, card, address);
    edge.sagas.start(&mut tx, saga::NAME, order, &purchase).await?;
    Ok(attempt.commit(tx, api::accepted(order)).await)
}

async fn show(State(edge): State<Edge>, id: Result<Path<Uuid>, PathRejection>) -> Result<Body<Ordered>, Problem> {
    let Ok(Path(id)) = id else { return Err(api::malformed_id()) };
    edge.find(id).await?.map(Body).ok_or_else(|| api::unknown_order(id))
}

/// The customer calls the order off: possible until the money is being taken. Again, it is the same.
async fn call_off(State(edge): State<Edge>, id: Result<Path<Uuid>, PathRejection>) -> Result<Response, Problem> {
    let Ok(Path(id)) = id else { return Err(api::malformed_id()) };
    let found = edge.find(id).await?.ok_or_else(|| api::unknown_order(id))?;
    if let Some(settled) = found.too_late()? {
        return Ok(settled);
    }
    let mut tx = edge.outbox.begin().await?;
    let mark = sqlx::query("UPDATE orders SET unwanted = TRUE WHERE id = $1").bind(id.to_string());
    mark.execute(&mut *tx).await.map_err(|error| store_error(&edge.db, "marking an order", error))?;
    tx.commit().await?;
    let act = Act { actor: "customer".into(), reason: "asked for it by POST /orders/ID/cancel".into() };
    let outcome = edge.sagas.act(&act, id, &Deed::TurnBack).await?;
    let now = edge.find(id).await?.ok_or_else(|| api::unknown_order(id))?;
    match outcome.denied {
        true => match now.too_late()? {
            Some(settled) => Ok(settled),
            None => Err(Problem::new(StatusCode::CONFLICT, format!("It cannot be cancelled: {}.", outcome.says))),
        },
        false => Ok(now.cancelling()),
    }
}

type Row = (i64, String, Option<String>, DateTime<Utc>, DateTime<Utc>);

impl Edge {
    /// An order as it stands: its row, and its saga as far as it is kept.
    async fn find(&self, id: Uuid) -> Result<Option<Ordered>, StoreError> {
        let doing = "looking an order up";
        let row = "SELECT amount, status, reason, created_at, changed_at FROM orders WHERE id = $1";
        let row: Option<Row> = sqlx::query_as(row)
            .bind(id.to_string())
            .fetch_optional(self.db.pool())
            .await
            .map_err(|error| store_error(&self.db, doing, error))?;
        let Some((amount, status, reason, created_at, changed_at)) = row else { return Ok(None) };
        let lines: Vec<(String, i64)> =
            sqlx::query_as("SELECT sku, quantity FROM order_lines WHERE order_id = $1 ORDER BY sku")
                .bind(id.to_string())
                .fetch_all(self.db.pool())
                .await
                .map_err(|error| store_error(&self.db, doing, error))?;
        let items = lines.into_iter().map(|(sku, quantity)| Line { sku, quantity }).collect();
        let stands = Stands { id, status, reason, amount, items, created_at, changed_at };
        let saga = self.sagas.find(id).await?;
        let outlines = self.sagas.outlines();
        let outline = saga
            .as_ref()
            .and_then(|saga| outlines.iter().find(|o| (&o.saga, o.version) == (&saga.definition, saga.version)));
        Ok(Some(Ordered::new(stands, saga.as_ref(), outline)))
    }
}
