//! Dead letters that are given up for good.

use super::{
    act::{Letter, MOST, end},
    filtered,
};
use crate::store::Inner;
use malote_core::inspect::{Act, Acted, Filter};
use sqlx::{PgConnection, Row};

impl Inner {
    pub(super) async fn discard(&self, act: &Act, filter: &Filter, dry: bool) -> Result<Acted, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = filtered(self.sql.list_dead.query(), filter, MOST).fetch_all(&mut *session).await?;
        session.done().await?;
        let mut done = 0;
        for row in &rows {
            let mut tx = self.begin().await?;
            if let Some(letter) = self.letter(&mut tx, row.try_get("id")?).await? {
                self.discard_one(&mut tx, &letter).await?;
                self.note(&mut tx, act, "discard", &letter.target(), "discarded").await?;
                done += 1;
            }
            end(tx, dry).await?;
        }
        Ok(Acted { done, refused: Vec::new() })
    }

    async fn discard_one(&self, connection: &mut PgConnection, letter: &Letter) -> Result<(), sqlx::Error> {
        if let Some(consumer) = letter.consumer() {
            if let Some(event) = letter.admission() {
                self.mark_inbox(connection, consumer, &[event], "discarded").await?;
            }
            if let Some(key) = &letter.key {
                let (topic, key) = (letter.topic.as_str(), key.as_str());
                self.sql.settle_lock.query().bind(consumer).bind(topic).bind(key).execute(&mut *connection).await?;
                let lane = self.sql.discard_lane.query().bind(consumer).bind(topic).bind(key).bind(letter.holds_key);
                lane.execute(&mut *connection).await?;
                self.sql.discard_end.query().bind(consumer).bind(topic).bind(key).execute(&mut *connection).await?;
            }
        }
        self.remove_dead(connection, letter.id).await
    }
}
