//! Whose database is meant, and what is said where that is not clear.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Failure, Runtime, retry::Policy, sqlite::Sqlite};
use serde_json::Value;
use std::{fs, path::Path, process::Output};

/// In a folder, with variables.
fn with(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    command(folder).args(arguments).envs(variables.iter().copied()).output().expect("starts")
}

fn services(output: &Output) -> Vec<String> {
    let (out, _) = ended(output, 0);
    let rows: Value = serde_json::from_str(&out).expect("a document");
    rows.as_array().expect("an array").iter().map(|row| row["service"].as_str().expect("text").to_owned()).collect()
}

/// Files with malote's tables.
fn migrated(folder: &Path, names: &[&str]) {
    for name in names {
        ended(&malote(folder, &["migrate", "--store", name]), 0);
    }
}

#[test]
fn services_are_found_in_the_order_that_help_says() {
    let files = folder(&[
        ("malote.toml", "[services.a]\nstore = \"a.db\"\n[services.b]\nstore = \"sqlite:${DEEP}/b.db\"\n"),
        ("deep/x", ""),
        ("data/log.db", "SQLite format 3\0 and then no database at all"),
        ("told/readme", ""),
    ]);
    let at = files.path();
    fs::remove_file(at.join("data/log.db")).expect("removed");
    migrated(at, &["a.db", "deep/b.db", "data/c.db", "told/d.db", "told/e.db", "told/f"]);
    let status = ["status", "--json"];
    let deep = ("DEEP", "deep");
    assert_eq!(services(&with(at, &[deep], &status)), ["a", "b"]);
    assert_eq!(services(&with(&at.join("deep"), &[deep], &status)), ["a", "b"], "from a folder below");
    assert_eq!(services(&with(at, &[deep, ("MALOTE_DATA", "told")], &status)), ["d", "e", "f"]);
    assert_eq!(services(&with(at, &[deep, ("MALOTE_DATA", "told"), ("MALOTE_STORE", "a.db")], &status)), ["a"]);
    assert_eq!(
        services(&with(at, &[deep, ("MALOTE_STORE", "a.db")], &["status", "--json", "--store", "told/f"])),
        ["f"]
    );
    assert_eq!(services(&with(at, &[deep], &["status", "--json", "--service", "b"])), ["b"]);
    assert_eq!(services(&malote(at, &["status", "--json", "--store", "told/f", "--service", "f"])), ["f"]);
    let (out, err) = ended(&malote(at, &["status", "--store", "told/f", "--service", "payments"]), 2);
    assert!(out.is_empty() && err.contains("that of \"f\", not of \"payments\""), "{err}");
    let (_, err) = ended(&malote(at, &status), 2);
    assert!(err.contains("services.b.store") && err.contains("DEEP"), "{err}");
    let (_, err) = ended(&with(at, &[deep], &["status", "--service", "z"]), 2);
    assert!(err.contains("only a, b"), "{err}");
    fs::remove_file(at.join("malote.toml")).expect("removed");
    assert_eq!(services(&malote(at, &status)), ["c"]);
}

#[test]
fn a_name_stands_in_the_url_for_each_service_of_the_flow() {
    let flow = r#"{"services": [{"name": "a"}, {"name": "b"}]}"#;
    let files = folder(&[("flow.json", flow), ("malote.toml", "flows = ['flow.json']")]);
    migrated(files.path(), &["x-a.db", "x-b.db", "x-c.db"]);
    let store = ("MALOTE_STORE", "x-{service}.db");
    assert_eq!(services(&with(files.path(), &[store], &["status", "--json"])), ["a", "b"]);
    assert_eq!(services(&with(files.path(), &[store], &["status", "--json", "--service", "c"])), ["c"]);
    let (out, _) = ended(&with(files.path(), &[store], &["status"]), 0);
    assert!(out.contains("\na ") && out.contains("\nb "), "{out}");
    fs::remove_file(files.path().join("malote.toml")).expect("removed");
    let (_, err) = ended(&with(files.path(), &[store], &["status"]), 2);
    assert!(err.contains("--service"), "{err}");
}

#[test]
fn of_several_services_one_that_is_away_keeps_none_of_the_others_from_being_seen() {
    let files = folder(&[("malote.toml", "[services.a]\nstore = 'a.db'\n[services.b]\nstore = 'b.db'\n")]);
    migrated(files.path(), &["a.db"]);
    for command in [&["status"][..], &["dead", "list"], &["parked"], &["outbox"], &["relay"], &["audit"]] {
        let (out, err) = ended(&malote(files.path(), command), 2);
        assert!(!out.is_empty() && err.starts_with("malote: b: ") && err.contains("b.db"), "{command:?}: {out}{err}");
    }
    let (out, _) = ended(&malote(files.path(), &["doctor"]), 2);
    assert!(out.lines().nth(1).is_some_and(|first| first.contains("fault  connection")), "{out}");
    // an act is not done by halves
    let (_, err) = ended(&malote(files.path(), &["dead", "redrive", "--all", "--reason", "x", "--yes"]), 2);
    assert!(err.starts_with("malote: b: "), "{err}");
    assert!(!files.path().join("b.db").exists(), "looking makes no file");
}

#[test]
fn looking_changes_no_file_of_somebody_else() {
    let files = folder(&[("data/text.db", "no database"), ("empty.db", "")]);
    fs::create_dir(files.path().join("data/folder.db")).expect("made");
    let (_, err) = ended(&malote(files.path(), &["status"]), 2);
    assert!(err.contains("no demonstration") && err.contains("MALOTE_DATA"), "{err}");
    for store in ["missing.db", "empty.db", "data/text.db", "data/folder.db", "."] {
        let (_, err) = ended(&malote(files.path(), &["dead", "list", "--store", store]), 2);
        assert!(err.contains(store), "{err}");
    }
    assert!(!files.path().join("missing.db").exists());
    assert_eq!(fs::read(files.path().join("empty.db")).expect("read"), b"");
    assert_eq!(fs::read_dir(files.path()).expect("read").count(), 2, "no file beside");
}

#[test]
fn bad_input_is_explained_and_no_secret_is_told() {
    let files = folder(&[]);
    migrated(files.path(), &["a.db"]);
    let store = ["--store", "a.db"];
    for (arguments, said) in [
        (&["dead", "redrive", "--all", "--yes"][..], "--reason"),
        (&["dead", "redrive", "--all", "--yes", "--reason", "  "], "empty"),
        (&["dead", "redrive", "--all", "--yes", "--reason", "x", "--actor", ""], "empty"),
        (&["dead", "redrive", "--reason", "x", "--yes"], "--all"),
        (&["dead", "discard", "--reason", "x", "--yes"], "--all"),
        (&["retry", "--reason", "x", "--yes"], "--all"),
        (&["replay", "--reason", "x", "--yes"], "--all"),
        (&["dead", "discard", "--all", "7", "--reason", "x", "--yes"], "--all"),
        (&["dead", "discard", "--all", "--key", "k", "--reason", "x", "--yes"], "--all"),
        (&["dead", "redrive", "seven", "--reason", "x"], "seven"),
        (&["dead", "redrive", "--all", "--rate", "0", "--reason", "x"], "--rate"),
        (&["dead", "show"], "<ID>"),
        (&["dead", "show", "7"], "no such dead letter"),
        (&["dead", "list", "--class", "fatal"], "fatal"),
        (&["dead", "list", "--by", "the relay"], "relay NAME"),
        (&["parked", "--by", "relay ledger"], "a relay parks nothing"),
        (&["dead", "list", "--since", "yesterday"], "2h"),
        (&["dead", "list", "--most", "0"], "--most"),
        (&["outbox", "--until", "1y"], "1y"),
        (&["status", "--max-age", "1h"], "--check"),
        (&["status", "--check", "--max-age", "soon"], "soon"),
        (&["prune", "everything", "--older-than", "9d"], "everything"),
        (&["prune", "inbox"], "--older-than"),
        (&["prune", "inbox", "--older-than", "1d", "--dry-run"], "--although-short"),
        (&["prune", "tombstones", "--older-than", "1d", "--dry-run"], "--although-short"),
        (&["prune", "operations", "--older-than", "1d", "--dry-run"], "--although-short"),
        (&["replay", "--all", "--most", "0", "--reason", "x"], "--most"),
        (&["demo", "break", "a"], "--class"),
        (&["status", "postgres://u:canary@h/d"], "unexpected argument"),
        (&["dead"], "redrive"),
    ] {
        let place = if arguments.first() == Some(&"demo") || arguments == ["dead"] { &[][..] } else { &store };
        let (out, err) = ended(&malote(files.path(), &[arguments, place].concat()), 2);
        assert!(out.is_empty() && err.contains(said) && !err.contains("canary"), "{arguments:?}: {out}{err}");
    }
    for (store, said) in [
        ("mysql://u:canary@h/d", "mysql"),
        ("postgres://u:canary@[/d", "postgres://user:password@host"),
        ("postgres://u:canary/{service}@h/d", "--service"),
    ] {
        for command in [&["status"][..], &["dead", "list", "--json"], &["doctor"], &["migrate"]] {
            let (out, err) = ended(&malote(files.path(), &[command, &["--store", store]].concat()), 2);
            let all = out + &err;
            assert!(all.contains(said) && !all.contains("canary"), "{store} {command:?}: {all}");
        }
    }
    // one that refuses is asked for some seconds
    let asked = |command: &[&str], store: &str| {
        let (out, err) = ended(&malote(files.path(), &[command, &["--store", store]].concat()), 2);
        let all = out + &err;
        assert!(all.contains("PostgreSQL at 127.0.0.1:1, database ") && all.contains("Connection refused"), "{all}");
        assert!(!all.contains("canary"), "{store}: {all}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| asked(&["status"], "postgres://u:canary@127.0.0.1:1/d"));
        scope.spawn(|| asked(&["doctor"], "postgres://u:canary@127.0.0.1:1/d?password=canary"));
        scope.spawn(|| asked(&["migrate"], "postgres://u:canary@127.0.0.1:1"));
    });
    for (settings, said) in [
        ("[services.a]\nstore = 'postgres://u:canary@h/d", "line 2, column "),
        ("[services.a]\nstore = 'postgres://u:canary@h/d", "literal string"),
        ("flows = []\n\n[services.a\nstore = 'postgres://u:canary@h/d'", "line 3, column "),
        ("[services.a]\nstore = postgres://u:canary@h/d", "invalid string"),
        ("[services.a]\nstore = 'x'\nstore = 'postgres://u:canary@h/d'", "duplicate key"),
        ("[services]\na = 'postgres://u:canary@h/d'", "services.a"),
        ("[services.a]\nstore = 'postgres://u:canary@[/d'", "postgres://user:password@host"),
        ("[services.a]\nstore = 'postgres://u:canary@h/d", "malote.toml"),
        ("[services.a]\nstore = ['postgres://u:canary@h/d']", "services.a.store"),
        ("[services.a]\nstores = 'postgres://u:canary@h/d'", "`stores`"),
        ("[services.a]\nschema = 'canary'", "`store`"),
        ("[services.a]\nstore = 'postgres://u:canary@h/${D'", "services.a.store"),
        ("[services.a]\nstore = 'redis://u:canary@h/'", "redis"),
        ("services = 'canary'", "services"),
    ] {
        fs::write(files.path().join("malote.toml"), settings).expect("written");
        let (out, err) = ended(&malote(files.path(), &["status"]), 2);
        assert!(err.contains(said) && !(out + &err).contains("canary"), "{settings}: {err}");
    }
}

#[test]
fn help_says_how_commands_end() {
    let here = folder(&[]);
    let (out, _) = ended(&malote(here.path(), &["--help"]), 0);
    assert!(out.contains("Exit codes") && out.contains("  3  an act that was refused"), "{out}");
    for command in ["status", "outbox", "parked", "dead", "retry", "relay", "scheduled", "audit", "replay", "erase"] {
        let help = ended(&with(here.path(), &[("MALOTE_STORE", "postgres://u:canary@h")], &[command, "--help"]), 0).0;
        assert!(!help.contains("canary"), "{help}");
    }
    assert!(ended(&malote(here.path(), &["--version"]), 0).0.starts_with("malote "));
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_several_services_have_need_the_service() {
    let files = folder(&[("data/x", "")]);
    let data = files.path().join("data");
    for name in ["a", "b"] {
        let here = data.join(name);
        fs::create_dir(&here).expect("made");
        let (store, url) = Sqlite::fresh(&here).await.expect("made");
        let (books, log) = (Books::default(), log(&here).await);
        let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
        books.fail(|_| true, || Failure::reject("no"));
        publish(&store, &[moved("k", 1)]).await;
        Asked::of(&url).until(&["dead", "list"], |found| rows(found) == 1).await;
        running.stop().await;
        store.close().await;
        fs::rename(&url, data.join(format!("{name}.db"))).expect("moved");
    }
    let at = files.path();
    let (out, _) = ended(&malote(at, &["dead", "list"]), 0);
    assert!(out.starts_with("SERVICE  ID") && out.lines().count() == 3, "{out}");
    let act = ["--reason", "x", "--yes"];
    for command in [&["dead", "show", "1"][..], &[&["dead", "redrive", "1"], &act[..]].concat()] {
        let (_, err) = ended(&malote(at, command), 2);
        assert!(err.contains("a and b both have") && err.contains("--service"), "{err}");
    }
    let show = ended(&malote(at, &["dead", "show", "1", "--service", "b"]), 0).0;
    assert!(show.contains("1 of b"), "{show}");
    let (out, _) = ended(&malote(at, &[&["dead", "discard", "1", "--service", "b"], &act[..]].concat()), 0);
    assert_eq!(out, "1 dead letter discarded\n");
    // now one has it only
    let (out, _) = ended(&malote(at, &[&["dead", "discard", "1"], &act[..]].concat()), 0);
    assert_eq!(out, "1 dead letter discarded\n");
    let (out, _) = ended(&malote(at, &[&["dead", "redrive", "--all"], &act[..]].concat()), 0);
    assert_eq!(out, "no dead letters redriven\n");
}

#[test]
fn a_demonstration_is_broken_and_mended() {
    let files = folder(&[("data/mailbox/x", ""), ("other/x", "")]);
    migrated(files.path(), &["data/ledger.db", "data/fraud.db"]);
    let fault = files.path().join("data/faults/ledger");
    for class in ["transient", "final", "transient"] {
        let (out, _) = ended(&malote(files.path(), &["demo", "break", "ledger", "--class", class]), 0);
        assert!(out.contains(class) && out.contains("malote demo mend ledger"), "{out}");
        assert_eq!(fs::read_to_string(&fault).expect("read").trim(), class);
    }
    assert_eq!(fs::read_dir(files.path().join("data/faults")).expect("read").count(), 1);
    let mended = || ended(&malote(files.path(), &["demo", "mend", "ledger"]), 0).0;
    assert!(mended().contains("handles messages again"));
    assert!(!fault.exists());
    assert!(mended().contains("was not told to fail"));
    let (_, err) = ended(&malote(files.path(), &["demo", "break", "../../x", "--class", "final"]), 2);
    assert!(err.contains("no such service, only fraud, ledger"), "{err}");
    let (_, err) = ended(&malote(files.path(), &["demo", "break", "ledger", "--class", "fatal"]), 2);
    assert!(err.contains("transient, final"), "{err}");
    for folder in ["other", "none"] {
        let output = with(files.path(), &[("MALOTE_DATA", folder)], &["demo", "break", "ledger", "--class", "final"]);
        let (_, err) = ended(&output, 2);
        assert!(err.contains(&format!("{folder}: no demonstration")), "{err}");
    }
    assert!(!files.path().join("other/faults").exists());
}

/// A terminal is made by `script`, which every Linux has.
#[test]
fn on_a_terminal_an_act_is_asked_for_first() {
    let files = folder(&[]);
    migrated(files.path(), &["a.db"]);
    let put = "INSERT INTO malote_dead (by, what, topic, reason, attempts, record_headers, first_at, last_at) \
               VALUES ('consumer a', 'x', 't', 'why', 1, '[]', 0, 0)";
    rusqlite::Connection::open(files.path().join("a.db")).and_then(|file| file.execute(put, [])).expect("written");
    let answered = |answer: &str| {
        use std::{io::Write as _, process::Stdio};
        let line = format!("{} dead discard --all --reason x --store a.db", env!("CARGO_BIN_EXE_malote"));
        let mut script = std::process::Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(files.path());
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        script.stdin.take().expect("piped").write_all(answer.as_bytes()).expect("written");
        script.wait_with_output().expect("ends")
    };
    let (out, _) = ended(&answered("n\n"), 3);
    assert!(out.contains("1 dead letter would be discarded") && out.contains("[y/N]"), "{out}");
    assert!(out.contains("nothing was done"), "{out}");
    let (out, _) = ended(&answered("y\n"), 0);
    assert!(out.contains("1 dead letter discarded"), "{out}");
    let (out, _) = ended(&answered(""), 0);
    assert!(out.contains("no dead letters discarded") && !out.contains("[y/N]"), "{out}");
}

#[test]
fn what_could_not_be_asked_is_not_said_to_be_empty() {
    let files = folder(&[("text.db", "no database")]);
    for look in [&["relay"][..], &["parked"], &["dead", "list"], &["outbox"], &["audit"]] {
        let (out, err) = ended(&malote(files.path(), &[look, &["--store", "text.db"]].concat()), 2);
        assert!(out.is_empty() && err.contains("text"), "{look:?}: {out}{err}");
    }
}

/// Whichever act it is: an act on one saga looks for its saga first.
#[test]
fn without_a_terminal_an_act_that_nobody_confirmed_ends_in_one_way() {
    let files = folder(&[]);
    migrated(files.path(), &["a.db"]);
    let saga = "INSERT INTO malote_saga (id, definition, version, status, heading, on_request, state, legs, entries, revision, steps, started_at, changed_at) \
                VALUES ('5a110000-0000-7000-8000-000000000001', 'purchase', 1, 'running', 'do', 0, '{}', '[]', 0, 1, '[]', 0, 0)";
    rusqlite::Connection::open(files.path().join("a.db")).and_then(|file| file.execute(saga, [])).expect("written");
    for act in [
        &["dead", "redrive", "--all"][..],
        &["dead", "discard", "--all"],
        &["retry", "--all"],
        &["replay", "--all"],
        &["erase", "k"],
        &["prune", "audit", "--older-than", "9d"],
        &["saga", "retry", "5a11"],
        &["saga", "skip", "5a11", "--step", "x"],
        &["saga", "compensate", "5a11"],
        &["saga", "abandon", "5a11"],
    ] {
        let (out, err) = ended(&malote(files.path(), &[act, &["--reason", "x", "--store", "a.db"]].concat()), 3);
        assert!(out.is_empty() && err.contains("say --yes") && err.contains("nothing was done"), "{act:?}: {out}{err}");
    }
}
