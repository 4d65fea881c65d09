//! Who is at which partition, and what has begun and not ended: what kills its process leaves a trace.

use crate::{Tx, record::text, store::Inner};
use malote_core::{Incarnation, StoreError};
use sqlx::Row;
use std::collections::HashSet;

impl Inner {
    pub(crate) async fn take_custody(
        &self,
        consumer: &str,
        who: Incarnation,
        partitions: &[(String, i32)],
    ) -> Result<Vec<bool>, StoreError> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let take = async {
            let (topics, numbers): (Vec<String>, Vec<i32>) = partitions.iter().cloned().unzip();
            let mut session = self.session().await?;
            let query = self.sql.take_custody.query().bind(consumer).bind(who.0).bind(topics).bind(numbers);
            let rows = query.fetch_all(&mut *session).await?;
            session.done().await?;
            rows.iter()
                .map(|row| Ok((row.try_get("topic")?, row.try_get("partition")?)))
                .collect::<Result<HashSet<(String, i32)>, sqlx::Error>>()
        };
        let left = take.await.map_err(|error| self.failed(format!("taking partitions for {consumer}"), error))?;
        Ok(partitions.iter().map(|partition| left.contains(partition)).collect())
    }

    pub(crate) async fn give_back(&self, consumer: &str, who: Incarnation) -> Result<(), StoreError> {
        let give = async {
            let mut session = self.session().await?;
            self.sql.give_back.query().bind(consumer).bind(who.0).execute(&mut *session).await?;
            session.done().await
        };
        give.await.map_err(|error| self.failed(format!("giving back the partitions of {consumer}"), error))
    }

    pub(crate) async fn run_begins(&self, consumer: &str, what: &str) -> Result<u32, StoreError> {
        let begin = async {
            let mut session = self.session().await?;
            let row = self.sql.run_begins.query().bind(consumer).bind(text(what)).fetch_one(&mut *session).await?;
            session.done().await?;
            row.try_get::<i32, _>("begun")
        };
        let begun = begin.await.map_err(|error| self.failed(format!("counting a run of {consumer}"), error))?;
        Ok(begun.max(0).cast_unsigned())
    }

    pub(crate) async fn run_ended(&self, tx: &mut Tx, consumer: &str, what: &str) -> Result<(), StoreError> {
        let ended = self.sql.run_ended.query().bind(consumer).bind(text(what)).execute(&mut **tx).await;
        ended.map(drop).map_err(|error| self.failed(format!("ending a run of {consumer}"), error))
    }
}
