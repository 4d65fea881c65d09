//! What people ask to be done to an instance, and what came of it.

use super::unreadable;
use crate::{Tx, store::Inner};
use malote_core::{
    cut_reason,
    inspect::Act,
    saga::{AskedDeed, DeedOutcome},
};
use sqlx::Row;

impl Inner {
    pub(super) async fn open_acts(&self, after: i64, most: u32) -> Result<Vec<i64>, sqlx::Error> {
        let mut session = self.session().await?;
        let rows = self.sql.open_acts.query().bind(after).bind(i64::from(most)).fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(|row| row.try_get("id")).collect()
    }

    pub(super) async fn take_act(&self, tx: &mut Tx, id: i64) -> Result<Option<AskedDeed>, sqlx::Error> {
        let row = self.sql.take_act.query().bind(id).fetch_optional(&mut **tx).await?;
        let asked = |row: sqlx::postgres::PgRow| {
            Ok(AskedDeed {
                id,
                saga: row.try_get("saga")?,
                act: Act { actor: row.try_get("actor")?, reason: row.try_get("reason")? },
                deed: serde_json::from_str(row.try_get("deed")?).map_err(unreadable)?,
            })
        };
        row.map(asked).transpose()
    }

    pub(super) async fn answer_act(
        &self,
        tx: &mut Tx,
        asked: &AskedDeed,
        outcome: &DeedOutcome,
    ) -> Result<(), sqlx::Error> {
        let query = self.sql.answer_act.query().bind(asked.id).bind(cut_reason(&outcome.says)).bind(outcome.denied);
        query.execute(&mut **tx).await?;
        let came = cut_reason(&outcome.to_string());
        self.note(tx, &asked.act, &asked.name(), &asked.target(), &came).await
    }
}
