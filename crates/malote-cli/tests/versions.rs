//! Tables of another version than the command's.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{postgres::Postgres, sqlite::Sqlite};
use sqlx::{AssertSqlSafe, Executor};

on_each_store!(tables_that_are_old_or_not_there_are_told_before_anything_is_asked, newer_tables_are_looked_at_and_told);

/// What is asked of every version.
const LOOKS: [&[&str]; 9] = [
    &["status"],
    &["outbox"],
    &["parked"],
    &["dead", "list"],
    &["dead", "show", "1"],
    &["saga", "list"],
    &["saga", "show", "5a11"],
    &["saga", "describe", "purchase"],
    &["audit"],
];
const ACTS: [&[&str]; 3] = [&["dead", "redrive", "--all"], &["retry", "--all"], &["saga", "abandon", "5a11"]];

/// A store whose tables can be made what they are not.
#[allow(async_fn_in_trait)]
trait Versions: TestStore {
    /// Without any tables.
    async fn empty(folder: &std::path::Path) -> Option<(Self, String)>;
    async fn run(&self, statements: &str);
    /// How the tables of version 2 were made.
    const SECOND: &[&str];
    /// The version is what it is not yet, and something is not there any more.
    const LATER: &str;
}

impl Versions for Sqlite {
    async fn empty(folder: &std::path::Path) -> Option<(Self, String)> {
        let url = folder.join("ledger.db").to_str().expect("text").to_owned();
        Some((Sqlite::open(&url).await.expect("opened"), url))
    }
    async fn run(&self, statements: &str) {
        let mut tx = malote::Outbox::new("test", self.clone()).begin().await.expect("begun");
        tx.execute(AssertSqlSafe(statements.to_owned())).await.expect("done");
        tx.commit().await.expect("committed");
    }
    const SECOND: &[&str] = &[
        include_str!("../../malote-sqlite/sql/migrations.sql"),
        include_str!("../../malote-sqlite/sql/migrations/0001_first.sql"),
        include_str!("../../malote-sqlite/sql/migrations/0002_waiting.sql"),
        "INSERT INTO malote_migration (number, name) VALUES (1, 'first'), (2, 'waiting')",
    ];
    const LATER: &str = "INSERT INTO malote_migration (number, name) VALUES (99, 'later'); \
                         ALTER TABLE malote_dead RENAME TO malote_letter";
}

impl Versions for Postgres {
    async fn empty(_: &std::path::Path) -> Option<(Self, String)> {
        let url = malote_testkit::servers::fresh_database("ledger")?;
        Some((Postgres::connect(&url).await.expect("connected"), url))
    }
    async fn run(&self, statements: &str) {
        self.pool().execute(AssertSqlSafe(statements.to_owned())).await.expect("done");
    }
    const SECOND: &[&str] = &[
        "CREATE SCHEMA malote; CREATE TABLE malote.migration \
         (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        include_str!("../../malote-postgres/sql/migrations/0001_first.sql"),
        include_str!("../../malote-postgres/sql/migrations/0002_waiting.sql"),
        "INSERT INTO malote.migration (version, name) VALUES (1, 'first'), (2, 'waiting')",
    ];
    const LATER: &str = "INSERT INTO malote.migration (version, name) VALUES (99, 'later'); \
                         ALTER TABLE malote.dead RENAME TO letter";
}

async fn tables_that_are_old_or_not_there_are_told_before_anything_is_asked<S: Versions>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::empty(folder.path()).await else { return };
    let cli = Asked::of(&url);
    let all = || {
        let acts = ACTS.iter().map(|act| [act, &["--reason", "x", "--yes"][..]].concat());
        LOOKS.iter().map(|look| look.to_vec()).chain(acts).collect::<Vec<_>>()
    };
    for arguments in all() {
        let (_, err) = cli.ends(2, &arguments);
        assert!(err.contains("no tables of malote; `malote migrate` makes them"), "{arguments:?}: {err}");
    }
    for step in S::SECOND {
        store.run(step).await;
    }
    for arguments in all() {
        let (out, err) = cli.ends(2, &arguments);
        let told = "its tables are of version 2, and this malote needs 3: run `malote migrate`";
        assert!(err.contains(told) && err.lines().count() == 1, "{arguments:?}: {out}{err}");
    }
    // what is wrong is the doctor's to say, whatever the version
    assert!(cli.ends(1, &["doctor"]).0.contains("`malote migrate`"));
    cli.ends(0, &["migrate"]);
    cli.ends(0, &["status"]);
}

async fn newer_tables_are_looked_at_and_told<S: Versions>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let cli = Asked::of(&url);
    store.run(S::LATER).await;
    let told = "its tables are of version 99, and this malote knows 3";
    // what is as it was still answers
    cli.ends(0, &["outbox"]);
    for look in [&["status"][..], &["dead", "list"], &["dead", "show", "1"], &["dead", "redrive", "--all", "--dry-run"]]
    {
        let (_, err) = cli.ends(2, look);
        assert!(err.contains(told), "{look:?}: {err}");
    }
}
