//! The notification service: tells the outside how a payment ended, and keeps what it told.
//!
//! Telling is an effect: it runs with no transaction open and may be repeated when the process dies
//! before it has written down that it was done. So it carries a key that stays the same.

use super::{Db, Tx};
use crate::{
    channel::{Channel, Notice},
    contracts::{PaymentFailed, PaymentRejected, PaymentSettled},
};
use malote::{IdempotencyKey, Outcome, Service, Transport, with};
use std::sync::Arc;

/// What it owns.
pub const SCHEMA: &str = include_str!("../../schema/notification.sql");

/// The service and its effects. It says nothing itself, so nothing of its own is relayed.
pub fn service(db: Db, transport: Arc<dyn Transport>, channel: Channel) -> Service<Db> {
    Service::new("notification", db, transport)
        .effect(with(channel.clone(), tell::<PaymentSettled>), keep)
        .effect(with(channel.clone(), tell::<PaymentRejected>), keep)
        .effect(with(channel, tell::<PaymentFailed>), keep)
        .without_relay()
}

/// What was told, how, and under which key.
struct Told {
    notice: Notice,
    key: IdempotencyKey,
    channel: &'static str,
}

async fn tell<E>(event: E, key: IdempotencyKey, channel: &Channel) -> Outcome<Told>
where
    E: Into<Notice>,
{
    let notice = event.into();
    channel.send(&key, &notice).await?;
    Ok(Told { notice, key, channel: channel.name() })
}

async fn keep(told: Told, tx: &mut Tx) -> Outcome {
    sqlx::query(
        "INSERT INTO notifications (key, payment_id, event, channel, body) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING",
    )
    .bind(told.key.0)
    .bind(told.notice.payment.to_string())
    .bind(told.notice.event)
    .bind(told.channel)
    .bind(told.notice.body)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
