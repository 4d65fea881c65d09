//! The provider by its interface: real HTTP, and a process that can be killed.
#![allow(missing_docs)]

use malote_testkit::servers;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A provider in a process of its own.
struct Provider {
    port: servers::Port,
    child: Child,
    folder: TempDir,
    http: reqwest::Client,
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Answer = Result<(u16, Value), reqwest::Error>;

impl Provider {
    async fn start() -> Self {
        let (port, folder) = (servers::Port::claim().unwrap(), tempfile::tempdir().unwrap());
        let child = start(&port, &folder.path().join("book.db"));
        let provider = Self { port, child, folder, http: reqwest::Client::new() };
        provider.ready().await;
        provider
    }

    /// kill -9, and again from the file.
    async fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = start(&self.port, &self.book_file());
        self.ready().await;
    }

    fn book_file(&self) -> PathBuf {
        self.folder.path().join("book.db")
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port.number())
    }

    async fn ready(&self) {
        until("it is up", async || self.http.get(self.url("/health")).send().await.is_ok()).await;
    }

    async fn post(&self, path: &str, key: &str, body: Value) -> Answer {
        post(&self.http, self.url(path), key, body).await
    }

    async fn authorise(&self, key: &str, card: &str) -> Answer {
        self.post("/authorisations", key, json!({"reference": "o1", "amount": 1500, "card": card})).await
    }

    /// An authorisation that is given.
    async fn authorised(&self, key: &str, card: &str) -> String {
        let (status, body) = self.authorise(key, card).await.unwrap();
        assert_eq!(status, 201, "{body}");
        body["authorisation"].as_str().unwrap().to_owned()
    }

    async fn capture(&self, key: &str, authorisation: &str) -> Answer {
        self.post("/captures", key, json!({"authorisation": authorisation, "amount": 1500})).await
    }

    async fn undo(&self, path: &str, key: &str, operation: &str) -> Answer {
        self.post(path, key, json!({"operation": operation})).await
    }

    async fn became(&self, key: &str) -> Value {
        let found = self.http.get(self.url("/operations")).query(&[("key", key)]).send().await.unwrap();
        found.json().await.unwrap()
    }

    async fn faults(&self, faults: Value) {
        let set = self.http.put(self.url("/faults")).json(&faults).send().await.unwrap();
        assert_eq!(set.status(), 200);
    }

    /// Kind and key of every effect.
    async fn book(&self) -> Vec<(String, String)> {
        let book: Value = self.http.get(self.url("/book")).send().await.unwrap().json().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        book["effects"].as_array().unwrap().iter().map(|e| (text(&e["kind"]), text(&e["key"]))).collect()
    }
}

fn start(port: &servers::Port, book: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_provider"));
    command.env("PROVIDER_HTTP", format!("127.0.0.1:{}", port.number())).env("PROVIDER_BOOK", book);
    servers::bound(&command).stdout(Stdio::null()).spawn().unwrap()
}

async fn post(http: &reqwest::Client, url: String, key: &str, body: Value) -> Answer {
    let answer = http.post(url).header("Idempotency-Key", key).json(&body).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
    }
}

fn effects(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(kind, key)| ((*kind).to_owned(), (*key).to_owned())).collect()
}

#[tokio::test]
async fn a_key_gets_one_answer_and_is_worked_on_once() {
    let provider = Provider::start().await;
    let first = provider.authorise("k1", "tok_ok").await.unwrap();
    assert_eq!((first.0, &first.1["status"]), (201, &json!("AUTHORISED")));
    assert_eq!(provider.authorise("k1", "tok_ok").await.unwrap(), first);
    let (status, other) = provider.authorise("k1", "tok_declined").await.unwrap();
    assert_eq!((status, &other["code"]), (422, &json!("KEY_REUSED")));
    let authorisation = first.1["authorisation"].as_str().unwrap();
    assert_eq!(provider.capture("k2", authorisation).await.unwrap().0, 201);
    let (status, second) = provider.capture("k3", authorisation).await.unwrap();
    assert_eq!((status, &second["code"]), (422, &json!("NOT_CAPTURABLE")));
    let (status, none) = provider.post("/captures", "", json!({})).await.unwrap();
    assert_eq!((status, &none["code"]), (400, &json!("KEY_MISSING")));
    assert_eq!(provider.book().await, effects(&[("authorise", "k1"), ("capture", "k2")]));
}

#[tokio::test]
async fn a_key_whose_first_work_still_runs_is_told_so() {
    let provider = Provider::start().await;
    provider.faults(json!({"slow_ms": 3_000})).await;
    let (http, url) = (provider.http.clone(), provider.url("/authorisations"));
    let body = json!({"reference": "o1", "amount": 1500, "card": "tok_slow"});
    let first = tokio::spawn(async move { post(&http, url, "k1", body).await });
    until("it is being worked on", async || provider.became("k1").await["state"] == "running").await;
    let (status, again) = provider.authorise("k1", "tok_slow").await.unwrap();
    assert_eq!((status, &again["code"]), (409, &json!("KEY_RUNNING")));
    assert_eq!(first.await.unwrap().unwrap().0, 201);
    assert_eq!(provider.book().await, effects(&[("authorise", "k1")]));
}

#[tokio::test]
async fn an_answer_that_never_comes_is_had_by_asking_again() {
    let provider = Provider::start().await;
    provider.faults(json!({"timeout_ms": 600_000})).await;
    let impatient = reqwest::Client::builder().timeout(Duration::from_millis(500)).build().unwrap();
    let body = json!({"reference": "o1", "amount": 1500, "card": "tok_timeout"});
    let silence = post(&impatient, provider.url("/authorisations"), "k1", body).await;
    assert!(silence.is_err_and(|error| error.is_timeout()));
    until("it was done all the same", async || provider.became("k1").await["state"] == "done").await;
    let (status, body) = provider.authorise("k1", "tok_timeout").await.unwrap();
    assert_eq!((status, &body), (201, &provider.became("k1").await["answer"]));
    provider.faults(json!({"lose_percent": 100})).await;
    assert!(provider.authorise("k2", "tok_ok").await.is_err(), "an answer");
    assert!(provider.authorise("k2", "tok_ok").await.is_err(), "an answer");
    provider.faults(json!({})).await;
    assert_eq!(provider.authorise("k2", "tok_ok").await.unwrap().0, 201);
    assert_eq!(provider.book().await, effects(&[("authorise", "k1"), ("authorise", "k2")]));
}

#[tokio::test]
async fn an_error_before_the_work_leaves_nothing() {
    let provider = Provider::start().await;
    provider.faults(json!({"error_percent": 100})).await;
    assert_eq!(provider.authorise("k1", "tok_ok").await.unwrap().0, 503);
    assert_eq!(provider.became("k1").await["state"], "unknown");
    assert_eq!(provider.book().await, []);
    let bad = provider.http.put(provider.url("/faults")).json(&json!({"error_percent": 101})).send().await.unwrap();
    assert_eq!(bad.status(), 400);
    provider.faults(json!({"decline_percent": 100})).await;
    assert_eq!(provider.authorise("k1", "tok_ok").await.unwrap().0, 402);
    provider.faults(json!({})).await;
    assert_eq!(provider.authorise("k1", "tok_ok").await.unwrap().0, 402, "an answer stands");
    assert_eq!(provider.authorise("k2", "tok_declined").await.unwrap().1["code"], "DECLINED");
    assert_eq!(provider.book().await, []);
}

#[tokio::test]
async fn what_was_done_is_undone_by_the_key_that_did_it() {
    let provider = Provider::start().await;
    provider.authorised("a1", "tok_ok").await;
    assert_eq!(provider.undo("/voids", "v1", "a1").await.unwrap().1["status"], "VOIDED");
    assert_eq!(provider.undo("/voids", "v2", "a1").await.unwrap().1["status"], "VOIDED");
    let (status, itself) = provider.undo("/voids", "v1b", "v1b").await.unwrap();
    assert_eq!((status, &itself["code"]), (400, &json!("BAD_REQUEST")));
    let authorisation = provider.authorised("a2", "tok_ok").await;
    provider.capture("c2", &authorisation).await.unwrap();
    assert_eq!(provider.undo("/voids", "v3", "a2").await.unwrap().1["code"], "CAPTURED");
    let (status, refund) = provider.undo("/refunds", "r2", "c2").await.unwrap();
    assert_eq!((status, &refund["status"], &refund["fee"]), (201, &json!("REFUNDED"), &json!(30)));
    assert_eq!(provider.undo("/refunds", "r3", "c2").await.unwrap().1["status"], "REFUNDED");
    let authorisation = provider.authorised("a4", "tok_refund_fails").await;
    provider.capture("c4", &authorisation).await.unwrap();
    assert_eq!(provider.undo("/refunds", "r4", "c4").await.unwrap().1["code"], "REFUND_FAILED");
    provider.faults(json!({"cards": false})).await;
    assert_eq!(provider.undo("/refunds", "r4", "c4").await.unwrap().0, 422, "an answer stands");
    assert_eq!(provider.undo("/refunds", "r5", "c4").await.unwrap().0, 201);
    let book = provider.book().await;
    let done = [("authorise", "a1"), ("void", "v1"), ("authorise", "a2"), ("capture", "c2"), ("refund", "r2")];
    let then = [("authorise", "a4"), ("capture", "c4"), ("refund", "r5")];
    assert_eq!(book, effects(&[done.as_slice(), then.as_slice()].concat()));
}

#[tokio::test]
async fn what_is_undone_before_it_came_is_not_done_when_it_comes() {
    let provider = Provider::start().await;
    assert_eq!(provider.undo("/voids", "v1", "a1").await.unwrap().1["status"], "NOTHING_DONE");
    assert_eq!(provider.became("a1").await["state"], "called off");
    let (status, late) = provider.authorise("a1", "tok_ok").await.unwrap();
    assert_eq!((status, &late["code"]), (410, &json!("CALLED_OFF")));
    // also where it is being worked on
    provider.faults(json!({"slow_ms": 1_000})).await;
    let (http, url) = (provider.http.clone(), provider.url("/authorisations"));
    let body = json!({"reference": "o1", "amount": 1500, "card": "tok_slow"});
    let slow = tokio::spawn(async move { post(&http, url, "a2", body).await });
    until("it is being worked on", async || provider.became("a2").await["state"] == "running").await;
    assert_eq!(provider.undo("/voids", "v2", "a2").await.unwrap().1["status"], "NOTHING_DONE");
    assert_eq!(slow.await.unwrap().unwrap().0, 410);
    assert_eq!(provider.book().await, []);
}

/// Authorises and captures until both are answered.
async fn pay(http: reqwest::Client, base: String, number: usize) {
    let end = Instant::now() + PATIENCE;
    let done = async |path: &str, key: String, body: Value| loop {
        assert!(Instant::now() < end, "never answered: {key}");
        match post(&http, format!("{base}{path}"), &key, body.clone()).await {
            Ok((201, answer)) => return answer,
            Ok((409 | 503, _)) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await, // between two tries
            Ok(other) => panic!("{key}: {other:?}"),
        }
    };
    let body = json!({"reference": format!("o{number}"), "amount": 1500, "card": "tok_ok"});
    let authorised = done("/authorisations", format!("a{number}"), body).await;
    let body = json!({"authorisation": authorised["authorisation"], "amount": 1500});
    done("/captures", format!("c{number}"), body).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_does_nothing_twice() {
    let mut provider = Provider::start().await;
    let faults = json!({"seed": 4, "slow_percent": 20, "slow_ms": 30, "error_percent": 20, "lose_percent": 20});
    provider.faults(faults).await;
    let impatient = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().unwrap();
    let base = provider.url("");
    let clients: Vec<_> = (0..40).map(|n| tokio::spawn(pay(impatient.clone(), base.clone(), n))).collect();
    for kill in 1..=5 {
        until("some work is done", async || provider.book().await.len() >= kill * 10).await;
        provider.kill_and_start().await;
    }
    for client in clients {
        client.await.unwrap();
    }
    let mut keys: Vec<String> = provider.book().await.into_iter().map(|(_, key)| key).collect();
    keys.sort();
    let mut wanted: Vec<String> = (0..40).flat_map(|n| [format!("a{n}"), format!("c{n}")]).collect();
    wanted.sort();
    assert_eq!(keys, wanted);
}

#[tokio::test]
async fn the_database_forbids_a_second_effect() {
    let provider = Provider::start().await;
    let authorisation = provider.authorised("a1", "tok_ok").await;
    provider.capture("c1", &authorisation).await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(provider.book_file()).foreign_keys(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let another = "INSERT INTO operations (key, request, status, answer) VALUES ('c2', 'x', 201, '{}')";
    sqlx::query(another).execute(&pool).await.unwrap();
    for (kind, key) in [("capture", "c2"), ("refund", "c1"), ("refund", "c9"), ("gift", "c2")] {
        let insert = "INSERT INTO effects (kind, authorisation, amount, key) VALUES ($1, $2, 1500, $3)";
        let inserted = sqlx::query(insert).bind(kind).bind(&authorisation).bind(key).execute(&pool).await;
        assert!(inserted.is_err(), "a {kind} under {key}");
    }
    assert_eq!(provider.book().await.len(), 2);
}
