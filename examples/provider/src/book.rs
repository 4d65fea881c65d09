//! The provider's database: one SQLite file, one writer, each change durable when it is answered.

use crate::Faults;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::path::Path;

/// Only one process may work on a file: that a key's first work still runs is kept in its memory.
#[derive(Clone, Debug)]
pub struct Book(pub(crate) SqlitePool);

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// Its number.
    pub n: i64,
    /// `authorise`, `capture`, `void` or `refund`.
    pub kind: String,
    /// To which authorisation.
    pub authorisation: String,
    /// The merchant's name for what is paid.
    pub reference: String,
    /// Whole minor units.
    pub amount: i64,
    /// What it cost the merchant.
    pub fee: i64,
    /// Under which key.
    pub key: String,
    /// When.
    pub at: String,
}

impl Book {
    /// Opens a file, and makes its tables.
    pub async fn open(path: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        sqlx::raw_sql(include_str!("../schema.sql")).execute(&pool).await?;
        Ok(Self(pool))
    }

    /// Everything that was done, in order.
    pub async fn effects(&self) -> Result<Vec<Effect>, sqlx::Error> {
        let effects = "SELECT n, kind, authorisation, reference, effects.amount, fee, effects.key, at
                         FROM effects JOIN authorisations ON id = authorisation ORDER BY n";
        type Row = (i64, String, String, String, i64, i64, String, String);
        let rows: Vec<Row> = sqlx::query_as(effects).fetch_all(&self.0).await?;
        let effect = |(n, kind, authorisation, reference, amount, fee, key, at)| Effect {
            n,
            kind,
            authorisation,
            reference,
            amount,
            fee,
            key,
            at,
        };
        Ok(rows.into_iter().map(effect).collect())
    }

    /// What became of a key, as far as it is written down.
    pub(crate) async fn operation(&self, key: &str) -> Result<Value, sqlx::Error> {
        let operation = sqlx::query_as("SELECT request, status, answer FROM operations WHERE key = $1");
        let found: Option<(String, u16, String)> = operation.bind(key).fetch_optional(&self.0).await?;
        Ok(match found {
            None => json!({"key": key, "state": "unknown"}),
            Some((request, ..)) if request.is_empty() => json!({"key": key, "state": "called off"}),
            Some((_, status, answer)) => {
                let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
                json!({"key": key, "state": "done", "status": status, "answer": answer})
            }
        })
    }

    /// Counts a request under a key: which one it is.
    pub(crate) async fn count(&self, key: &str) -> Result<i64, sqlx::Error> {
        let count = "INSERT INTO asked (key, times) VALUES ($1, 1)
                     ON CONFLICT (key) DO UPDATE SET times = times + 1 RETURNING times";
        sqlx::query_scalar(count).bind(key).fetch_one(&self.0).await
    }

    /// The faults that were set last.
    pub async fn faults(&self) -> Result<Faults, sqlx::Error> {
        let kept = sqlx::query_scalar("SELECT settings FROM faults").fetch_optional(&self.0).await?;
        Ok(kept.and_then(|text: String| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// Keeps the faults.
    pub async fn set_faults(&self, faults: &Faults) -> Result<(), sqlx::Error> {
        let set = "INSERT INTO faults (one, settings) VALUES (1, $1)
                   ON CONFLICT (one) DO UPDATE SET settings = excluded.settings";
        sqlx::query(set).bind(json!(faults).to_string()).execute(&self.0).await?;
        Ok(())
    }

    /// Gives the file back in good order.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
