//! What becomes of a message that fails, as the person on call sees it, on both stores.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Failure, Runtime, retry::Policy};
use serde_json::{Value, json};

on_each_store!(
    a_message_that_fails_is_seen_retried_given_up_redriven_and_handled,
    ac_047_a_redrive_of_what_is_stale_is_refused_until_it_is_confirmed,
    what_is_discarded_is_gone_and_written_down,
    everything_works_while_the_service_is_down,
    acts_name_what_they_are_meant_for,
    what_was_published_is_replayed_and_handled_once,
    a_key_is_erased,
    the_doctor_finds_nothing_wrong_with_a_fresh_database,
    nothing_in_a_message_disturbs_the_output,
);

fn of_k(moved: &Moved) -> bool {
    moved.key == "k"
}

fn down() -> Failure {
    Failure::retry("the bank is away")
}

fn wrong() -> Failure {
    Failure::reject("there is no such account")
}

async fn a_message_that_fails_is_seen_retried_given_up_redriven_and_handled<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, twice()))).await;
    books.fail(of_k, down);
    publish(&store, &[moved("k", 1), moved("k", 2)]).await;

    // parked: the first with its error, the second behind it; another key goes on
    let parked = cli.until(&["parked"], |found| rows(found) == 2).await;
    publish(&store, &[moved("other", 3)]).await;
    books.until(&[moved("other", 3)]).await;
    assert_eq!(parked[0]["attempts"], 1, "{parked:#}");
    assert_eq!([&parked[0]["class"], &parked[0]["error"]], ["transient", "the bank is away"]);
    assert_eq!([&parked[0]["key"], &parked[0]["type"], &parked[0]["consumer"]], ["k", "moved.v1", "ledger"]);
    assert_eq!([&parked[1]["attempts"], &parked[1]["due_at"]], [&json!(0), &Value::Null], "{parked:#}");
    let text = cli.text(&["parked"]);
    assert!(text.contains("the bank is away") && text.contains("waits behind"), "{text}");
    let status = cli.json(&["status"]);
    assert_eq!([&status[0]["consumers"][0]["parked_keys"], &status[0]["consumers"][0]["parked_messages"]], [1, 2]);

    // each is given up after its second attempt, which somebody asks for
    for dead in 1..=2 {
        let acted = cli.json(&["retry", "--key", "k", "--reason", "they say it is back", "--yes"]);
        assert_eq!([&acted["act"], &acted["done"]], [&json!("retry"), &json!(1)], "{acted:#}");
        cli.until(&["dead", "list"], |found| rows(found) == dead).await;
    }
    let list = cli.json(&["dead", "list"]);
    assert_eq!([&list[0]["by"], &list[0]["class"]], ["consumer ledger", "transient"]);
    assert_eq!([&list[0]["attempts"], &list[1]["attempts"]], [2, 2]);
    let id = list[0]["id"].to_string();
    let shown = cli.json(&["dead", "show", &id, "--payload"]);
    assert_eq!(shown["history"].as_array().map(Vec::len), Some(2), "{shown:#}");
    assert_eq!(shown["record"]["payload"], r#"{"key":"k","n":1}"#);
    let text = cli.text(&["dead", "show", &id]);
    assert!(text.contains("the bank is away") && text.contains("malote dead redrive"), "{text}");
    assert!(!text.contains(r#""n":1"#), "the payload is private: {text}");
    assert!(cli.text(&["status"]).lines().count() == 2);

    // mended, redriven in order, handled once
    books.mend();
    let dry = cli.json(&["dead", "redrive", "--all", "--dry-run"]);
    assert_eq!([&dry["done"], &dry["dry_run"]], [&json!(2), &json!(true)]);
    let (out, _) = cli.ends(0, &["dead", "redrive", "--all", "--reason", "the bank is back", "--yes"]);
    assert_eq!(out, "2 dead letters redriven\n");
    books.until(&[moved("other", 3), moved("k", 1), moved("k", 2)]).await;
    cli.until(&["parked"], |found| rows(found) == 0).await;
    assert_eq!(rows(&cli.json(&["dead", "list"])), 0);
    let audit = cli.json(&["audit"]);
    let acts = audit.as_array().expect("an array");
    let reason = |reason: &str| acts.iter().any(|act| act["reason"] == reason && act["actor"] != "");
    assert!(reason("the bank is back") && reason("they say it is back"), "{audit:#}");
    assert!(acts.iter().all(|act| act["reason"] != "dry run"), "a dry run is no act: {audit:#}");
    running.stop().await;
}

async fn ac_047_a_redrive_of_what_is_stale_is_refused_until_it_is_confirmed<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
    books.fail(|moved| moved.n == 2, wrong);
    publish(&store, &[moved("k", 1)]).await;
    books.until(&[moved("k", 1)]).await;
    publish(&store, &[moved("k", 2)]).await;
    cli.until(&["dead", "list"], |found| rows(found) == 1).await;
    publish(&store, &[moved("k", 3)]).await;
    books.until(&[moved("k", 1), moved("k", 3)]).await;
    books.mend();

    let redrive = ["dead", "redrive", "--all", "--reason", "mended", "--yes"];
    let refused = cli.json_of(3, &redrive);
    assert_eq!([&refused["done"], &refused["refused"][0]["stale"]], [&json!(0), &json!(true)], "{refused:#}");
    let (out, _) = cli.ends(3, &redrive);
    assert!(out.contains("no dead letters redriven") && out.contains("NOT DONE BECAUSE"), "{out}");
    assert!(out.contains("--although-newer"), "{out}");
    assert_eq!(cli.json(&["dead", "list"])[0]["newer"], 1);
    assert_eq!(books.handled(), [moved("k", 1), moved("k", 3)]);
    let audit = cli.json(&["audit"]);
    assert!(audit[0]["outcome"].as_str().is_some_and(|outcome| !outcome.is_empty()), "{audit:#}");

    let (out, _) = cli.ends(0, &[&redrive[..], &["--although-newer"]].concat());
    assert_eq!(out, "1 dead letter redriven\n");
    books.until(&[moved("k", 1), moved("k", 3), moved("k", 2)]).await;
    running.stop().await;
}

async fn what_is_discarded_is_gone_and_written_down<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default().hold()))).await;
    books.fail(|moved| moved.n == 1, wrong);
    publish(&store, &[moved("k", 1), moved("k", 2)]).await;
    let dead = cli.until(&["dead", "list"], |found| rows(found) == 1).await;
    let parked = cli.until(&["parked"], |found| rows(found) == 1).await;
    assert_eq!([&dead[0]["holds_key"], &parked[0]["held"]], [true, true]);
    assert!(cli.text(&["parked"]).contains("held") && cli.text(&["dead", "list"]).contains("held"));

    let id = dead[0]["id"].to_string();
    let discard = ["dead", "discard", &id, "--actor", "maria", "--reason", "a test account", "--yes"];
    assert_eq!(cli.ends(0, &discard).0, "1 dead letter discarded\n");
    books.until(&[moved("k", 2)]).await;
    let audit = cli.json(&["audit"]);
    let act = [&audit[0]["actor"], &audit[0]["act"], &audit[0]["reason"]];
    assert_eq!(act, ["maria", "discard", "a test account"]);
    // once more: there is none any more
    let again = cli.json_of(3, &discard);
    assert_eq!([&again["done"], &again["refused"][0]["id"]], [&json!(0), &dead[0]["id"]]);
    running.stop().await;
}

async fn everything_works_while_the_service_is_down<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
    books.fail(|_| true, wrong);
    publish(&store, &[moved("a", 1), moved("b", 2)]).await;
    cli.until(&["dead", "list"], |found| rows(found) == 2).await;
    running.stop().await;
    publish(&store, &[moved("c", 3)]).await;

    let status = cli.json(&["status"]);
    assert_eq!([&status[0]["outbox"]["pending"], &status[0]["consumers"][0]["dead"]], [1, 2], "{status:#}");
    assert_eq!(status[0]["outbox"]["oldest"], json!({"type": "moved.v1", "key": "c"}));
    assert!(cli.text(&["status"]).contains("nobody"));
    let (_, err) = cli.ends(1, &["status", "--check", "--max-age", "0s"]);
    assert!(err.contains("oldest unpublished row"), "{err}");
    let (_, err) = cli.ends(1, &["status", "--check", "--max-age", "1h", "--max-dead", "1"]);
    assert!(err.contains("2 dead letters, more than 1"), "{err}");
    cli.ends(0, &["status", "--check", "--max-age", "1h", "--max-dead", "2"]);
    let pending = cli.json(&["outbox", "--pending"]);
    assert_eq!((rows(&pending), &pending[0]["published"]), (1, &json!(false)));
    assert_eq!(rows(&cli.json(&["outbox"])), 3);
    assert_eq!(rows(&cli.json(&["scheduled"])), 0);
    let relay = cli.json(&["relay"]);
    assert!(relay[0]["high"].as_i64().is_some_and(|high| high >= 2), "{relay:#}");
    cli.ends(0, &["dead", "redrive", "--key", "a", "--reason", "while it is down", "--yes"]);
    cli.ends(0, &["dead", "discard", "--key", "b", "--reason", "while it is down", "--yes"]);
    assert_eq!(rows(&cli.json(&["parked"])), 1);

    books.mend();
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
    cli.until(&["parked"], |found| rows(found) == 0).await;
    cli.until(&["outbox", "--pending"], |found| rows(found) == 0).await;
    running.stop().await;
    let mut keys: Vec<_> = books.handled().into_iter().map(|moved| moved.key).collect();
    keys.sort();
    assert_eq!(keys, ["a", "c"]);
}

async fn acts_name_what_they_are_meant_for<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
    books.fail(|_| true, wrong);
    publish(&store, &[moved("a", 1), moved("b", 2), moved("c", 3)]).await;
    let dead = cli.until(&["dead", "list"], |found| rows(found) == 3).await;
    running.stop().await;
    let event = dead[0]["what"].as_str().expect("text");
    for (chosen, found) in [
        (vec!["--by", "ledger"], 3),
        (vec!["--by", "consumer ledger"], 3),
        (vec!["--by", "relay ledger"], 0),
        (vec!["--type", "moved.v1", "--topic", "moved.v1", "--class", "final"], 3),
        (vec!["--class", "transient"], 0),
        (vec!["--key", "a"], 1),
        (vec!["--event", event], 1),
        (vec!["--since", "1h"], 3),
        (vec!["--until", "1h"], 0),
        (vec!["--since", "2020-01-01", "--until", "2020-01-01T01:00:00+01:00"], 0),
    ] {
        assert_eq!(rows(&cli.json(&[&["dead", "list"], &chosen[..]].concat())), found, "{chosen:?}");
        let dry = [&["dead", "redrive", "--dry-run"], &chosen[..]].concat();
        assert_eq!(cli.json(&dry)["done"], found, "{chosen:?}");
    }
    let ids = [dead[0]["id"].to_string(), dead[2]["id"].to_string()];
    let (out, _) = cli.ends(3, &["dead", "discard", &ids[0], &ids[1], "999999", "--reason", "x", "--yes"]);
    assert!(out.contains("2 dead letters discarded") && out.contains("999999  there is no such"), "{out}");
    assert_eq!(cli.json(&["dead", "list"])[0]["id"], dead[1]["id"]);
    assert_eq!(rows(&cli.json(&["dead", "list", "--most", "1"])), 1);
    let (_, err) = cli.ends(2, &["dead", "show", "999999"]);
    assert!(err.contains("no such dead letter"), "{err}");
}

async fn what_was_published_is_replayed_and_handled_once<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
    let moves = [moved("a", 1), moved("a", 2), moved("b", 3)];
    publish(&store, &moves).await;
    cli.until(&["outbox"], |found| found.as_array().expect("an array").iter().all(|row| row["published"] == true))
        .await;
    let replay = ["replay", "--key", "a", "--reason", "lost on the way", "--yes"];
    assert_eq!(cli.json(&[&replay[..], &["--dry-run"]].concat())["done"], 2);
    assert_eq!(cli.json(&[&replay[..], &["--most", "1", "--dry-run"]].concat())["done"], 1);
    assert_eq!(rows(&cli.json(&["outbox"])), 3, "a dry run sends nothing");
    assert_eq!(cli.ends(0, &replay).0, "2 rows sent again\n");
    let all = cli
        .until(&["outbox"], |found| {
            rows(found) == 5 && found.as_array().expect("an array").iter().all(|row| row["published"] == true)
        })
        .await;
    assert_eq!([&all[0]["id"], &all[1]["id"]], [&all[3]["id"], &all[4]["id"]], "under their own ids");
    publish(&store, &[moved("a", 4)]).await;
    books.until(&[&moves[..], &[moved("a", 4)]].concat()).await;
    running.stop().await;
}

async fn a_key_is_erased<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
    books.fail(|_| true, wrong);
    publish(&store, &[moved("maria@example.org", 1), moved("b", 2)]).await;
    cli.until(&["dead", "list"], |found| rows(found) == 2).await;
    running.stop().await;
    let erase = ["erase", "maria@example.org", "--reason", "she asked for it", "--yes"];
    assert_eq!(cli.json(&[&erase[..], &["--dry-run"]].concat())["done"], 1);
    assert!(cli.text(&["dead", "list"]).contains("maria@example.org"), "a dry run erases nothing");
    assert_eq!(cli.ends(0, &erase).0, "1 message erased\n");
    let (list, audit) = (cli.json(&["dead", "list"]), cli.json(&["audit"]));
    assert!(!format!("{list}{audit}").contains("maria@example.org"), "{list:#}\n{audit:#}");
    let id = list.as_array().expect("an array").iter().find(|row| row["key"] != "b").expect("kept")["id"].to_string();
    assert!(cli.text(&["dead", "show", &id, "--payload"]).contains("erased"));
    let (out, _) = cli.ends(3, &["dead", "redrive", &id, "--reason", "x", "--yes"]);
    assert!(out.contains("erased"), "{out}");
}

async fn the_doctor_finds_nothing_wrong_with_a_fresh_database<S: TestStore>() {
    let folder = folder(&[]);
    let Some((_store, url)) = S::fresh(folder.path()).await else { return };
    let cli = Asked::of(&url);
    // a PostgreSQL that is thrown away after its tests does not wait for the disk, and is told so
    let (code, fault) = if url.starts_with("postgres:") { (1, Some("durability")) } else { (0, None) };
    let findings = cli.json_of(code, &["doctor"]);
    let faults = findings.as_array().expect("an array").iter().filter(|finding| finding["grade"] == "fault");
    assert_eq!(faults.map(|finding| finding["what"].as_str()).collect::<Vec<_>>(), Vec::from_iter(fault.map(Some)));
    assert!(rows(&findings) > 3 && cli.ends(code, &["doctor"]).0.contains("fine"), "{findings:#}");
    let prune = ["prune", "inbox", "--older-than", "14d", "--reason", "tidy", "--yes"];
    assert_eq!(cli.json(&prune)["done"], 0);
    for what in ["answers", "dead", "audit", "sagas"] {
        cli.ends(0, &["prune", what, "--older-than", "1d", "--dry-run"]);
    }
    for what in ["tombstones", "operations"] {
        cli.ends(0, &["prune", what, "--older-than", "8d", "--dry-run"]);
    }
    let (_, err) = cli.ends(2, &["prune", "inbox", "--older-than", "7d", "--reason", "tidy", "--yes"]);
    assert!(err.contains("--although-short") && err.contains("takes effect twice"), "{err}");
    cli.ends(0, &["prune", "inbox", "--older-than", "7d", "--reason", "tidy", "--yes", "--although-short"]);
    let audit = cli.json(&["audit"]);
    let first = [&audit[3]["act"], &audit[3]["target"], &audit[3]["outcome"]];
    assert_eq!(first, ["prune", "inbox older than 14d", "begun"], "{audit:#}");
}

async fn nothing_in_a_message_disturbs_the_output<S: TestStore>() {
    let folder = folder(&[]);
    let Some((store, url)) = S::fresh(folder.path()).await else { return };
    let (cli, books, log) = (Asked::of(&url), Books::default(), log(folder.path()).await);
    let running = start(Runtime::new().with(ledger(&store, &log, &books, Policy::default()))).await;
    books.fail(|_| true, || Failure::reject("\u{1b}[2J\r\nledger  1  fine \u{9b}1m\u{202e}"));
    let key = "k\u{1b}]0;x\u{7}\n\u{9b}2J\u{202e}";
    publish(&store, &[moved(key, 1)]).await;
    let dead = cli.until(&["dead", "list"], |found| rows(found) == 1).await;
    running.stop().await;
    assert_eq!(dead[0]["key"], key, "scripts get it as it is");
    let id = dead[0]["id"].to_string();
    for arguments in [
        vec!["dead", "list"],
        vec!["dead", "list", "--json"],
        vec!["dead", "show", &id, "--payload"],
        vec!["dead", "show", &id, "--payload", "--json"],
        vec!["outbox"],
        vec!["outbox", "--json"],
    ] {
        let text = cli.text(&arguments);
        let odd = text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
        assert_eq!(odd, None, "{arguments:?}: {text:?}");
    }
    assert_eq!(cli.text(&["dead", "list"]).lines().count(), 2);
    let said = "no\u{1b}[2J\u{202e}such";
    let (_, err) = cli.ends(2, &["status", "--service", said, "--store", "x\u{1b}[2J.db"]);
    assert!(!err.contains('\u{1b}') && !err.contains('\u{202e}'), "{err:?}");
}
