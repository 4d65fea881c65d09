//! The program's other faces: its map, its settings, its errors.

mod support;

use malote::topology::Flow;
use malote_testkit::servers::Port;
use std::{
    fs,
    path::Path,
    process::{Output, Stdio},
};
use support::{
    client::{Client, body},
    patience,
    program::{Program, command},
    until,
};
use tokio::io::{AsyncBufReadExt, BufReader};

async fn run(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let output = command(arguments, settings).output();
    tokio::time::timeout(patience(), output).await.expect("it ends").expect("starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn the_map_is_that_of_the_handlers_and_the_kept_one_is_fresh() {
    let json = text(&run(&["map", "--format", "json"], &[]).await.stdout);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("flow.json");
    let kept = fs::read_to_string(kept).expect("readable");
    assert_eq!(kept, json, "write it anew: cargo run -p payments -- map --format json > examples/payments/flow.json");
    let flow: Flow = serde_json::from_str(&json).expect("a flow");
    assert_eq!(flow.check(), []);
    assert_eq!(text(&run(&["map"], &[]).await.stdout), flow.text());
    assert_eq!(text(&run(&["map", "--format", "mermaid"], &[]).await.stdout), flow.mermaid());
    assert_eq!(text(&run(&["map", "--format", "dot"], &[]).await.stdout), flow.dot());
}

#[tokio::test]
async fn a_bad_setting_is_named_and_no_secret_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    for (name, value, said) in [
        ("MALOTE_HTTP", "8080", "an address such as 127.0.0.1:8080"),
        ("MALOTE_HTTP", "192.0.2.1:1", "cannot listen"),
        ("MALOTE_STORE", "mysql://u:canary@h/{service}", "postgres://"),
        ("MALOTE_STORE", "postgres://u:canary@[/{service}", "postgres://user:password@host"),
        ("MALOTE_STORE", "all.db", "must contain {service}"),
        ("MALOTE_TRANSPORT", "amqp://u:canary@h", "kafka://"),
        ("MALOTE_TRANSPORT", "kafka://h:9092?sasl.passwort=canary", "sasl.passwort"),
        ("MALOTE_TRANSPORT", "kafka://h:9092?acks=1", "acks"),
        ("MALOTE_REDIS", "http://u:canary@h", "redis://"),
        ("MALOTE_LEASE_MS", "soon", "milliseconds"),
        ("MALOTE_LEASE_MS", "499", "500 to 3600000"),
        ("MALOTE_HTTP", "http://127.0.0.1:0", "leave out http://"),
        ("MALOTE_FRAUD_APPROVE_PERCENT", "170", "from 0 to 100"),
        ("MALOTE_WEBHOOK", "ftp://canary", "http://"),
        ("MALOTE_DATA", "/proc/nothing", "cannot be made"),
        // nobody may make a file there, not even root
        ("MALOTE_DATA", "/proc", "log.db cannot be used: can this user write to it"),
        ("MALOTE_STORE", "/proc/{service}.db", "payment.db cannot be used: can this user write to it"),
        ("MALOTE_STORE", "sqlite:///proc/{service}.db", "/proc/payment.db cannot be used"),
        ("MALOTE_STORE", "/no-such-folder/{service}.db", "its folder is not there"),
        ("MALOTE_TRANSPORT", "embedded:/proc", "it is a folder"),
    ] {
        let settings = [("MALOTE_DATA", data), ("MALOTE_HTTP", "127.0.0.1:0"), (name, value)];
        let output = run(&["all"], &settings).await;
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {out} {err}");
        assert!(err.contains(name) && err.contains(said), "{name}={value}: {err}");
        assert!(!err.contains("canary") && !out.contains("canary"), "{err}");
    }
}

#[tokio::test]
async fn a_database_that_is_a_folder_is_told_with_the_setting_that_chose_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    fs::create_dir(folder.path().join("ledger.db")).expect("a folder");
    let output = run(&["all"], &[("MALOTE_DATA", data), ("MALOTE_HTTP", "127.0.0.1:0")]).await;
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("MALOTE_DATA: ") && err.contains("ledger.db cannot be used: it is a folder"), "{err}");
}

#[tokio::test]
async fn what_looks_like_a_place_for_the_service_in_the_folders_name_is_part_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let odd = folder.path().join("{service}");
    Program::start(&odd, &[]).await.kill().await;
    for name in ["payment", "fraud", "ledger", "notification"] {
        assert!(odd.join(format!("{name}.db")).exists(), "{name}");
    }
}

/// Before its database is there it lives and says what it waits for.
#[tokio::test]
async fn a_service_without_its_database_lives_and_says_what_it_waits_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (database, http) = (Port::claim().expect("a port"), Port::claim().expect("a port"));
    let (store, address) = (
        format!("postgres://postgres@127.0.0.1:{}/payment", database.number()),
        format!("127.0.0.1:{}", http.number()),
    );
    let data = folder.path().to_str().expect("a plain path");
    let settings = [("MALOTE_STORE", &*store), ("MALOTE_HTTP", &*address), ("MALOTE_DATA", data)];
    let mut payment = command(&["payment"], &settings).spawn().expect("starts");
    let client = Client::new(&address);
    let health = until("it answers", || async { client.get("/health").await.ok() }).await;
    assert_eq!(health.status, 200, "{health:?}");
    let waiting =
        || async { client.get("/ready").await.ok().filter(|a| a.text.contains("waiting for the payment database")) };
    let ready = until("it has come to its database", waiting).await;
    assert_eq!((ready.status, &*ready.content_type), (503, "application/problem+json"), "{ready:?}");
    assert_eq!(ready.json()["parts"]["payment database"], "starting");
    let pay = client.pay("k", body(1500, "alice", "bob")).await.expect("an answer");
    assert_eq!(pay.status, 503, "{pay:?}");
    assert_eq!(payment.try_wait().expect("can be waited for"), None, "it goes on waiting");
    payment.kill().await.expect("dies");
}

/// What a log says that is set wrongly is said once, at the start.
#[tokio::test]
async fn telemetry_that_is_set_wrongly_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    for (name, value, said) in [
        ("RUST_LOG", "malote=loud", "RUST_LOG"),
        ("RUST_LOG", "inof", "\"inof\" is no level"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "http://"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4317 ", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ] {
        // it ends at once, by a setting that cannot be used
        let settings = [("MALOTE_DATA", data), ("MALOTE_HTTP", "192.0.2.1:1"), (name, value)];
        let err = text(&run(&["all"], &settings).await.stderr);
        assert!(err.contains(said) && err.contains("MALOTE_HTTP"), "{name}={value}: {err}");
    }
    let settings = [("MALOTE_DATA", data), ("MALOTE_HTTP", "192.0.2.1:1"), ("RUST_LOG", "info,malote::relay=debug")];
    let err = text(&run(&["all"], &settings).await.stderr);
    assert!(!err.contains("RUST_LOG"), "{err}");
}

/// A clean stop leaves the databases whole, without files beside them.
#[tokio::test]
async fn a_clean_stop_leaves_no_journal_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = Program::start(folder.path(), &[]).await;
    let id = program.client.accepted(1500, "alice", "bob").await;
    program.client.ended(&id).await;
    let (ended, _) = program.signal("TERM").await;
    assert!(ended.success(), "{ended}");
    let left = fs::read_dir(folder.path()).expect("readable").map(|entry| entry.expect("readable").file_name());
    let mut left: Vec<_> = left.map(|name| name.to_string_lossy().into_owned()).collect();
    left.sort();
    assert_eq!(left, ["fraud.db", "ledger.db", "log.db", "mailbox", "notification.db", "payment.db"]);
}

#[tokio::test]
async fn a_port_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let output = run(&["fraud"], &[("MALOTE_DATA", data), ("MALOTE_HTTP", &address)]).await;
    assert_eq!(output.status.code(), Some(2));
    let err = text(&output.stderr);
    assert!(err.contains("MALOTE_HTTP") && err.contains(&address), "{err}");
}

#[tokio::test]
async fn a_service_without_its_broker_lives_and_is_not_ready() {
    let folder = tempfile::tempdir().expect("a folder");
    // a port on which nothing listens, and nothing will
    let port = Port::claim().expect("a port");
    let broker = format!("kafka://127.0.0.1:{}", port.number());
    let fraud = Program::start_one("fraud", folder.path(), &[("MALOTE_TRANSPORT", &broker)]).await;
    assert_eq!(fraud.client.get("/health").await.expect("an answer").status, 200);
    let ready = fraud.client.get("/ready").await.expect("an answer");
    assert_eq!((ready.status, &*ready.content_type), (503, "application/problem+json"), "{ready:?}");
    let parts = ready.json()["parts"].clone();
    assert!(parts["fraud consumer"] == "starting" || parts["fraud consumer"] == "failing", "{parts}");
    let (ended, _) = fraud.signal("INT").await;
    assert!(ended.success(), "{ended}");
}

/// What the next test kills: a run of tests with a program of its own.
#[tokio::test]
async fn a_run_with_a_program() {
    let Some(folder) = std::env::var_os("PAYMENTS_TEST_FOLDER") else { return };
    let program = Program::start(Path::new(&folder), &[]).await;
    println!("\nprogram {}", program.pid());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_run_of_tests_leaves_no_program_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = tokio::process::Command::new(std::env::current_exe().expect("this program"));
    run.args(["--exact", "a_run_with_a_program", "--nocapture"]).env("PAYMENTS_TEST_FOLDER", folder.path());
    let mut run = run.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("starts");
    let mut lines = BufReader::new(run.stdout.take().expect("is piped")).lines();
    let pid = loop {
        let line = lines.next_line().await.expect("readable").expect("it names its program");
        if let Some(pid) = line.strip_prefix("program ") {
            break pid.to_owned();
        }
    };
    run.kill().await.expect("dies");
    let stat = format!("/proc/{pid}/stat");
    // gone, or dead and not yet buried by whoever inherits it
    let is_over = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z")).then_some(());
    until("the program is over", || async { is_over().is_none().then_some(()) }).await;
}

#[tokio::test]
async fn usage_and_help_tell_what_there_is() {
    assert_eq!(run(&["everything"], &[]).await.status.code(), Some(2));
    let help = text(&run(&["--help"], &[]).await.stdout);
    for said in ["notification", "map", "MALOTE_TRANSPORT", "MALOTE_FRAUD_PER_MINUTE"] {
        assert!(help.contains(said), "{help}");
    }
}
