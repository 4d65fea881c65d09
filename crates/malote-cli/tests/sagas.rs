//! Sagas as the person on call sees them, and what that person does, on both stores.
#![allow(missing_docs)]

mod common;

use common::{
    saga::{Bad, Charge, Charged, Release, buy, order, sagas, until},
    *,
};
use malote::{Envelope, Event, Message, Outbox, Transaction as _, saga::Status};
use malote_core::{
    EventType,
    saga::{Address, Direction, LegId, OperationId, VERSION},
};
use serde_json::{Value, json};
use std::fs;
use uuid::Uuid;

on_each_store!(
    a_stuck_saga_is_found_understood_and_mended,
    every_act_that_is_offered_is_possible_as_it_stands_there,
    a_step_is_skipped_with_the_answer_that_is_given,
    what_is_denied_ends_with_3,
    what_nobody_has_dealt_with_ends_with_4_and_is_done_later,
    the_beginning_of_an_id_has_to_mean_one,
    what_nobody_has_code_for_is_told,
    a_definition_is_described,
    bad_input_is_told_what_is_expected,
    what_is_private_is_shown_when_it_is_asked_for,
    a_dead_letter_of_a_saga_names_it,
    an_answer_for_a_saga_that_is_not_there_says_so,
);

const STUCK: Uuid = Uuid::from_u128(0x7b3e_0000_0000_7000_8000_0000_0000_0001);
const OTHER: Uuid = Uuid::from_u128(0x7b3f_0000_0000_7000_8000_0000_0000_0002);

/// A saga that is stuck, since its stock cannot be given back.
struct Place<S: TestStore> {
    folder: tempfile::TempDir,
    store: S,
    bad: Bad,
    sagas: malote::saga::Sagas<S>,
    running: Running,
    cli: Asked,
}

impl<S: TestStore> Place<S> {
    async fn fresh() -> Option<Self> {
        let folder = folder(&[]);
        let (store, url) = S::fresh(folder.path()).await?;
        let (bad, sagas, log) = (Bad::default(), sagas(&store, 1), log(folder.path()).await);
        let running = order(&store, &log, &bad, &sagas).await;
        Some(Self { cli: Asked::of(&url), folder, store, bad, sagas, running })
    }

    async fn stuck(&self, id: Uuid) {
        self.bad.refuse(Charge::TYPE, id).refuse(Release::TYPE, id);
        buy(&self.store, &self.sagas, id).await;
        until(&self.sagas, id, Status::Stuck).await;
    }
}

const WHY: [&str; 3] = ["--reason", "the warehouse is open", "--yes"];

async fn a_stuck_saga_is_found_understood_and_mended<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let cli = &place.cli;
    assert_eq!(cli.text(&["saga", "list"]), "no sagas\n");
    buy(&place.store, &place.sagas, OTHER).await;
    until(&place.sagas, OTHER, Status::Completed).await;
    place.stuck(STUCK).await;
    // found
    let stuck = cli.json(&["saga", "list", "--stuck"]);
    assert_eq!(rows(&stuck), 1, "{stuck:#}");
    assert_eq!((&stuck[0]["id"], &stuck[0]["steps"]), (&json!(STUCK), &json!(["reserve stock"])));
    for (filter, found) in [
        (vec![], 2),
        (vec!["--status", "completed"], 1),
        (vec!["--status", "completed", "--status", "stuck"], 2),
        (vec!["--step", "reserve stock"], 1),
        (vec!["--step", "charge card"], 0),
        (vec!["--definition", "purchase", "--version", "1"], 2),
        (vec!["--version", "2"], 0),
        (vec!["--definition", "other"], 0),
        (vec!["--older-than", "1h"], 0),
        (vec!["--older-than", "0s"], 2),
    ] {
        assert_eq!(rows(&cli.json(&[&["saga", "list"], &*filter].concat())), found, "{filter:?}");
    }
    let status = cli.text(&["status"]);
    assert!(status.contains("1 stuck saga for a person to decide"), "{status}");
    let (_, late) = cli.ends(1, &["status", "--check", "--max-stuck", "0"]);
    assert!(late.contains("1 stuck saga, more than 0"), "{late}");
    // understood
    let shown = cli.text(&["saga", "show", "7b3e"]);
    for part in [
        "stuck, turned back",
        "charge card: the card was declined",
        "undo failed",
        "the warehouse is closed",
        "not reached",
        "malote saga retry 7b3e0000-0000-7000-8000-000000000001 --step 'reserve stock' --service ledger",
        "malote saga abandon",
        "turned back",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("malote saga compensate"), "it has turned back already: {shown}");
    let story = cli.json(&["saga", "show", "7b3e"]);
    let states: Vec<_> = story["steps"].as_array().expect("steps").iter().map(|step| &step["state"]).collect();
    assert_eq!(states, ["undo failed", "refused", "not reached"]);
    let told: Vec<_> = story["history"].as_array().expect("rows").iter().map(|row| &row["what"]).collect();
    assert_eq!(told[..2], ["started", "asked"]);
    assert!(told.contains(&&json!("turned_back")) && told.contains(&&json!("stuck")), "{told:?}");
    let picture = cli.text(&["saga", "show", "7b3e", "--mermaid"]);
    assert!(picture.starts_with("flowchart TD\n") && picture.contains("undo failed"), "{picture}");
    // mended
    place.bad.accept(Release::TYPE, STUCK);
    let dry = cli.text(&["saga", "retry", "7b3e", "--dry-run"]);
    assert!(dry.contains("would be asked"), "{dry}");
    let done = cli.json(&[&["saga", "retry", "7b3e", "--step", "reserve stock"], &WHY[..]].concat());
    assert_eq!((&done["outcome"], &done["act"], &done["dry_run"]), (&json!("done"), &json!("retry"), &json!(false)));
    until(&place.sagas, STUCK, Status::Compensated).await;
    let audit = cli.json(&["audit"]);
    assert_eq!((rows(&audit), &audit[0]["act"]), (1, &json!("saga retry")));
    assert_eq!(audit[0]["reason"], "the warehouse is open");
    let story = cli.text(&["saga", "show", "7b3e"]);
    assert!(story.contains("Nothing more can be done about it: it is compensated"), "{story}");
    assert!(story.contains("retried") && story.contains("the warehouse is open"), "{story}");
    place.running.stop().await;
}

async fn every_act_that_is_offered_is_possible_as_it_stands_there<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    // each act has a saga of its own, as the first one ends it
    for (n, act) in ["retry", "skip", "abandon"].into_iter().enumerate() {
        let id = Uuid::from_u128(STUCK.as_u128() + ((n as u128) << 80));
        place.stuck(id).await;
        let story = place.cli.json(&["saga", "show", &id.to_string()]);
        let offered = story["acts"].as_array().expect("acts").iter().find(|offered| offered["act"] == act);
        let line = offered.expect("offered")["command"].as_str().expect("a line").replace("TEXT", "'it is mended'");
        // as a shell reads it
        let bin = std::path::Path::new(env!("CARGO_BIN_EXE_malote")).parent().expect("a folder").to_owned();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("{line} --yes")]).env("PATH", path).env("MALOTE_STORE", place.cli.url());
        let (out, _) = ended(&shell.current_dir(place.folder.path()).output().expect("starts"), 0);
        assert!(out.contains(": done: it is "), "{out}");
    }
    place.running.stop().await;
}

async fn a_step_is_skipped_with_the_answer_that_is_given<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    // of the second version nobody takes the first step
    let next = sagas(&place.store, 2);
    let running = order(&place.store, &log(place.folder.path()).await, &place.bad, &next).await;
    buy(&place.store, &next, OTHER).await;
    let story = place.cli.json(&["saga", "show", "7b3f"]);
    assert_eq!((&story["steps"][0]["state"], &story["steps"][0]["due"]), (&json!("asked"), &json!("deadline")));
    assert!(story["steps"][0]["due_at"].is_string() && story["steps"][1]["state"] == "to come", "{story:#}");
    let skip = ["saga", "skip", "7b3f", "--step", "look for fraud"];
    let (out, _) = place.cli.ends(3, &[&skip[..], &WHY[..]].concat());
    assert!(out.contains("denied: later steps lean on the answer") && out.contains("fraud.looked.v1"), "{out}");
    fs::write(place.folder.path().join("answer.json"), json!({"order": OTHER}).to_string()).expect("written");
    let file = format!("@{}", place.folder.path().join("answer.json").display());
    let out = place.cli.text(&[&skip[..], &["--answer", &file], &WHY[..]].concat());
    assert!(out.contains("done: it is running"), "{out}");
    until(&next, OTHER, Status::Completed).await;
    running.stop().await;
    place.running.stop().await;
}

async fn what_is_denied_ends_with_3<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    buy(&place.store, &place.sagas, OTHER).await;
    until(&place.sagas, OTHER, Status::Completed).await;
    for (act, why) in [("compensate", "nothing says how to undo charge card"), ("retry", "ended"), ("abandon", "ended")]
    {
        let (out, _) = place.cli.ends(3, &[&["saga", act, "7b3f"], &WHY[..]].concat());
        assert!(out.contains("denied: ") && out.contains(why), "{out}");
        let (out, _) = place.cli.ends(3, &["saga", act, "7b3f", "--dry-run"]);
        assert!(out.contains("would be denied"), "{out}");
    }
    let denied = place.cli.json_of(3, &[&["saga", "abandon", "7b3f"], &WHY[..]].concat());
    assert_eq!(denied["outcome"], "denied");
    let audit = place.cli.json(&["audit"]);
    assert_eq!(rows(&audit), 4, "{audit:#}");
    place.running.stop().await;
}

async fn what_nobody_has_dealt_with_ends_with_4_and_is_done_later<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.stuck(STUCK).await;
    let Place { running, store, cli, folder, bad, sagas, .. } = place;
    running.stop().await;
    let abandon = [&["saga", "abandon", "7b3e", "--wait", "0"], &WHY[..]].concat();
    let (out, _) = cli.ends(4, &abandon);
    assert!(out.contains("no process has dealt with it") && out.contains("purchase version 1"), "{out}");
    let status = cli.text(&["status"]);
    assert!(status.contains("1 act on sagas that people asked for"), "{status}");
    assert_eq!(cli.json(&["saga", "list", "--stuck"])[0]["id"], json!(STUCK), "it stands as it did");
    let story = cli.json(&["saga", "show", "7b3e"]);
    let awaited = &story["awaited"][0];
    assert_eq!((rows(&story["awaited"]), &awaited["act"], &awaited["reason"]), (1, &json!("abandon"), &json!(WHY[1])));
    let story = cli.text(&["saga", "show", "7b3e"]);
    assert!(story.contains("no process has dealt with it yet; do not ask again"), "{story}");
    let running = order(&store, &log(folder.path()).await, &bad, &sagas).await;
    until(&sagas, STUCK, Status::Abandoned).await;
    assert_eq!(cli.json(&["status"])[0]["open_acts"], 0);
    assert_eq!(rows(&cli.json(&["saga", "show", "7b3e"])["awaited"]), 0);
    running.stop().await;
}

/// Sends a message of a type whose payload nobody can read, with these attributes.
async fn unreadable<S: TestStore>(store: &S, of: &EventType, attributes: Vec<(String, String)>) {
    let mut tx = Outbox::new("order", store.clone()).begin().await.expect("begun");
    let EventType { name: kind, topic } = of.clone();
    let content_type = "application/json".into();
    let message = Message { kind, topic, key: STUCK.to_string(), content_type, payload: "[]".into() };
    let sealed = tx.sealer().seal(message).expect("sealed");
    tx.append(vec![Envelope { headers: attributes, ..sealed }]).await.expect("written");
    tx.commit().await.expect("committed");
}

async fn a_dead_letter_of_a_saga_names_it<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.stuck(STUCK).await;
    let operation =
        OperationId { saga: STUCK, leg: LegId::of("reserve stock"), direction: Direction::Undo, attempt: 9 };
    let address = Address { definition: "purchase".into(), version: 1, operation, undoes: None };
    unreadable(&place.store, &EventType::of::<Release>(), address.headers()).await;
    let dead = place.cli.until(&["dead", "list"], |found| rows(found) == 1).await;
    // an answer that cannot be understood tells what it can
    let mut torn = address.headers();
    torn.iter_mut().filter(|(name, _)| name == VERSION).for_each(|(_, value)| *value = "one".into());
    unreadable(&place.store, &EventType::of::<Charged>(), torn).await;
    let all = place.cli.until(&["dead", "list"], |found| rows(found) == 2).await;
    for row in [&dead[0], &all[1]] {
        let id = row["id"].to_string();
        let letter = place.cli.json(&["dead", "show", &id]);
        let saga = json!({"definition": "purchase", "id": STUCK, "step": "reserve stock", "direction": "undo"});
        assert_eq!(letter["saga"], saga, "{letter:#}");
        let text = place.cli.text(&["dead", "show", &id]);
        assert!(text.contains(&format!("purchase {STUCK}, reserve stock (undo)")), "{text}");
        let told = text.lines().find_map(|line| line.trim().strip_prefix("malote ")).expect("a command");
        assert!(place.cli.text(&told.split(' ').collect::<Vec<_>>()).contains(&STUCK.to_string()), "{told}");
    }
    place.running.stop().await;
}

/// An answer whose saga is not there waits, and says so.
async fn an_answer_for_a_saga_that_is_not_there_says_so<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let operation = OperationId { saga: OTHER, leg: LegId::of("charge card"), direction: Direction::Do, attempt: 1 };
    let address = Address { definition: "purchase".into(), version: 1, operation, undoes: None };
    unreadable(&place.store, &EventType::of::<Charged>(), address.headers()).await;
    let parked = place.cli.until(&["parked"], |found| rows(found) == 1).await;
    let says = parked[0]["error"].as_str().expect("an error");
    assert!(says.starts_with(&format!("saga {OTHER} of purchase is not here")), "{says}");
    assert!(place.cli.text(&["parked"]).contains("is not here"));
    assert_eq!(parked[0]["attempts"], 0, "to wait is no attempt");
    let (_, err) = place.cli.ends(2, &["saga", "show", "7b3f"]);
    assert!(err.contains("there is no such saga"), "{err}");
    // what the page tells to do
    let erase = ["erase", parked[0]["key"].as_str().expect("a key"), "--reason", "its saga was lost", "--yes"];
    assert_eq!(place.cli.json(&erase)["done"], 1);
    assert_eq!(rows(&place.cli.json(&["parked"])), 0);
    place.running.stop().await;
}

async fn the_beginning_of_an_id_has_to_mean_one<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.stuck(STUCK).await;
    let alike = Uuid::from_u128(STUCK.as_u128() + 1);
    place.stuck(alike).await;
    for arguments in [vec!["saga", "show", "7b3e"], [&["saga", "abandon", "7b3e"], &WHY[..]].concat()] {
        let (_, err) = place.cli.ends(2, &arguments);
        assert!(err.contains(&STUCK.to_string()) && err.contains(&alike.to_string()), "{err}");
    }
    let (_, err) = place.cli.ends(2, &["saga", "show", "ffff"]);
    assert!(err.contains("there is no such saga") && err.contains("malote saga list"), "{err}");
    let story = place.cli.json(&["saga", "show", &alike.to_string()]);
    assert_eq!(story["id"], json!(alike));
    assert_eq!(rows(&place.cli.json(&["saga", "list", "--stuck"])), 2, "nothing was done");
    place.running.stop().await;
}

async fn what_nobody_has_code_for_is_told<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    let next = sagas(&place.store, 2);
    buy(&place.store, &next, OTHER).await;
    let status = place.cli.text(&["status"]);
    let says = "no process has ever said that it has code for purchase version 2, of which 1 is under way";
    assert!(status.contains(says), "{status}");
    let story = place.cli.text(&["saga", "show", "7b3f"]);
    assert!(story.contains("No process has told how purchase version 2 is defined"), "{story}");
    assert!(place.cli.ends(2, &["saga", "show", "7b3f", "--mermaid"]).1.contains("no process has told"));
    // a process that has it says so; and one that is gone is missed
    let running = order(&place.store, &log(place.folder.path()).await, &place.bad, &next).await;
    place.cli.until(&["status"], |found| rows(&found[0]["saga_versions"]) == 2).await;
    let status = place.cli.text(&["status"]);
    assert!(!status.contains("has code for"), "{status}");
    running.stop().await;
    place.running.stop().await;
}

async fn a_definition_is_described<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.cli.until(&["status"], |found| rows(&found[0]["saga_versions"]) == 1).await;
    let table = place.cli.text(&["saga", "describe", "purchase"]);
    assert!(
        table.starts_with("# purchase version 1\n") && table.contains("| reserve stock | compensatable |"),
        "{table}"
    );
    assert_eq!(place.cli.text(&["saga", "describe", "purchase", "--version", "1"]), table);
    let picture = place.cli.text(&["saga", "describe", "purchase", "--mermaid"]);
    assert!(picture.starts_with("flowchart TD\n"), "{picture}");
    let outline = place.cli.json(&["saga", "describe", "purchase"]);
    assert_eq!((rows(&outline), rows(&outline[0]["steps"])), (1, 3));
    let (_, err) = place.cli.ends(2, &["saga", "describe", "other"]);
    assert!(err.contains("there is no saga of this name; there are purchase"), "{err}");
    let (_, err) = place.cli.ends(2, &["saga", "describe", "purchase", "--version", "7"]);
    assert!(err.contains("there is no such version, only 1"), "{err}");
    place.running.stop().await;
}

async fn bad_input_is_told_what_is_expected<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.stuck(STUCK).await;
    for (arguments, said) in [
        (vec!["saga"], "Usage"),
        (vec!["saga", "mend", "7b3e"], "mend"),
        (vec!["saga", "list", "--status", "broken"], "running, compensating, completed"),
        (vec!["saga", "list", "--stuck", "--status", "running"], "cannot be used with"),
        (vec!["saga", "list", "--older-than", "long"], "an age such as"),
        (vec!["saga", "list", "--version", "-1"], "-1"),
        (vec!["saga", "list", "--most", "0"], "--most"),
        (vec!["saga", "show"], "ID"),
        (vec!["saga", "show", "7b"], "first 4 digits"),
        (vec!["saga", "show", "7b3e\u{1b}[2J"], "first 4 digits"),
        (vec!["saga", "show", "';drop table saga;--"], "first 4 digits"),
        (vec!["saga", "show", "7b3e", "--json", "--mermaid"], "cannot be used with"),
        (vec!["saga", "describe"], "DEFINITION"),
        (vec!["saga", "retry", "7b3e"], "--reason"),
        (vec!["saga", "retry", "7b3e", "--reason", " ", "--yes"], "empty"),
        (vec!["saga", "retry", "7b3e", "--reason", "x", "--actor", "", "--yes"], "empty"),
        (vec!["saga", "retry", "7b3e", "--wait", "long", "--reason", "x", "--yes"], "--wait"),
        (vec!["saga", "skip", "7b3e", "--reason", "x", "--yes"], "--step"),
        (
            vec!["saga", "skip", "7b3e", "--step", "a", "--answer", "{secret", "--reason", "x", "--yes"],
            "JSON is expected",
        ),
        (vec!["saga", "skip", "7b3e", "--step", "a", "--answer", "@no/such", "--reason", "x", "--yes"], "no/such"),
        (vec!["saga", "abandon", "ffff", "--reason", "x", "--yes"], "there is no such saga"),
    ] {
        let (out, err) = place.cli.ends(2, &arguments);
        assert!(out.is_empty() && err.contains(said), "{arguments:?}: {out}{err}");
        assert!(!err.contains('\u{1b}') && !err.contains("{secret"), "{arguments:?}: {err:?}");
    }
    let (out, _) = place.cli.ends(3, &[&["saga", "retry", "7b3e", "--step", "nonsense"], &WHY[..]].concat());
    assert!(out.contains("choose \"reserve stock\""), "{out}");
    assert_eq!(rows(&place.cli.json(&["saga", "list", "--stuck"])), 1, "nothing was done");
    place.running.stop().await;
}

async fn what_is_private_is_shown_when_it_is_asked_for<S: TestStore>() {
    let Some(place) = Place::<S>::fresh().await else { return };
    place.stuck(STUCK).await;
    for arguments in
        [vec!["saga", "show", "7b3e"], vec!["saga", "show", "7b3e", "--json"], vec!["saga", "list", "--json"]]
    {
        let out = place.cli.text(&arguments);
        assert!(!out.contains("card-canary"), "{out}");
    }
    assert!(place.cli.text(&["saga", "show", "7b3e", "--payload"]).contains("card-canary"));
    let story: Value = place.cli.json(&["saga", "show", "7b3e", "--payload"]);
    assert_eq!(story["state"]["card"], "card-canary");
    place.running.stop().await;
}
