//! What could not be handled or sent.

use crate::{Tx, store::Inner};
use malote_core::{Dead, StoreError};

impl Inner {
    /// Setting aside must not fail over what the record holds, or it would come again for ever: text
    /// is freed of what PostgreSQL cannot hold, all else is kept as bytes.
    pub(crate) async fn set_aside(&self, tx: &mut Tx, dead: &Dead) -> Result<(), StoreError> {
        let text = |text: &str| text.replace('\0', "\u{fffd}");
        let names: Vec<String> = dead.record.headers.iter().map(|(name, _)| text(name)).collect();
        let values: Vec<&[u8]> = dead.record.headers.iter().map(|(_, value)| value.as_ref()).collect();
        self.sql
            .set_aside
            .query()
            .bind(text(&dead.by))
            .bind(text(&dead.what))
            .bind(dead.event_id)
            .bind(dead.kind.as_deref().map(text))
            .bind(text(&dead.topic))
            .bind(dead.partition)
            .bind(dead.offset)
            .bind(Dead::reason(&dead.reason))
            .bind(dead.attempts)
            .bind(dead.record.key.as_deref())
            .bind(names)
            .bind(values)
            .bind(dead.record.payload.as_deref())
            .execute(&mut **tx)
            .await
            .map(drop)
            .map_err(|error| self.failed(format!("setting aside for {}", dead.by), error))
    }
}
