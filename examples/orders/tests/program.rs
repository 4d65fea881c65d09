//! The program as it is run: its map, one process for each service, and kill -9 of each in turn.
#![allow(missing_docs)]

use malote_testkit::servers;
use provider::{Book, Faults, Provider};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, SqlitePool, sqlite::SqliteConnectOptions};
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn the_map_in_the_repository_is_what_the_handlers_and_the_saga_declare() {
    let printed = Command::new(env!("CARGO_BIN_EXE_orders")).args(["map", "--format", "json"]).output().unwrap();
    let kept = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("flow.json")).unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(kept, printed, "write it anew: cargo run -p orders -- map --format json > examples/orders/flow.json");
}

/// One service in a process of its own.
struct Process {
    service: &'static str,
    port: servers::Port,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(service: &'static str, folder: &Path, provider: &str) -> Self {
        let port = servers::Port::claim().unwrap();
        let child = spawn(service, &port, folder, provider);
        Self { service, port, child }
    }

    /// kill -9, and again.
    fn kill_and_start(&mut self, folder: &Path, provider: &str) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.service, &self.port, folder, provider);
    }
}

fn spawn(service: &str, port: &servers::Port, folder: &Path, provider: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orders"));
    command
        .arg(service)
        .env("MALOTE_HTTP", format!("127.0.0.1:{}", port.number()))
        .env("MALOTE_DATA", folder)
        .env("MALOTE_PROVIDER", provider)
        .env("MALOTE_PROVIDER_MS", "1000")
        .env("MALOTE_LEASE_MS", "1000")
        .env("RUST_LOG", "error");
    servers::bound(&command).stdout(Stdio::null()).spawn().unwrap()
}

/// A provider that nobody kills: what happens to it then is its own test.
async fn provider(folder: &Path) -> (String, Book) {
    let book = Book::open(&folder.join("book.db")).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(provider::serve(listener, provider::router(Provider::new(book.clone())), CancellationToken::new()));
    (url, book)
}

#[derive(Clone)]
struct Client(reqwest::Client, String);

impl Client {
    async fn json(&self, request: reqwest::RequestBuilder) -> Option<(u16, Value)> {
        let answer = request.send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }

    /// Places an order, as often as it takes; its id.
    async fn place(&self, number: usize) -> String {
        let (sku, card) = match number % 8 {
            0 | 4 => ("globe", "tok_ok"),
            1 => ("book", "tok_declined"),
            2 => ("book", "tok_timeout"),
            _ => ("book", "tok_ok"),
        };
        let body = json!({"items": [{"sku": sku, "quantity": 1}], "card": card, "address": "Rua das Flores 1"});
        let end = Instant::now() + PATIENCE;
        loop {
            let request = self.0.post(format!("{}/orders", self.1)).json(&body);
            let request = request.header("Idempotency-Key", format!("order-{number}"));
            if let Some((202, answer)) = self.json(request).await {
                return answer["id"].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < end, "never accepted: {number}");
            tokio::time::sleep(Duration::from_millis(50)).await; // between two tries
        }
    }

    /// An order once it has ended.
    async fn ended(&self, id: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        let mut last = Value::Null;
        loop {
            if let Some((200, order)) = self.json(self.0.get(format!("{}/orders/{id}", self.1))).await {
                let steps = order["steps"].as_array().unwrap();
                let all = |state: &str| steps.iter().all(|step| step["state"] == state);
                match order["outcome"].as_str().unwrap() {
                    "CONFIRMED" if all("done") => return order,
                    "REJECTED" | "CANCELLED" => return order,
                    "NEEDS_ATTENTION" => panic!("{order}"),
                    _ => last = order,
                }
            }
            assert!(Instant::now() < end, "never ended: {last}");
            tokio::time::sleep(Duration::from_millis(50)).await; // between two looks
        }
    }
}

async fn number(folder: &Path, service: &str, sql: &str) -> i64 {
    let options = SqliteConnectOptions::new().filename(folder.join(format!("{service}.db")));
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_turn_the_services_end_every_order_and_nobody_pays_twice() {
    const ORDERS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let (url, book) = provider(folder.path()).await;
    let faults =
        Faults { seed: 11, error_percent: 20, lose_percent: 20, slow_percent: 20, slow_ms: 50, ..Faults::default() };
    book.set_faults(&faults).await.unwrap();
    let names = ["order", "inventory", "billing", "shipping"];
    let mut processes: Vec<_> = names.into_iter().map(|name| Process::start(name, folder.path(), &url)).collect();
    let client = Client(reqwest::Client::new(), format!("http://127.0.0.1:{}", processes[0].port.number()));
    let placing = {
        let client = client.clone();
        tokio::spawn(async move {
            let mut ids = Vec::new();
            for number in 0..ORDERS {
                ids.push(client.place(number).await);
            }
            ids
        })
    };
    for kill in 0..8 {
        // whoever is killed has work under way: the last orders were just placed
        let end = Instant::now() + PATIENCE;
        while book.effects().await.unwrap().len() < kill * 6 {
            assert!(Instant::now() < end, "nothing goes on after {kill} kills");
            tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
        }
        processes[kill % 4].kill_and_start(folder.path(), &url);
    }
    let ids = placing.await.unwrap();
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut effects: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ended = Vec::new();
    for id in &ids {
        ended.push(client.ended(id).await);
    }
    for effect in book.effects().await.unwrap() {
        effects.entry(effect.reference).or_default().push(effect.kind);
    }
    for order in &ended {
        let outcome = order["outcome"].as_str().unwrap();
        *outcomes.entry(outcome.to_owned()).or_default() += 1;
        let done = effects.remove(order["id"].as_str().unwrap()).unwrap_or_default();
        match outcome {
            "CONFIRMED" => assert_eq!(done, ["authorise", "capture"], "{order}"),
            _ => assert!(done.is_empty() || done == ["authorise", "void"], "{done:?} {order}"),
        }
    }
    assert!(effects.is_empty(), "money of no order: {effects:?}");
    // ten wanted one of three globes, five had a card that is declined
    assert_eq!(outcomes, BTreeMap::from([("CANCELLED".into(), 7), ("CONFIRMED".into(), 28), ("REJECTED".into(), 5)]));
    assert_eq!(number(folder.path(), "inventory", "SELECT sum(sold) FROM items").await, 28);
    assert_eq!(number(folder.path(), "inventory", "SELECT sum(reserved) FROM items").await, 0);
    assert_eq!(number(folder.path(), "billing", "SELECT count(*) FROM captures").await, 28);
    assert_eq!(number(folder.path(), "shipping", "SELECT count(*) FROM shipments").await, 28);
}
