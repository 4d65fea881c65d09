//! The shipping service: has an order delivered, and stops it or has it sent back.
//!
//! ```text
//!   REQUESTED ──the carrier takes it──▶ DISPATCHED
//!      │ cancel                             │ ask for a return
//!      ▼                                    ▼
//!   CANCELLED                            RETURNING
//! ```

use super::{Db, Tx, failed, refuse};
use crate::{
    api,
    contracts::{
        AlreadyDispatched, CancelShipment, Line, RequestReturn, RequestShipment, ReturnRefused, ReturnRequested,
        ShipmentCancelled, ShipmentRefused, ShipmentRequested,
    },
};
use axum::{
    Router,
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    routing::post,
};
use malote::{
    Outbox, Outcome, Service, Transport,
    edge::{Body, Problem},
    saga::Answer,
};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/shipping.sql");

/// Where nobody delivers: addresses that begin so.
const NOWHERE: &str = "Nowhere";

/// The service and its handlers.
pub fn service(db: Db, transport: Arc<dyn Transport>) -> Service<Db> {
    Service::new("shipping", db, transport).command(request).command(cancel).command(take_back)
}

async fn request(asked: RequestShipment, tx: &mut Tx) -> Outcome<Answer<RequestShipment>> {
    let RequestShipment { order, lines, address } = asked;
    if address.starts_with(NOWHERE) {
        return Ok(Err(ShipmentRefused { order, why: "nobody delivers there".into() }));
    }
    let shipment = Uuid::new_v5(&order, b"shipment");
    let made = sqlx::query("INSERT INTO shipments (order_id, id, address) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
        .bind(order.to_string())
        .bind(shipment.to_string())
        .bind(address)
        .execute(&mut **tx)
        .await?;
    if made.rows_affected() == 0 {
        return again(order, shipment, tx).await;
    }
    for Line { sku, quantity } in lines {
        sqlx::query("INSERT INTO shipment_lines (order_id, sku, quantity) VALUES ($1, $2, $3)")
            .bind(order.to_string())
            .bind(sku)
            .bind(quantity)
            .execute(&mut **tx)
            .await?;
    }
    Ok(Ok(ShipmentRequested { order, shipment }))
}

/// It was requested before, as another intention.
async fn again(order: Uuid, shipment: Uuid, tx: &mut Tx) -> Outcome<Answer<RequestShipment>> {
    let stands = stands(order, tx).await?;
    match &stands {
        Some((status, _)) if status == "REQUESTED" || status == "DISPATCHED" => {
            Ok(Ok(ShipmentRequested { order, shipment }))
        }
        _ => {
            refuse(order, stands, "REQUESTED", tx).await?;
            Ok(Err(ShipmentRefused { order, why: "its delivery was called off before".into() }))
        }
    }
}

async fn cancel(asked: CancelShipment, tx: &mut Tx) -> Outcome<Answer<CancelShipment>> {
    let order = asked.order;
    let stands = stands(order, tx).await?;
    match stands.as_ref().map(|(status, _)| status.as_str()) {
        Some("DISPATCHED" | "RETURNING") => {
            refuse(order, stands, "CANCELLED", tx).await?;
            Ok(Err(AlreadyDispatched { order, why: "the carrier has taken it".into() }))
        }
        Some("REQUESTED") => {
            change(order, "CANCELLED", tx).await?;
            Ok(Ok(ShipmentCancelled { order }))
        }
        _ => Ok(Ok(ShipmentCancelled { order })), // never requested, or cancelled before
    }
}

async fn take_back(asked: RequestReturn, tx: &mut Tx) -> Outcome<Answer<RequestReturn>> {
    let order = asked.order;
    let stands = stands(order, tx).await?;
    match stands.as_ref().map(|(status, _)| status.as_str()) {
        Some("DISPATCHED") => {
            change(order, "RETURNING", tx).await?;
            Ok(Ok(ReturnRequested { order }))
        }
        Some("RETURNING") => Ok(Ok(ReturnRequested { order })),
        _ => {
            refuse(order, stands, "RETURNING", tx).await?;
            Ok(Err(ReturnRefused { order, why: "it was not dispatched".into() }))
        }
    }
}

/// Locks an order's shipment and tells its status and version.
async fn stands(order: Uuid, tx: &mut Tx) -> Outcome<Option<(String, i64)>> {
    let locked = "UPDATE shipments SET version = version WHERE order_id = $1 RETURNING status, version";
    Ok(sqlx::query_as(locked).bind(order.to_string()).fetch_optional(&mut **tx).await?)
}

async fn change(order: Uuid, status: &str, tx: &mut Tx) -> Outcome {
    let change = "UPDATE shipments SET status = $2, version = version + 1, changed_at = CURRENT_TIMESTAMP
                   WHERE order_id = $1";
    sqlx::query(change).bind(order.to_string()).bind(status).execute(&mut **tx).await?;
    Ok(())
}

/// The carrier's interface: it takes a parcel along.
pub fn router(db: Db) -> Router {
    Router::new().route("/shipments/{order}/dispatch", post(dispatch)).with_state(db)
}

async fn dispatch(State(db): State<Db>, order: Result<Path<Uuid>, PathRejection>) -> Result<Body<Value>, Problem> {
    let Ok(Path(order)) = order else { return Err(api::malformed_id()) };
    let mut tx = Outbox::new("shipping", db.clone()).begin().await?;
    let taken = "UPDATE shipments SET status = 'DISPATCHED', version = version + 1, changed_at = CURRENT_TIMESTAMP
                  WHERE order_id = $1 AND status = 'REQUESTED'";
    let taken = sqlx::query(taken).bind(order.to_string()).execute(&mut *tx).await;
    let taken = taken.map_err(|error| failed(&db, "dispatching a shipment", error))?.rows_affected();
    tx.commit().await?;
    match taken {
        0 => {
            Err(Problem::new(StatusCode::CONFLICT, format!("There is no shipment of order {order} to be dispatched.")))
        }
        _ => Ok(Body(json!({"order": order, "status": "DISPATCHED"}))),
    }
}
