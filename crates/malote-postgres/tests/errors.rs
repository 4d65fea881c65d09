//! What went wrong is told by codes; and only the inbox's own key means "handled already".
#![allow(missing_docs)]

mod common;

use common::{open, sealer};
use malote_core::{Admission, Claim, Class, IdempotencyStore, RequestKey, Store};
use malote_postgres::Tx;
use sqlx::Executor;
use std::time::Duration;
use uuid::Uuid;

fn event() -> Admission {
    Admission { event_id: Uuid::now_v7(), day: Default::default() }
}

/// A server that speaks German, as far as a trigger can make it: the code is the same, the words are not.
const GERMAN: &str = "
    CREATE FUNCTION raise(code text, words text) RETURNS void LANGUAGE plpgsql AS
        $$BEGIN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = words; END$$";

/// Duplicates alone and in batches are known and no error; conflicts and violations are classed alike in any language.
#[tokio::test]
async fn ac_044_codes_count_and_not_words() {
    let Some(store) = open().await else { return };
    store.pool().execute(GERMAN).await.unwrap();
    let (a, b, c) = (event(), event(), event());
    for (batch, new) in [(vec![a], vec![true]), (vec![a], vec![false]), (vec![b, a, c], vec![true, false, true])] {
        let mut tx = store.begin(sealer()).await.unwrap();
        assert_eq!(store.admit(&mut tx, "ledger", &batch).await.unwrap(), new);
        tx.commit().await.unwrap();
    }
    let request = RequestKey { caller: "c".into(), scope: "POST /".into(), key: "k".into() };
    let claim = || store.claim(&request, &[0; 32], Uuid::now_v7(), Duration::from_secs(60));
    assert_eq!(claim().await.unwrap(), Claim::Won);
    assert!(matches!(claim().await.unwrap(), Claim::Running(_)));
    let cases = [
        ("40001", "Zugriff konnte nicht serialisiert werden wegen gleichzeitiger Aktualisierung", Class::Conflict),
        ("40P01", "Verklemmung (Deadlock) entdeckt", Class::Conflict),
        ("23505", "doppelter Schlüsselwert verletzt Unique-Constraint", Class::Transient),
        ("23505", "duplicar valor da chave viola a restrição de unicidade", Class::Transient),
        ("25006", "kann INSERT nicht in einer Read-Only-Transaktion ausführen", Class::Transient),
        ("23514", "could not serialize access, duplicate key, deadlock detected", Class::Final),
    ];
    for (code, words, class) in cases {
        let mut tx = store.begin(sealer()).await.unwrap();
        let raised = sqlx::query("SELECT raise($1, $2)").bind(code).bind(words).execute(&mut *tx).await;
        assert_eq!(store.classify(&raised.unwrap_err()), class, "{code} {words}");
    }
}

/// What a handler of somebody's does, that breaks a rule of somebody's tables.
async fn breaks(tx: &mut Tx, statement: &'static str) -> sqlx::Error {
    tx.execute(statement).await.unwrap_err()
}

/// Another unique key, a foreign key, a check, a missing value: each ends in another attempt or as a dead letter, both
/// counted, and none is taken for a duplicate.
#[tokio::test]
async fn ac_046_a_violation_is_no_duplicate() {
    let Some(store) = open().await else { return };
    let tables = "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0)); \
                  CREATE TABLE entry (id int PRIMARY KEY, account int REFERENCES account, EXCLUDE (account WITH =)); \
                  INSERT INTO account VALUES (1, 10); INSERT INTO entry VALUES (1, 1)";
    store.pool().execute(tables).await.unwrap();
    let cases = [
        ("INSERT INTO account VALUES (1, 10)", Class::Transient),
        ("INSERT INTO entry VALUES (2, 2)", Class::Transient),
        ("INSERT INTO entry VALUES (2, 1)", Class::Transient),
        ("UPDATE account SET balance = -1", Class::Final),
        ("UPDATE account SET balance = NULL", Class::Final),
        ("UPDATE account SET balance = 3000000000", Class::Final),
    ];
    for (statement, expected) in cases {
        let event = event();
        let mut tx = store.begin(sealer()).await.unwrap();
        assert_eq!(store.admit(&mut tx, "ledger", &[event]).await.unwrap(), [true]);
        let error = breaks(&mut tx, statement).await;
        assert_eq!(store.classify(&error), expected, "{statement}: {error}");
        // a handler that swallows it does not commit an admission of something that it has not done
        assert_eq!(tx.commit().await.unwrap_err().class, Class::Final);
        let mut tx = store.begin(sealer()).await.unwrap();
        assert_eq!(store.admit(&mut tx, "ledger", &[event]).await.unwrap(), [true], "{statement} counts as handled");
        tx.rollback().await.unwrap();
    }
    // nor is a violation of a rule that somebody has added to the inbox
    store.pool().execute("CREATE UNIQUE INDEX one_a_day ON malote.inbox (consumer, day)").await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    assert_eq!(store.admit(&mut tx, "ledger", &[event()]).await.unwrap(), [true]);
    let refused = store.admit(&mut tx, "ledger", &[event()]).await.unwrap_err();
    assert_eq!(refused.class, Class::Transient, "{refused:?}");
}
