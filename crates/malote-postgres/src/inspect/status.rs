//! How everything stands.

use crate::{migrate, store::Inner};
use malote_core::inspect::{ConsumerStatus, Holder, OutboxStatus, RelayStatus, Status};
use sqlx::{PgConnection, Row, postgres::PgRow};

/// Pending rows are counted up to here, and estimated by positions above.
const COUNTED: i64 = 100_000;

impl Inner {
    pub(super) async fn status(&self) -> Result<Status, sqlx::Error> {
        let mut session = self.look_around().await?;
        let outbox = self.sql.status_outbox.query().bind(COUNTED + 1).fetch_one(&mut *session).await?;
        let relays = self.sql.status_relays.query().fetch_all(&mut *session).await?;
        let consumers = self.sql.status_consumers.query().fetch_all(&mut *session).await?;
        let rest = self.sql.status_rest.query().fetch_one(&mut *session).await?;
        let sagas = self.saga_counts(&mut session).await?;
        let saga_versions = self.saga_versions(&mut session).await?;
        let oldest_transaction = self.oldest_transaction(&mut session).await?;
        session.done().await?;
        Ok(Status {
            outbox: outbox_status(&outbox)?,
            relays: relays.iter().map(relay).collect::<Result<_, _>>()?,
            consumers: consumers.iter().map(consumer).collect::<Result<_, _>>()?,
            relay_dead: number(&rest, "relay_dead")?,
            sagas,
            saga_versions,
            open_acts: number(&rest, "open_acts")?,
            scheduled: number(&rest, "scheduled")?,
            scheduled_late_seconds: rest.try_get("late_seconds")?,
            oldest_transaction,
            wal_bytes: None,
            tables: (rest.try_get("tables")?, migrate::KNOWN),
        })
    }

    pub(super) async fn oldest_transaction(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Option<Holder>, sqlx::Error> {
        let row = self.sql.oldest_transaction.query().fetch_optional(connection).await?;
        row.map(|row| Ok(Holder { seconds: row.try_get("seconds")?, who: row.try_get("who")? })).transpose()
    }
}

pub(super) fn number(row: &PgRow, name: &str) -> Result<u64, sqlx::Error> {
    Ok(row.try_get::<i64, _>(name)?.max(0).cast_unsigned())
}

fn outbox_status(row: &PgRow) -> Result<OutboxStatus, sqlx::Error> {
    let (counted, high, last): (i64, i64, i64) = (row.try_get("counted")?, row.try_get("high")?, row.try_get("last")?);
    let gaps = number(row, "gaps")?;
    let pending =
        if counted > COUNTED { last.saturating_sub(high).saturating_add(gaps.cast_signed()) } else { counted };
    let oldest = row.try_get::<Option<String>, _>("type")?.zip(row.try_get::<Option<String>, _>("key")?);
    Ok(OutboxStatus {
        pending: pending.max(0).cast_unsigned(),
        oldest_seconds: row.try_get("oldest_seconds")?,
        last,
        gaps,
        oldest,
    })
}

fn relay(row: &PgRow) -> Result<RelayStatus, sqlx::Error> {
    Ok(RelayStatus {
        name: row.try_get("name")?,
        incarnation: row.try_get("incarnation")?,
        epoch: row.try_get("epoch")?,
        lease_seconds: row.try_get("lease_seconds")?,
        high: row.try_get("high")?,
        gaps: number(row, "gaps")?,
    })
}

fn consumer(row: &PgRow) -> Result<ConsumerStatus, sqlx::Error> {
    Ok(ConsumerStatus {
        name: row.try_get("name")?,
        parked_keys: number(row, "parked_keys")?,
        parked_messages: number(row, "parked_messages")?,
        held_keys: number(row, "held_keys")?,
        oldest_parked_seconds: row.try_get("oldest_parked_seconds")?,
        dead: number(row, "dead")?,
    })
}
