//! Letting old rows go, a bounded number at a time.

use super::{Sqlite, dead, failed, fence, relay::millis, saga};
use malote_core::{KeptStore, Prune, Pruned, StoreError, planted};
use sqlx::{SqlSafeStr, SqlStr};

/// Which rows of a kind go, how many there are, and that they go: three uses of one file.
struct Statements {
    go: &'static str,
    count: &'static str,
}

macro_rules! statements {
    ($file:literal, $table:literal, $row:literal) => {
        Statements {
            go: concat!("DELETE FROM ", $table, " WHERE ", $row, " IN (", include_str!($file), ")"),
            count: concat!("SELECT count(*) FROM (", include_str!($file), ")"),
        }
    };
}

fn statements(what: Prune) -> Result<Statements, StoreError> {
    Ok(match what {
        Prune::Inbox(_) => statements!("../../sql/prune_inbox.sql", "malote_inbox", "(consumer, event_id, day)"),
        Prune::Answers(_) => statements!("../../sql/prune_answers.sql", "malote_idempotency", "rowid"),
        Prune::Dead(_) => statements!("../../sql/prune_dead.sql", "malote_dead", "id"),
        Prune::Audit(_) => statements!("../../sql/prune_audit.sql", "malote_audit", "id"),
        Prune::Sagas(_) => statements!("../../sql/prune_sagas.sql", "malote_saga", "id"),
        Prune::Tombstones(_) => statements!("../../sql/prune_tombstones.sql", "malote_saga", "id"),
        Prune::Operations(_) => statements!("../../sql/prune_operations.sql", "malote_operation", "(consumer, id)"),
        other => return Err(unknown(other)),
    })
}

fn unknown(what: Prune) -> StoreError {
    let source = "this version of the store has no such rows".into();
    StoreError { doing: format!("removing old rows of {}", what.name()), class: malote_core::Class::Final, source }
}

impl KeptStore for Sqlite {
    async fn prune(&self, what: Prune, most: u32, dry: bool) -> Result<Pruned, StoreError> {
        let doing = || format!("removing old rows of {}", what.name());
        let statements = statements(what)?;
        let keep = millis(what.keep());
        if dry {
            let count: i64 = sqlx::query_scalar(unprotected(statements.count))
                .bind(keep)
                .bind(i64::from(most).saturating_add(1))
                .fetch_one(&self.0.readers)
                .await
                .map_err(failed(doing()))?;
            let count = count.unsigned_abs();
            return Ok(Pruned { rows: count.min(u64::from(most)), more: count > u64::from(most) });
        }
        let mut tx = self.lock().await?;
        let rows = match what {
            Prune::Dead(_) => dead::prune(&mut tx, keep, most).await?,
            Prune::Sagas(_) if !planted::is("saga-tombstone-removed") => saga::bury(&mut tx, keep, most).await?,
            _ => {
                let go = sqlx::query(unprotected(statements.go)).bind(keep).bind(i64::from(most));
                go.execute(&mut *tx).await.map_err(failed(doing()))?.rows_affected()
            }
        };
        tx.commit(&doing(), || ()).await?;
        Ok(Pruned { rows, more: rows >= u64::from(most) && most > 0 })
    }
}

/// The statement, without what keeps open rows where the test for that asks for it.
fn unprotected(statement: &'static str) -> SqlStr {
    let protection = "state IN ('done', 'discarded') AND ";
    if statement.contains(protection) {
        return fence(planted::is("prune-what-is-open"), statement, protection);
    }
    if planted::is("begun-acts-go") {
        return sqlx::AssertSqlSafe(statement.replace("(outcome = 'begun'", "(outcome = 'never'")).into_sql_str();
    }
    statement.into_sql_str()
}
