//! What the tests of the orders share: services and a provider in this process, and a client.
#![allow(dead_code)] // each test program uses a part of it

pub use ::support::testing::{Book, Store, until};

use ::support::app::App;
use orders::{
    app::{self, Name},
    config::Config,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Both stores, as far as they are there.
pub fn both() -> Vec<Store> {
    Store::both(&Name::ALL.map(Name::as_str))
}

/// The four services and a provider, in this process, on a folder of their own, with the embedded log.
pub struct Services {
    pub folder: TempDir,
    http: reqwest::Client,
    base: String,
    provider: String,
    store: Store,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Services {
    /// Runs all of them; `settings` are as in the environment.
    pub async fn run(store: Store, settings: &[(&str, &str)]) -> Self {
        Self::with(store, &Name::ALL, settings).await
    }

    /// Runs some of them.
    pub async fn with(store: Store, names: &[Name], settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().to_str().expect("a plain path").to_owned();
        let config = Config::read(&|name| match name {
            "MALOTE_DATA" => Some(data.clone()),
            "MALOTE_HTTP" => Some("127.0.0.1:0".into()),
            "MALOTE_STORE" => store.setting(),
            other => settings.iter().find(|(key, _)| *key == other).map(|(_, value)| (*value).to_owned()),
        });
        let (config, stop) = (config.expect("good settings"), CancellationToken::new());
        let (parts, provider) = app::parts(names, &config, &stop).await.expect("opens");
        let app = App::open(&parts, &config.common, &stop).await.expect("opens").expect("not stopped");
        let base = format!("http://{}", app.address().expect("an address"));
        let running = tokio::spawn(async move { app.run().await.expect("runs") });
        Self { folder, http: reqwest::Client::new(), base, provider, store, stop, running }
    }

    /// Stops, and waits for the end.
    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("ends in good order");
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Where one service's database is.
    pub fn place(&self, name: Name) -> String {
        self.store.place(self.folder.path(), name.as_str())
    }

    /// A look into one service's database.
    pub async fn book(&self, name: Name) -> Book {
        self.store.book(self.folder.path(), name.as_str()).await
    }

    /// A request; status and body.
    pub async fn send(&self, method: Method, path: &str, key: Option<&str>, body: Value) -> (u16, Value) {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.base));
        if method != Method::GET {
            request = request.json(&body);
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    }

    /// An order under a fresh key that must be accepted; its id.
    pub async fn placed(&self, body: Value) -> String {
        let key = uuid::Uuid::now_v7().to_string();
        let (status, answer) = self.send(Method::POST, "/orders", Some(&key), body).await;
        assert_eq!(status, 202, "{answer}");
        answer["id"].as_str().expect("an id").to_owned()
    }

    /// The order as it is.
    pub async fn order(&self, id: &str) -> Value {
        let (status, order) = self.send(Method::GET, &format!("/orders/{id}"), None, Value::Null).await;
        assert_eq!(status, 200, "{order}");
        order
    }

    /// The order, once it is neither on its way forward nor back: nothing of it is waited for.
    pub async fn settled(&self, id: &str) -> Value {
        self.order_that(id, |order| {
            let waits =
                |step: &Value| ["asked", "resting", "undoing", "undo resting"].iter().any(|s| step["state"] == *s);
            order["outcome"] != "IN_PROGRESS" && !order["steps"].as_array().expect("steps").iter().any(waits)
        })
        .await
    }

    /// The order, once this holds.
    pub async fn order_that(&self, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(&format!("order {id} as expected"), || async { Some(self.order(id).await).filter(&holds) }).await
    }

    /// The provider's effects: kind and reference.
    pub async fn effects(&self) -> Vec<(String, String)> {
        let book: Value = self.http.get(format!("{}/book", self.provider)).send().await.unwrap().json().await.unwrap();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let effects = book["effects"].as_array().expect("effects").iter();
        effects.map(|effect| (text(&effect["kind"]), text(&effect["reference"]))).collect()
    }

    /// The kinds of the provider's effects for an order, in their order.
    pub async fn effects_for(&self, order: &str) -> Vec<String> {
        self.effects().await.into_iter().filter(|(_, of)| of == order).map(|(kind, _)| kind).collect()
    }

    /// Sets the provider's faults.
    pub async fn faults(&self, faults: Value) {
        let set = self.http.put(format!("{}/faults", self.provider)).json(&faults).send().await.expect("an answer");
        assert_eq!(set.status(), 200);
    }
}

/// An order of one item.
pub fn one(sku: &str, card: &str) -> Value {
    json!({"items": [{"sku": sku, "quantity": 1}], "card": card, "address": "Rua das Flores 1, Porto"})
}
