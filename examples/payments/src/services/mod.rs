//! The services, against whatever `Db` and `Tx` are in the module around this one.
//!
//! ```text
//!              POST /payment
//!                   │
//!   payment ──received──▶ fraud ──approved──▶ ledger
//!      ▲                    │                   │
//!      │◀─────rejected──────┤                   ├──settled, failed──▶ payment
//!      │                    └──▶ notification ◀─┘
//! ```

pub mod fraud;
pub mod ledger;
pub mod notification;
pub mod payment;

use super::{Db, ONE_AT_A_TIME, Tx, connect};
use crate::app::{Name, Setup};
use axum::Router;
use malote::{Outbox, Runtime, StoreError, edge::Unsound};
use support::app::{Kit, failed};

/// Opens a service's database and brings malote's tables and the service's own up to date; any number
/// of processes may do so at once.
pub async fn open(url: &str, name: Name) -> Result<Db, StoreError> {
    let schema = match name {
        Name::Payment => payment::SCHEMA,
        Name::Fraud => fraud::SCHEMA,
        Name::Ledger => ledger::SCHEMA,
        Name::Notification => notification::SCHEMA,
    };
    let db = connect(url).await?;
    db.migrate().await?;
    let mut tx = Outbox::new(name.as_str(), db.clone()).begin().await?;
    for statements in [ONE_AT_A_TIME, schema] {
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
        Name::Payment => (payment::service(db.clone(), transport), edge(db, kit, setup)?),
        Name::Fraud => (fraud::service(db, transport, setup.rules.clone()), Router::new()),
        Name::Ledger => (ledger::service(db, transport), Router::new()),
        Name::Notification => (notification::service(db, transport, setup.channel.clone()), Router::new()),
    };
    Ok((kit.run(runtime, name.as_str(), service), routes))
}

/// The payment service's HTTP interface.
fn edge(db: Db, kit: &Kit, setup: &Setup) -> Result<Router, Unsound> {
    let once = kit.once(Name::Payment.as_str(), db.clone())?;
    Ok(payment::router(db, setup.limits, setup.deadline, once))
}
