//! Lanes: the keys of a consumer that are not free.

use crate::{Tx, record::text, store::Inner};
use malote_core::{Admission, Lane, LaneState, StoreError};
use sqlx::{PgConnection, Row};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};
use uuid::Uuid;

/// The longest key that an index takes beside its consumer and topic, with room to spare, in bytes.
const LONGEST: usize = 1024;

/// A key as the tables of lanes know it: of one that no index could hold, its beginning and a hash.
pub(crate) fn key(key: &str) -> Cow<'_, str> {
    if key.len() <= LONGEST && !key.contains('\0') {
        return Cow::Borrowed(key);
    }
    let key = text(key);
    if key.len() <= LONGEST {
        return Cow::Owned(key);
    }
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes());
    Cow::Owned(format!("{}… {hash}", &key[..key.floor_char_boundary(LONGEST / 2)]))
}

/// The columns of lanes, each lane once, in one order for all.
fn columns(lanes: &[Lane]) -> (Vec<String>, Vec<String>) {
    let once: BTreeSet<(String, String)> =
        lanes.iter().map(|lane| (text(&lane.topic), key(&lane.key).into_owned())).collect();
    once.into_iter().unzip()
}

impl Inner {
    pub(crate) async fn lanes(
        &self,
        tx: &mut Tx,
        consumer: &str,
        lanes: &[Lane],
    ) -> Result<Vec<LaneState>, StoreError> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let (topics, keys) = columns(lanes);
        let rows = self.sql.lanes.query().bind(consumer).bind(topics).bind(keys).fetch_all(&mut **tx).await;
        let states = rows.and_then(|rows| {
            let state = |busy| if busy { LaneState::Busy } else { LaneState::Passing };
            rows.iter()
                .map(|row| Ok(((row.try_get("topic")?, row.try_get("key")?), state(row.try_get("busy")?))))
                .collect::<Result<HashMap<(String, String), LaneState>, sqlx::Error>>()
        });
        let states =
            states.map_err(|error| self.failed(format!("asking for {} lanes of {consumer}", lanes.len()), error))?;
        let of = |lane: &Lane| states.get(&(text(&lane.topic), key(&lane.key).into_owned())).copied();
        Ok(lanes.iter().map(|lane| of(lane).unwrap_or(LaneState::Free)).collect())
    }

    pub(crate) async fn lock_lanes(&self, tx: &mut Tx, consumer: &str, lanes: &[Lane]) -> Result<(), StoreError> {
        let (topics, keys) = columns(lanes);
        let locked = self.sql.lock_lanes.query().bind(consumer).bind(topics).bind(keys).execute(&mut **tx).await;
        locked.map(drop).map_err(|error| self.failed(format!("locking {} lanes of {consumer}", lanes.len()), error))
    }

    pub(crate) async fn pass(&self, tx: &mut Tx, consumer: &str, lanes: &[Lane]) -> Result<(), StoreError> {
        if lanes.is_empty() {
            return Ok(());
        }
        let topics: Vec<String> = lanes.iter().map(|lane| text(&lane.topic)).collect();
        let keys: Vec<Cow<'_, str>> = lanes.iter().map(|lane| key(&lane.key)).collect();
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        let query = self.sql.pass.query().bind(consumer).bind(topics).bind(keys);
        let passed = query.execute(&mut **tx).await;
        passed
            .map(drop)
            .map_err(|error| self.failed(format!("counting what {consumer} handled after a dead letter"), error))
    }

    /// Says in the inbox what became of events.
    pub(crate) async fn mark_inbox(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
        events: &[Admission],
        state: &str,
    ) -> Result<(), sqlx::Error> {
        if events.is_empty() {
            return Ok(());
        }
        let (ids, days): (Vec<_>, Vec<_>) = events.iter().map(|event| (event.event_id, event.day)).unzip();
        let query = self.sql.mark_inbox.query().bind(consumer).bind(ids).bind(days).bind(state);
        query.execute(connection).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn a_key_fits_into_an_index_and_keys_stay_apart() {
        assert_eq!(key("plain"), "plain");
        let (long, other) = ("é".repeat(9_000), format!("{}x", "é".repeat(9_000)));
        assert!(key(&long).len() < 1024 && key(&long) != key(&other));
        assert_eq!(key(&key(&long)), key(&long));
        assert!(!key("a\0b").contains('\0'));
    }
}
