//! Who is at which partition, and what has begun and not ended: what kills its process leaves a trace.

use crate::{Tx, record::text, sql::Statement, store::Inner};
use malote_core::{Incarnation, StoreError};
use sqlx::Row;
use std::collections::{HashMap, HashSet};

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

    pub(crate) async fn runs(&self, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
        self.counts(&self.sql.runs, consumer, what).await
    }

    pub(crate) async fn runs_begin(&self, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
        self.counts(&self.sql.runs_begin, consumer, what).await
    }

    async fn counts(&self, sql: &Statement, consumer: &str, what: &[String]) -> Result<Vec<u32>, StoreError> {
        let names = texts(what);
        let count = async {
            let mut session = self.session().await?;
            let rows = sql.query().bind(consumer).bind(&names).fetch_all(&mut *session).await?;
            session.done().await?;
            rows.iter()
                .map(|row| Ok((row.try_get("what")?, row.try_get("begun")?)))
                .collect::<Result<HashMap<String, i32>, sqlx::Error>>()
        };
        let begun = count.await.map_err(|error| self.failed(format!("counting runs of {consumer}"), error))?;
        Ok(names.iter().map(|name| begun.get(name).map_or(0, |begun| begun.unsigned_abs())).collect())
    }

    pub(crate) async fn runs_ended(&self, tx: &mut Tx, consumer: &str, what: &[String]) -> Result<(), StoreError> {
        let ended = self.sql.runs_ended.query().bind(consumer).bind(texts(what)).execute(&mut **tx).await;
        ended.map(drop).map_err(|error| self.failed(format!("ending runs of {consumer}"), error))
    }
}

fn texts(what: &[String]) -> Vec<String> {
    what.iter().map(|what| text(what)).collect()
}
