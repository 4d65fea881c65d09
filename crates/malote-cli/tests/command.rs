//! The command as people and scripts call it: what it prints, and how it ends.

mod common;

use common::{command, ended, folder, malote, root};
use std::fs;

const SENDER: &str = r#"{"services": [{"name": "a", "emits": [{"type": "x.v1", "topic": "x.v1"}]}]}"#;
const RECEIVER: &str = r#"{"services": [{"name": "b", "routes": [
    {"consumes": {"type": "x.v1", "topic": "x.v1"}, "by": "handler", "emits": []}]}]}"#;

#[test]
fn map_prints_the_flow_that_the_repository_names() {
    let (text, err) = ended(&malote(&root(), &["map"]), 0);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("(edge)") && words.contains("payment.approved.v1 → ledger"), "{text}");
    assert!(words.contains("stock.reserve.v1 → inventory") && text.contains("# place-order version 1"), "{text}");
    assert_eq!(err, "");
    // from any folder below
    assert_eq!(ended(&malote(&root().join("crates/malote-cli/src"), &["map"]), 0).0, text);
    let (payments, orders) = ("examples/payments/flow.json", "examples/orders/flow.json");
    assert_eq!(ended(&malote(&root(), &["map", payments, orders]), 0).0, text);
    let json = ended(&malote(&root(), &["map", "--format", "json", payments]), 0).0;
    assert_eq!(json, fs::read_to_string(root().join(payments)).expect("readable"));
    let mermaid = ended(&malote(&root(), &["map", "--format", "mermaid"]), 0).0;
    assert!(mermaid.starts_with("flowchart LR\n") && mermaid.contains("fraud[\"fraud\"]"), "{mermaid}");
    let dot = ended(&malote(&root(), &["map", "--format", "dot"]), 0).0;
    assert!(dot.starts_with("digraph flow {\n") && dot.ends_with("}\n"), "{dot}");
}

#[test]
fn map_puts_several_documents_together() {
    let files =
        folder(&[("a.json", SENDER), ("deep/b.json", RECEIVER), ("malote.toml", "flows = ['a.json', 'deep/b.json']")]);
    let together = ended(&malote(files.path(), &["map"]), 0).0;
    assert_eq!(together, "(edge)  →  a  →  x.v1\nx.v1    →  b  →  (nothing)\n");
    assert_eq!(ended(&malote(files.path(), &["map", "a.json", "deep/b.json"]), 0).0, together);
    assert_eq!(ended(&malote(&files.path().join("deep"), &["map"]), 0).0, together);
}

#[test]
fn map_tells_faults_and_ends_with_1() {
    let files = folder(&[("a.json", SENDER), ("b.json", RECEIVER)]);
    let (out, err) = ended(&malote(files.path(), &["map", "a.json"]), 1);
    assert!(out.contains("x.v1") && err.contains("a emits x.v1, and nobody consumes it"), "{out}{err}");
    let (_, err) = ended(&malote(files.path(), &["map", "b.json", "--format", "json"]), 1);
    assert!(err.contains("b consumes x.v1, and nobody emits it"), "{err}");
    let (_, err) = ended(&malote(files.path(), &["map", "a.json", "b.json", "b.json"]), 1);
    assert!(err.contains("two services are named b"), "{err}");
}

/// A service that coordinates a saga of one step, and what is in its document beside.
fn with_saga(more: &str) -> String {
    let event = |name: &str| format!(r#"{{"type": "{name}", "topic": "t"}}"#);
    let (pay, paid) = (event("pay.v1"), event("paid.v1"));
    format!(
        r#"{{"services": [{{"name": "shop", "emits": [{pay}],
            "routes": [{{"consumes": {paid}, "by": "saga", "emits": []}}],
            "sagas": [{{"saga": "buy", "version": 3, "steps": [{{"stage": 0, "name": "take money", "kind": "pivot",
                "per_part": false, "conditional": false, "deadline_ms": 30000, "attempts": 20, "undone_by": [],
                "asks": {{"command": {pay}, "done": {paid}, "refused": null}}}}]}}]{more}}}]}}"#
    )
}

fn till(answer: &str) -> String {
    format!(
        r#"{{"services": [{{"name": "till", "routes": [{{"consumes": {{"type": "pay.v1", "topic": "t"}}, "by": "handler",
            "emits": [{{"type": "{answer}", "topic": "t"}}]}}]}}]}}"#
    )
}

#[test]
fn map_shows_sagas_as_tables_and_pictures() {
    let files = folder(&[("shop.json", &with_saga("")), ("till.json", &till("paid.v1"))]);
    let map = |more: &[&str]| malote(files.path(), &[&["map", "shop.json", "till.json"], more].concat());
    let (text, err) = ended(&map(&[]), 0);
    assert!(text.contains("pay.v1") && text.contains("# buy version 3\n"), "{text}");
    assert!(
        text.contains("| take money | pivot |") && text.contains("coordinated by shop") && err.is_empty(),
        "{text}"
    );
    let table = ended(&map(&["--saga", "buy"]), 0).0;
    assert!(table.starts_with("# buy version 3\n"), "{table}");
    assert_eq!(ended(&map(&["--saga", "buy@3"]), 0).0, table);
    let picture = ended(&map(&["--saga", "buy", "--format", "mermaid"]), 0).0;
    assert!(picture.starts_with("flowchart TD\n") && picture.contains("take money"), "{picture}");
    let json = ended(&map(&["--format", "json"]), 0).0;
    assert!(json.contains("\"sagas\""), "{json}");
    for (arguments, said) in [
        (["--saga", "sell", "--format", "text"], "there are buy@3"),
        (["--saga", "buy@2", "--format", "text"], "there are buy@3"),
        (["--saga", "buy@x", "--format", "text"], "NAME@VERSION"),
        (["--saga", "buy", "--format", "dot"], "not as dot"),
    ] {
        let (out, err) = ended(&map(&arguments), 2);
        assert!(out.is_empty() && err.contains(said), "{arguments:?}: {out}{err}");
    }
}

#[test]
fn map_tells_what_is_wrong_with_sagas() {
    let mistakes = r#", "mistakes": ["the step \"take money\" may be left out"]"#;
    let files = folder(&[
        ("shop.json", &with_saga("")),
        ("wrong.json", &with_saga(mistakes)),
        ("till.json", &till("paid.v1")),
        ("other.json", &till("paid.v2")),
    ]);
    let (_, err) = ended(&malote(files.path(), &["map", "shop.json"]), 1);
    let said =
        "saga buy version 3 of shop asks for pay.v1 in its step \"take money\", and nobody handles it: add .command(…)";
    assert!(err.contains(said), "{err}");
    let (_, err) = ended(&malote(files.path(), &["map", "wrong.json", "till.json"]), 1);
    assert!(err.contains("shop would not start: the step \"take money\" may be left out"), "{err}");
    let (_, err) = ended(&malote(files.path(), &["map", "shop.json", "other.json"]), 1);
    assert!(err.contains("awaits paid.v1 as the answer to pay.v1, and till gives paid.v2"), "{err}");
}

#[test]
fn map_says_what_it_cannot_read_and_ends_with_2() {
    for (files, arguments, said) in [
        (vec![], vec!["map", "missing.json"], "missing.json"),
        (vec![("bad.json", "{")], vec!["map", "bad.json"], "bad.json: not a flow document"),
        (vec![("empty.json", "{\"services\": []}")], vec!["map", "empty.json"], "without services"),
        (vec![("other.json", "[1]")], vec!["map", "other.json"], "not a flow document"),
        (vec![("malote.toml", "flows = []")], vec!["map"], "names no document"),
        (vec![("malote.toml", "flow = ['a.json']")], vec!["map"], "flow"),
        (vec![("malote.toml", "flows = [")], vec!["map"], "malote.toml"),
        (vec![("malote.toml", "flows = ['missing.json']")], vec!["map"], "missing.json"),
        (vec![], vec!["map", "--format", "pdf"], "pdf"),
        (vec![], vec!["draw"], "draw"),
        (vec![], vec!["migrate"], "--store"),
    ] {
        let files = folder(&files);
        let (out, err) = ended(&malote(files.path(), &arguments), 2);
        assert!(out.is_empty() && err.contains(said), "{arguments:?}: {out}{err}");
    }
}

#[test]
fn map_without_settings_says_how_to_write_them() {
    let files = folder(&[]);
    let (_, err) = ended(&malote(files.path(), &["map"]), 2);
    assert!(err.contains("malote.toml") && err.contains("flows = "), "{err}");
}

#[test]
fn migrate_makes_the_tables_of_a_file_and_may_be_repeated() {
    let files = folder(&[]);
    let (_, err) = ended(&malote(files.path(), &["status", "--store", "ledger.db"]), 2);
    assert!(err.contains("there is no such file, seen from ") && !files.path().join("ledger.db").exists(), "{err}");
    let (_, err) = ended(&malote(files.path(), &["status", "--store", "."]), 2);
    assert!(err.contains("it is a folder"), "{err}");
    for (store, taken) in [("ledger.db", ", 3 steps taken"), ("sqlite:ledger.db", ""), ("ledger.db", "")] {
        let (out, _) = ended(&malote(files.path(), &["migrate", "--store", store]), 0);
        assert_eq!(out, format!("ledger: malote's tables are up to date{taken}\n"));
    }
    // what was changed was changed once
    let (out, _) = ended(&malote(files.path(), &["audit", "--store", "ledger.db", "--json"]), 0);
    let acts: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let acts = acts.as_array().expect("an array");
    assert!(acts.len() == 1 && acts[0]["act"] == "migrate" && acts[0]["outcome"] == "3 steps taken", "{acts:?}");
    let file = fs::read(files.path().join("ledger.db")).expect("readable");
    assert!(file.windows(13).any(|bytes| bytes == b"malote_outbox"));
}

#[test]
fn migrate_makes_the_tables_of_a_database() {
    let Some(url) = malote_testkit::servers::fresh_database("cli") else { return };
    let files = folder(&[]);
    let both: Vec<_> = (0..2)
        .map(|_| command(files.path()).arg("migrate").env("MALOTE_STORE", &url).spawn().expect("starts"))
        .collect();
    for mut one in both {
        assert!(one.wait().expect("ends").success());
    }
    ended(&malote(files.path(), &["migrate", "--store", &url]), 0);
}

#[test]
fn migrate_says_what_is_wrong_without_the_password() {
    let files = folder(&[("text.db", "this is no database, whatever its name says, and long enough to be looked at")]);
    for (store, said) in [
        ("mysql://u:canary@h/d", "postgres://"),
        ("postgres://u:canary@[/d", "postgres://user:password@host"),
        ("postgres://u:canary@127.0.0.1:1/d", "connecting to PostgreSQL"),
        ("no/such/folder/x.db", "no/such/folder/x.db"),
        ("text.db", "text.db"),
    ] {
        let (out, err) = ended(&malote(files.path(), &["migrate", "--store", store]), 2);
        assert!(out.is_empty() && err.contains(said) && !err.contains("canary"), "{store}: {err}");
    }
}
