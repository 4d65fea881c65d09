//! The inventory service: sets stock aside for an order, for a while; keeps it once the order is about
//! to be paid; gives it back.
//!
//! ```text
//!   RESERVED ──keep──▶ KEPT
//!      │ release          │ release
//!      ├──────▶ RELEASED ◀┘
//!      └─ nobody kept it in time ─▶ EXPIRED
//! ```
//!
//! The expiry is a message to itself, scheduled in the transaction that sets aside, and taken back in the
//! one that ends the waiting. It names the version at which it was set: what has moved on does not expire.

use super::{Db, Tx, refuse};
use crate::contracts::{
    ExpireReservation, KeepRefused, KeepStock, Line, ReleaseStock, ReserveStock, StockKept, StockRefused,
    StockReleased, StockReserved,
};
use malote::{Outcome, Service, Transport, planted, saga::Answer, with};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/inventory.sql");

/// The service and its handlers; a reservation `lasts` so long.
pub fn service(db: Db, transport: Arc<dyn Transport>, lasts: Duration) -> Service<Db> {
    Service::new("inventory", db, transport)
        .command(with(lasts, reserve))
        .command(keep)
        .command(release)
        .emits::<ExpireReservation>()
        .on(expire)
}

async fn reserve(asked: ReserveStock, tx: &mut Tx, lasts: &Duration) -> Outcome<Answer<ReserveStock>> {
    let ReserveStock { order, mut lines } = asked;
    let refused = |why| Ok(Err(StockRefused { order, why }));
    if let Some((status, version)) = stands(order, tx).await? {
        if status == "RESERVED" {
            return Ok(Ok(StockReserved { order, version }));
        }
        refuse(order, Some((status.clone(), version)), "RESERVED", tx).await?;
        return refused(format!("the reservation is {status}"));
    }
    // in the order of their names, so that two orders never wait for each other in a circle
    lines.sort_by(|one, other| one.sku.cmp(&other.sku));
    for Line { sku, quantity } in &lines {
        match available(sku, tx).await? {
            Some(there) if there >= *quantity || planted::is("inventory-oversold") => {}
            Some(there) => return refused(format!("{sku}: {quantity} wanted, {there} there")),
            None => return refused(format!("{sku}: no such item")),
        }
    }
    let expiry = tx.schedule(ExpireReservation { order, version: 1 }, *lasts).await?;
    sqlx::query("INSERT INTO reservations (order_id, expiry) VALUES ($1, $2)")
        .bind(order.to_string())
        .bind(expiry.to_string())
        .execute(&mut **tx)
        .await?;
    for Line { sku, quantity } in &lines {
        sqlx::query("INSERT INTO reservation_lines (order_id, sku, quantity) VALUES ($1, $2, $3)")
            .bind(order.to_string())
            .bind(sku)
            .bind(quantity)
            .execute(&mut **tx)
            .await?;
    }
    shift(order, "UPDATE items SET available = available - $2, reserved = reserved + $2 WHERE sku = $1", tx).await?;
    Ok(Ok(StockReserved { order, version: 1 }))
}

async fn keep(asked: KeepStock, tx: &mut Tx) -> Outcome<Answer<KeepStock>> {
    let KeepStock { order, version } = asked;
    match stands(order, tx).await? {
        Some((status, now)) if status == "RESERVED" && now == version => {
            end(order, "KEPT", tx).await?;
            shift(order, "UPDATE items SET reserved = reserved - $2, sold = sold + $2 WHERE sku = $1", tx).await?;
            Ok(Ok(StockKept { order }))
        }
        Some((status, _)) if status == "KEPT" => Ok(Ok(StockKept { order })),
        other => {
            refuse(order, other.clone(), "KEPT", tx).await?;
            let why = match other {
                Some((status, now)) => format!("the reservation is {status} at version {now}, not at {version}"),
                None => "there is no reservation".to_owned(),
            };
            Ok(Err(KeepRefused { order, why }))
        }
    }
}

/// Whatever was set aside is given back; where nothing was, nothing is.
async fn release(asked: ReleaseStock, tx: &mut Tx) -> Outcome<Answer<ReleaseStock>> {
    let order = asked.order;
    let back = match stands(order, tx).await?.as_ref().map(|(status, _)| status.as_str()) {
        Some("RESERVED") => "UPDATE items SET reserved = reserved - $2, available = available + $2 WHERE sku = $1",
        Some("KEPT") => "UPDATE items SET sold = sold - $2, available = available + $2 WHERE sku = $1",
        _ => return Ok(Ok(StockReleased { order })),
    };
    end(order, "RELEASED", tx).await?;
    shift(order, back, tx).await?;
    Ok(Ok(StockReleased { order }))
}

async fn expire(due: ExpireReservation, tx: &mut Tx) -> Outcome {
    let ExpireReservation { order, version } = due;
    match stands(order, tx).await? {
        Some((status, now)) if (status == "RESERVED" && now == version) || planted::is("inventory-kept-expires") => {
            end(order, "EXPIRED", tx).await?;
            let back = match status.as_str() {
                "KEPT" => "UPDATE items SET sold = sold - $2, available = available + $2 WHERE sku = $1",
                _ => "UPDATE items SET reserved = reserved - $2, available = available + $2 WHERE sku = $1",
            };
            shift(order, back, tx).await
        }
        other => refuse(order, other, "EXPIRED", tx).await,
    }
}

/// Locks an order's reservation and tells its status and version. An update that changes nothing is the
/// lock that both stores have.
async fn stands(order: Uuid, tx: &mut Tx) -> Outcome<Option<(String, i64)>> {
    let locked = "UPDATE reservations SET version = version WHERE order_id = $1 RETURNING status, version";
    Ok(sqlx::query_as(locked).bind(order.to_string()).fetch_optional(&mut **tx).await?)
}

/// Brings a reservation to another status; if it still waits to expire, it does not any more.
async fn end(order: Uuid, status: &str, tx: &mut Tx) -> Outcome {
    let id = order.to_string();
    let expiry: Option<String> = sqlx::query_scalar("SELECT expiry FROM reservations WHERE order_id = $1")
        .bind(&id)
        .fetch_one(&mut **tx)
        .await?;
    if let Some(expiry) = expiry.and_then(|id| id.parse().ok()).filter(|_| !planted::is("inventory-kept-expires")) {
        tx.cancel(expiry).await?;
    }
    let change = "UPDATE reservations SET status = $2, version = version + 1, expiry = NULL,
                         changed_at = CURRENT_TIMESTAMP WHERE order_id = $1";
    sqlx::query(change).bind(&id).bind(status).execute(&mut **tx).await?;
    Ok(())
}

/// Locks an item and tells how many are free.
async fn available(sku: &str, tx: &mut Tx) -> Outcome<Option<i64>> {
    let locked = "UPDATE items SET total = total WHERE sku = $1 RETURNING available";
    Ok(sqlx::query_scalar(locked).bind(sku).fetch_optional(&mut **tx).await?)
}

/// Moves what an order has between the columns of its items, in the order of their names.
async fn shift(order: Uuid, update: &'static str, tx: &mut Tx) -> Outcome {
    let lines: Vec<(String, i64)> =
        sqlx::query_as("SELECT sku, quantity FROM reservation_lines WHERE order_id = $1 ORDER BY sku")
            .bind(order.to_string())
            .fetch_all(&mut **tx)
            .await?;
    for (sku, quantity) in lines {
        sqlx::query(update).bind(sku).bind(quantity).execute(&mut **tx).await?;
    }
    Ok(())
}
