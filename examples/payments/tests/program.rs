//! The program's other faces: its map, its settings, its errors.

mod support;

use malote::topology::Flow;
use malote_testkit::servers::Port;
use std::{fs, path::Path, process::Output};
use support::program::{Program, command};

async fn run(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    command(arguments, settings).output().await.expect("starts")
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
        ("MALOTE_FRAUD_APPROVE_PERCENT", "170", "from 0 to 100"),
        ("MALOTE_WEBHOOK", "ftp://canary", "http://"),
        ("MALOTE_DATA", "/proc/nothing", "cannot be made"),
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

#[tokio::test]
async fn usage_and_help_tell_what_there_is() {
    assert_eq!(run(&["everything"], &[]).await.status.code(), Some(2));
    let help = text(&run(&["--help"], &[]).await.stdout);
    for said in ["notification", "map", "MALOTE_TRANSPORT", "MALOTE_FRAUD_PER_MINUTE"] {
        assert!(help.contains(said), "{help}");
    }
}
