//! What `docs/operating/cli.md` shows is what the command prints.
//!
//! Each line `$ malote …` of its `console` blocks is run in turn, against two services of which one has had
//! trouble, and one with sagas; what follows is its output, in which times, ages and ids may differ. After a change to the output
//! `MALOTE_WRITE_DOCS=1 cargo test -p malote-cli --test documented` writes it anew.
#![allow(missing_docs)]

mod common;

use common::saga::{Bad, Charge, Release, buy, order, sagas, until};
use common::*;
use malote::{Event as _, Failure, Runtime, Service, saga::Status, sqlite::Sqlite};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn page() -> PathBuf {
    root().join("docs/operating/cli.md")
}

/// `payment` says, `ledger` hears: of one key the second failed for good and the third was handled, of one the
/// only one failed for good, of one the first waits for its second attempt and another waits behind.
async fn demonstration(folder: &Path) {
    let data = folder.join("data");
    fs::create_dir_all(&data).expect("made");
    let path = |name: &str| data.join(name).to_str().expect("text").to_owned();
    let (payment, of_ledger) = (path("payment.db"), path("ledger.db"));
    let (log, books) = (log(folder).await, Books::default());
    let (says, hears) =
        (Sqlite::open(&payment).await.expect("opened"), Sqlite::open(&of_ledger).await.expect("opened"));
    says.migrate().await.expect("migrated");
    hears.migrate().await.expect("migrated");
    let sender = Service::new("payment", says.clone(), log.clone()).emits::<Moved>();
    let running = start(Runtime::new().with(sender).with(ledger(&hears, &log, &books, twice()))).await;
    let (cli, mut handled) = (Asked::of(&of_ledger), Vec::new());

    books.fail(|moved| moved.n != 1, || Failure::reject("no such account"));
    publish(&says, &[moved("payment-3", 1)]).await;
    handled.push(moved("payment-3", 1));
    books.until(&handled).await;
    publish(&says, &[moved("payment-3", 2)]).await;
    cli.until(&["dead", "list"], |found| rows(found) == 1).await;
    publish(&says, &[moved("payment-9", 3)]).await;
    cli.until(&["dead", "list"], |found| rows(found) == 2).await;
    books.fail(|moved| moved.n != 4, || Failure::retry("the bank is away"));
    publish(&says, &[moved("payment-3", 4)]).await;
    handled.push(moved("payment-3", 4));
    books.until(&handled).await;
    publish(&says, &[moved("payment-7", 5), moved("payment-7", 6)]).await;
    cli.until(&["parked"], |found| rows(found) == 2).await;
    // the sender may be a little behind with what it remembers
    Asked::of(&payment).until(&["outbox", "--pending"], |found| rows(found) == 0).await;
    running.stop().await;
    publish(&says, &[moved("payment-10", 7)]).await;
    says.close().await;
    hears.close().await;
}

/// `order` has three sagas: one is done, one could not give its stock back, one has begun under a version of which no
/// process has the code yet.
async fn with_sagas(folder: &Path) -> Running {
    let path = folder.join("data/order.db");
    let store = Sqlite::open(path.to_str().expect("text")).await.expect("opened");
    store.migrate().await.expect("migrated");
    let id = |first: u128, n: u128| uuid::Uuid::from_u128((first << 112) + (0x7000_8000 << 48) + n);
    let (done, stuck, ahead) = (id(0x5a11, 1), id(0x7b3e, 2), id(0x9c40, 3));
    let (bad, sagas, next) = (Bad::default(), sagas(&store, 1), sagas(&store, 2));
    bad.refuse(Charge::TYPE, stuck).refuse(Release::TYPE, stuck);
    let log = log(folder).await;
    // as the process of the next release does when it starts
    log.ensure(&["fraud.commands".to_owned()]).await.expect("made");
    let running = order(&store, &log, &bad, &sagas).await;
    buy(&store, &sagas, done).await;
    until(&sagas, done, Status::Completed).await;
    buy(&store, &sagas, stuck).await;
    until(&sagas, stuck, Status::Stuck).await;
    buy(&store, &next, ahead).await;
    let order = Asked::of(path.to_str().expect("text"));
    order.until(&["outbox", "--pending"], |found| rows(found) == 0).await;
    order.until(&["status"], |found| rows(&found[0]["saga_versions"]) == 1).await;
    running
}

/// Runs a line as a shell would.
fn run(folder: &Path, line: &str) -> String {
    let (line, code) = match line.split_once("# ends with ") {
        Some((line, code)) => (line, code.trim().parse().expect("a number")),
        None => (line, 0),
    };
    let bin = Path::new(env!("CARGO_BIN_EXE_malote")).parent().expect("a folder").to_str().expect("text");
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {line} 2>&1")]).current_dir(folder).env("PATH", path);
    let output = shell.env_remove("MALOTE_STORE").env_remove("MALOTE_DATA").output().expect("starts");
    ended(&output, code).0
}

/// What may differ from run to run is one sign; how wide columns are does not count.
fn shape(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let hyphens = bare.matches('-').count();
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let unit = bare.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(number);
        let decimal = bare.split_once('.').is_some_and(|(whole, part)| number(whole) && number(part));
        let varies = match bare.len() {
            36 if hyphens == 4 => true,
            20.. if bare.ends_with('Z') && bare.contains('T') => true,
            _ => unit || decimal || (bare.starts_with("00-") && hyphens == 3),
        };
        if varies { word.replace(bare, "~") } else { word.to_owned() }
    };
    let line = |line: &str| {
        let mut words: Vec<_> = line.split_whitespace().map(word).collect();
        // an age has one unit or two; how large a file is, and how much is free, are the machine's
        words.dedup_by(|a, b| a == "~" && b == "~");
        let varies = |line: &str| ["bytes", "MiB"].iter().any(|unit| line.contains(unit)) && line.starts_with("fine ");
        let line = words.join(" ");
        if varies(&line) { line.split(' ').take(2).collect::<Vec<_>>().join(" ") } else { line }
    };
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Who runs this is somebody else each time.
fn by_maria(text: &str) -> String {
    let id = Command::new("id").arg("-un").output().expect("starts").stdout;
    let login = String::from_utf8(id).expect("text");
    // in the column of actors, which is at least as wide as its head
    text.replace(&format!("  {:<5}  ", login.trim()), "  maria  ")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_page_shows_is_what_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    demonstration(folder.path()).await;
    let running = with_sagas(folder.path()).await;
    let written = fs::read_to_string(page()).expect("read");
    let (mut fresh, mut block, mut shown) = (String::new(), false, Vec::new());
    let mut differ = Vec::new();
    let mut compare = |shown: &mut Vec<(String, String, String)>| {
        for (line, said, expected) in shown.drain(..) {
            if shape(&said) != shape(&expected) {
                differ.push(format!("$ {line}\n{}\n--- the page has\n{}", shape(&said), shape(&expected)));
            }
        }
    };
    for line in written.lines() {
        match (block, line.strip_prefix("$ ")) {
            (true, Some(command)) => {
                let said = by_maria(&run(folder.path(), command));
                fresh += &format!("{line}\n{said}");
                shown.push((command.to_owned(), said, String::new()));
                continue;
            }
            (true, None) if line != "```" => {
                let expected = &mut shown.last_mut().expect("a block begins with a command").2;
                expected.push_str(&format!("{line}\n"));
                continue;
            }
            (true, None) => block = false,
            (false, _) => block = line == "```console",
        }
        fresh += &format!("{line}\n");
        compare(&mut shown);
    }
    running.stop().await;
    if std::env::var("MALOTE_WRITE_DOCS").is_ok_and(|yes| yes == "1") {
        fs::write(page(), fresh).expect("written");
        return;
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

/// The names in the page's table of documents are those that the documents have.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_find_the_fields_that_the_page_names() {
    let folder = tempfile::tempdir().expect("a folder");
    demonstration(folder.path()).await;
    let running = with_sagas(folder.path()).await;
    ended(&malote(folder.path(), &["dead", "discard", "2", "--reason", "for a row", "--yes"]), 0);
    let page = fs::read_to_string(page()).expect("read");
    for command in ["status", "outbox", "parked", "dead list", "saga list", "relay", "audit", "doctor"] {
        let begins = format!("| `{command}` | ");
        let row = page.lines().find_map(|line| line.strip_prefix(&begins)).expect("a row of the table");
        let mut depth = 0;
        let outer: String = row
            .chars()
            .filter(|c| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                depth == 0
            })
            .collect();
        let named: BTreeSet<_> = outer.split('`').skip(1).step_by(2).chain(["service"]).map(str::to_owned).collect();
        let mut arguments: Vec<_> = command.split(' ').collect();
        arguments.push("--json");
        let found: Value = serde_json::from_str(&ended(&malote(folder.path(), &arguments), 0).0).expect("a document");
        let found = found[0].as_object().expect("a row").keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(found, named, "{command}");
    }
    running.stop().await;
}
