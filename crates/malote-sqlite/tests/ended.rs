//! A transaction that ended before its time keeps nothing of what is written after it.
#![allow(missing_docs)]

mod common;

use common::{envelope, sealer, store};
use malote_core::{Class, Store, StoreError, Transaction};
use malote_sqlite::{Sqlite, Tx};
use sqlx::Executor;
use tempfile::TempDir;

async fn prepared() -> (TempDir, Sqlite) {
    let (folder, store) = store().await;
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.execute("CREATE TABLE made (n INTEGER PRIMARY KEY); INSERT INTO made VALUES (0)").await.unwrap();
    tx.commit().await.unwrap();
    (folder, store)
}

async fn made(store: &Sqlite) -> Vec<i64> {
    sqlx::query_scalar("SELECT n FROM made ORDER BY n").fetch_all(store.pool()).await.unwrap()
}

fn is_told(error: &StoreError) {
    assert_eq!(error.class, Class::Final);
    assert!(error.to_string().contains("the transaction was over already"), "{error}");
}

/// Ends a transaction, goes on as if nothing had been, and says so to nobody.
async fn go_on(tx: &mut Tx, end: &str) {
    tx.execute("INSERT INTO made VALUES (1)").await.unwrap();
    drop(tx.execute(sqlx::AssertSqlSafe(end.to_owned())).await);
    drop(tx.execute("INSERT INTO made VALUES (2)").await);
    let attempted = tx.attempt(async |tx| tx.execute("INSERT INTO made VALUES (3)").await).await;
    drop(attempted);
}

const ENDS: [&str; 4] =
    ["INSERT OR ROLLBACK INTO made VALUES (0)", "ROLLBACK", "COMMIT", "ROLLBACK; BEGIN; INSERT INTO made VALUES (4)"];

#[tokio::test]
async fn nothing_is_kept_of_a_transaction_that_is_over() {
    for end in ENDS {
        let (_folder, store) = prepared().await;
        let mut tx = store.begin(sealer()).await.unwrap();
        assert!(tx.check().is_ok());
        go_on(&mut tx, end).await;
        assert_eq!(made(&store).await, [0], "{end}");
        is_told(&tx.check().unwrap_err());
        is_told(&tx.commit().await.unwrap_err());
        assert_eq!(made(&store).await, [0], "{end}");

        // what comes after is not held up by it
        let mut tx = store.begin(sealer()).await.unwrap();
        tx.execute("INSERT INTO made VALUES (5)").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(made(&store).await, [0, 5], "{end}");
    }
}

/// Statements of malote's own say what is the matter, too.
#[tokio::test]
async fn what_is_said_in_a_transaction_that_is_over_is_refused() {
    let (_folder, store) = prepared().await;
    let mut tx = store.begin(sealer()).await.unwrap();
    go_on(&mut tx, ENDS[0]).await;
    is_told(&tx.append(vec![envelope("k", "{}")]).await.unwrap_err());
    is_told(&tx.set_savepoint().await.unwrap_err());
    tx.rollback().await.unwrap_err();
    assert_eq!(made(&store).await, [0]);
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.execute("INSERT INTO made VALUES (5)").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(made(&store).await, [0, 5]);
}
