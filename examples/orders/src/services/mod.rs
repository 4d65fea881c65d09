//! The services, against whatever `Db` and `Tx` are in the module around this one.
//!
//! ```text
//!              POST /orders
//!                   │                 ┌──▶ inventory ──┐
//!                 order ──commands────┼──▶ billing ◀───┼──▶ the provider
//!                   ▲                 └──▶ shipping ───┤
//!                   └──────────────────────answers─────┘
//! ```

pub mod billing;
pub mod inventory;
pub mod order;
pub mod shipping;

use super::{Db, ONE_AT_A_TIME, Tx, connect};
use crate::app::{Name, Setup};
use axum::Router;
use malote::{Outbox, Outcome, Runtime, StoreError, edge::Unsound};
use support::app::{Kit, failed};
use uuid::Uuid;

/// What every service owns beside its own.
const REFUSED: &str = include_str!("../../schema/refused.sql");

/// Opens a service's database and brings malote's tables and the service's own up to date; any number
/// of processes may do so at once.
pub async fn open(url: &str, name: Name) -> Result<Db, StoreError> {
    let schema = match name {
        Name::Order => order::SCHEMA,
        Name::Inventory => inventory::SCHEMA,
        Name::Billing => billing::SCHEMA,
        Name::Shipping => shipping::SCHEMA,
    };
    let db = connect(url).await?;
    db.migrate().await?;
    let mut tx = Outbox::new(name.as_str(), db.clone()).begin().await?;
    for statements in [ONE_AT_A_TIME, REFUSED, schema] {
        let done = sqlx::raw_sql(statements).execute(&mut *tx).await;
        done.map_err(|error| failed(&db, "bringing the service's tables up to date", error))?;
    }
    tx.commit().await?;
    Ok(db)
}

/// Adds a service to a runtime; what it serves over HTTP comes back.
pub fn mount(runtime: Runtime, name: Name, db: Db, kit: &Kit, setup: &Setup) -> Result<(Runtime, Router), Unsound> {
    let transport = kit.transport.clone();
    let (service, routes) = match name {
        Name::Order => {
            let sagas = order::sagas(db.clone(), setup.waits);
            let routes = order::router(db.clone(), sagas.clone(), kit)?;
            (order::service(db, transport, sagas, setup.mailbox.clone()), routes)
        }
        Name::Inventory => (inventory::service(db, transport, setup.reservation), Router::new()),
        Name::Billing => (billing::service(db, transport, setup.provider.clone()), Router::new()),
        Name::Shipping => (shipping::service(db.clone(), transport), shipping::router(db)),
    };
    Ok((kit.run(runtime, name.as_str(), service), routes))
}

/// Keeps what was to become of an order, where its status does not expect that. What stands is its
/// status and version; none where it is not known.
async fn refuse(order: Uuid, stands: Option<(String, i64)>, wanted: &str, tx: &mut Tx) -> Outcome {
    let (status, version) = stands.unzip();
    tracing::warn!(%order, status, version, wanted, "not expected: refused and recorded");
    sqlx::query("INSERT INTO refused_changes (order_id, status, version, wanted) VALUES ($1, $2, $3, $4)")
        .bind(order.to_string())
        .bind(status)
        .bind(version)
        .bind(wanted)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
