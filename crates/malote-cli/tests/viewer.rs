//! The rights that `docs/operating/README.md` grants to a role that may only look: they are enough, and none is too many.
#![allow(missing_docs)]

mod common;

use common::{
    saga::{Bad, order, sagas},
    *,
};
use malote::postgres::Postgres;
use malote_testkit::servers::unique;
use sqlx::{AssertSqlSafe, Executor};
use std::fs;

/// Something of everything.
const ROWS: &str = "
    INSERT INTO malote.outbox (type, payload) VALUES ('thing.v1', '{}');
    INSERT INTO malote.dead (by, what, topic, reason, attempts, header_names, header_values)
        VALUES ('consumer ledger', 'x', 't', 'why', 1, '{}', '{}');
    INSERT INTO malote.saga (id, definition, version, status, heading, on_request, state, legs, entries, revision, steps)
        VALUES ('5a110000-0000-7000-8000-000000000001', 'purchase', 1, 'running', 'do', false, '{}', '[]', 0, 1, '[]');
    INSERT INTO malote.saga_act (saga, deed, actor, reason)
        VALUES ('5a110000-0000-7000-8000-000000000001', '\"compensate\"', 'ana', 'why');
    REVOKE EXECUTE ON FUNCTION malote.clock() FROM PUBLIC";

const LOOKS: [&[&str]; 11] = [
    &["status"],
    &["outbox"],
    &["parked"],
    &["dead", "list"],
    &["dead", "show", "1", "--payload"],
    &["saga", "list"],
    &["saga", "show", "5a11"],
    &["saga", "describe", "purchase"],
    &["relay"],
    &["scheduled"],
    &["audit"],
];

/// The statements of the page's section, for a role of this name.
fn granted(role: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/operating/README.md")).expect("read");
    let section = page.split("## A role that may only look").nth(1).expect("the section");
    let block = section.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).expect("its statements");
    let statements = block.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    statements.map(|statement| statement.replace("malote_viewer", role)).collect()
}

/// What a statement gives, each by itself: `SELECT ON malote.outbox`.
fn rights(statement: &str) -> Vec<String> {
    let Some((right, objects)) = statement.strip_prefix("GRANT ").and_then(|grant| grant.split_once(" ON ")) else {
        return Vec::new();
    };
    let (objects, _) = objects.split_once(" TO ").or_else(|| objects.split_once("TO ")).expect("to whom");
    let (kind, names) = match objects.split_once(' ') {
        Some((kind @ ("SCHEMA" | "SEQUENCE" | "FUNCTION"), name)) => (kind, name),
        _ => ("", objects),
    };
    names.split(',').map(|name| format!("{right} ON {kind} {}", name.trim())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_a_role_that_may_only_look_are_enough_and_not_too_many() {
    let files = folder(&[]);
    let Some((store, url)) = Postgres::fresh(files.path()).await else { return };
    let role = unique("viewer");
    let run = async |statement: String| {
        store.pool().execute(AssertSqlSafe(statement)).await.map(drop).expect("done");
    };
    // its definition is told by a process
    let (bad, sagas) = (Bad::default(), sagas(&store, 1));
    let running = order(&store, &log(files.path()).await, &bad, &sagas).await;
    Asked::of(&url).until(&["status"], |found| rows(&found[0]["saga_versions"]) == 1).await;
    running.stop().await;
    run(ROWS.into()).await;
    let statements = granted(&role);
    for statement in &statements {
        run(statement.clone()).await;
    }
    run(format!("ALTER ROLE {role} PASSWORD 'viewer'")).await;
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let viewer = Asked::of(&format!("{scheme}://{role}:viewer@{}", rest.rsplit_once('@').expect("a user").1));
    for look in LOOKS {
        viewer.ends(0, look);
    }
    let (_, err) = viewer.ends(2, &["retry", "--all", "--reason", "x", "--yes"]);
    assert!(err.contains("permission denied"), "{err}");

    let rights: Vec<_> = statements.iter().flat_map(|statement| rights(statement)).collect();
    assert_eq!(rights.len(), 15, "{rights:?}");
    for right in rights {
        run(format!("REVOKE {right} FROM {role}")).await;
        let fails = |look: &&[&str]| {
            let output = command(files.path()).args(*look).env("MALOTE_STORE", viewer.url()).output().expect("starts");
            output.status.code() == Some(2)
        };
        assert!(LOOKS.iter().any(fails), "nothing needs {right}");
        run(format!("GRANT {right} TO {role}")).await;
    }
}
