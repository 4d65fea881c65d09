//! What could not be handled or sent.

use crate::{Tx, lane, parked::count, record, record::text, store::Inner};
use malote_core::{By, Dead, StoreError};
use sqlx::Row;

impl Inner {
    /// Sets aside; the key goes on, whatever it is.
    pub(crate) async fn set_aside(&self, tx: &mut Tx, dead: &Dead) -> Result<(), StoreError> {
        self.lay_aside(tx, dead, false).await
    }

    pub(crate) async fn lay_aside(&self, tx: &mut Tx, dead: &Dead, hold: bool) -> Result<(), StoreError> {
        let laid = self.lay(tx, dead, hold).await;
        laid.map_err(|error| self.failed(format!("setting aside for {}", dead.by), error))
    }

    /// Setting aside must not fail over what the record holds, or it would come again for ever: text
    /// is freed of what PostgreSQL cannot hold, all else is kept as bytes.
    async fn lay(&self, tx: &mut Tx, dead: &Dead, hold: bool) -> Result<(), sqlx::Error> {
        let consumer = if let By::Consumer(name) = &dead.by { Some(text(name)) } else { None };
        let topic = text(&dead.topic);
        let key = dead.key.as_deref().map(lane::key);
        let query = self.sql.set_aside.query();
        let query = query
            .bind(text(&dead.by.to_string()))
            .bind(text(&dead.what))
            .bind(dead.admission.map(|event| event.event_id))
            .bind(dead.kind.as_deref().map(text))
            .bind(&topic)
            .bind(dead.partition)
            .bind(dead.offset)
            .bind(Dead::reason(&dead.reason))
            .bind(count(dead.attempts))
            .bind(dead.record.key.as_deref())
            .bind(record::names(&dead.record).collect::<Vec<_>>())
            .bind(record::values(&dead.record).collect::<Vec<_>>())
            .bind(dead.record.payload.as_deref())
            .bind(&consumer)
            .bind(key.as_deref())
            .bind(dead.admission.map(|event| event.day))
            .bind(dead.class.as_str())
            .bind(dead.history.to_json())
            .bind(dead.correlation_id.as_deref().map(text))
            .bind(dead.trace.as_deref().map(text))
            .bind(hold)
            .bind(dead.history.entries().first().map(|entry| entry.at));
        let fresh: bool = query.fetch_one(&mut **tx).await?.try_get("fresh")?;
        let Some(consumer) = consumer else { return Ok(()) };
        if let Some(event) = dead.admission {
            self.mark_inbox(tx, &consumer, &[event], "dead").await?;
        }
        if let Some(key) = key.filter(|_| fresh) {
            self.sql.count_dead.query().bind(&consumer).bind(&topic).bind(&*key).execute(&mut **tx).await?;
        }
        Ok(())
    }
}
