//! The twenty lines of the README are a program that compiles.
#![allow(missing_docs)]

#[path = "common/pages.rs"]
mod pages;

use malote::{
    Event,
    prelude::*,
    sqlite::{Embedded, Sqlite, Tx},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::signal::ctrl_c;

macro_rules! event {
    ($name:ident = $type:literal { $($field:ident: $of:ty),* }) => {
        #[derive(Serialize, Deserialize)]
        pub struct $name {
            $($field: $of),*
        }
        impl Event for $name {
            const TYPE: &'static str = $type;
            fn key(&self) -> String {
                self.id.clone()
            }
        }
    };
}
event!(PaymentApproved = "payment.approved.v1" { id: String, amount: i64, from: String });
event!(PaymentSettled = "payment.settled.v1" { id: String });
event!(PaymentFailed = "payment.failed.v1" { id: String, reason: String });

#[rustfmt::skip]
#[allow(dead_code)] // it runs until Ctrl-C: being compiled is the test
mod shown {
use super::*;
// <<< README
/// Moves the money, or says why not. The signature is the service's row in the flow.
async fn settle(payment: PaymentApproved, tx: &mut Tx) -> Outcome<Settlement> {
    let moved = sqlx::query("UPDATE accounts SET balance = balance - $1 WHERE name = $2 AND balance >= $1")
        .bind(payment.amount).bind(&payment.from).execute(&mut **tx).await?;
    Ok(match moved.rows_affected() {
        0 => PaymentFailed { id: payment.id, reason: "INSUFFICIENT_FUNDS".into() }.into(),
        _ => PaymentSettled { id: payment.id }.into(),
    })
}

events! { pub enum Settlement { Settled(PaymentSettled), Failed(PaymentFailed) } }

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Sqlite::open("ledger.db").await?;            // or Postgres::connect(url)
    store.migrate().await?;
    let log = Arc::new(Embedded::open("log.db").await?);     // or Kafka::connect("localhost:9092")
    Runtime::new().with(Service::new("ledger", store, log).on(settle)).run_until(ctrl_c()).await?;
    Ok(())
}
// >>>
}

#[test]
fn the_readme_shows_what_is_compiled_here() {
    pages::show("README.md", include_str!("readme.rs"), &["README"]);
}
