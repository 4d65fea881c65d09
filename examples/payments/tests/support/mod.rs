//! What the tests of the payments share: services on a folder of their own, in this process or in one
//! that can be killed; a client; and a look into the databases.
#![allow(dead_code)] // each test program uses a part of it

pub mod books;
pub mod client;
pub mod program;

pub use ::support::testing::{Book, Store, patience, until};

use ::support::app::App;
use books::Books;
use client::Client;
use malote::{Event, Outbox, Runtime, Service, Transport, sqlite};
use payments::{
    app::{self, Name},
    config::Config,
};
use std::{path::Path, sync::Arc};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Both stores, as far as they are there.
pub fn both() -> Vec<Store> {
    Store::both(&Name::ALL.map(Name::as_str))
}

/// Services in this process, on a folder of their own, with the embedded log.
pub struct Services {
    pub client: Client,
    pub folder: TempDir,
    store: Store,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Services {
    /// Runs some of the services; `settings` are as in the environment.
    pub async fn run(store: Store, names: &[Name], settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().to_str().expect("a plain path").to_owned();
        let config = Config::read(&|name| match name {
            "MALOTE_DATA" => Some(data.clone()),
            "MALOTE_HTTP" => Some("127.0.0.1:0".into()),
            "MALOTE_STORE" => store.setting(),
            other => settings.iter().find(|(key, _)| *key == other).map(|(_, value)| (*value).to_owned()),
        });
        let stop = CancellationToken::new();
        let config = config.expect("good settings");
        let parts = app::parts(names, &config).expect("good settings");
        let app = App::open(&parts, &config.common, &stop).await.expect("opens").expect("not stopped");
        let client = Client::new(&app.address().expect("an address").to_string());
        let running = tokio::spawn(async move { app.run().await.expect("runs") });
        Self { client, folder, store, stop, running }
    }

    pub fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    /// A look into one service's database.
    pub async fn book(&self, name: Name) -> Book {
        self.store.book(self.folder.path(), name.as_str()).await
    }

    /// A look into all four.
    pub async fn books(&self) -> Books {
        Books {
            payment: self.book(Name::Payment).await,
            fraud: self.book(Name::Fraud).await,
            ledger: self.book(Name::Ledger).await,
            notification: self.book(Name::Notification).await,
        }
    }

    /// A service of the test's own on the same log: what it says, the others hear.
    pub async fn stranger(&self) -> Stranger {
        Stranger::on(self.folder.path()).await
    }

    /// What was said about a payment on a topic, as it went over the log, once there is something.
    pub async fn heard(&self, topic: &str, payment: &str) -> String {
        let log = sqlite::Embedded::open(self.path("log.db")).await.expect("opens");
        let topics = [topic.to_owned()];
        log.ensure(&topics).await.expect("is there");
        // a group of its own starts at the oldest record
        let mut ear = log.subscribe(&uuid::Uuid::now_v7().to_string(), &topics).await.expect("joins");
        let listening = async {
            loop {
                let deliveries = ear.next(100).await.expect("readable");
                let mut records = deliveries.into_iter().map(|delivery| delivery.record);
                if let Some(found) = records.find(|record| record.key.as_deref() == Some(payment.as_bytes())) {
                    return String::from_utf8(found.payload.expect("a payload").to_vec()).expect("JSON");
                }
            }
        };
        let heard = tokio::time::timeout(patience(), listening).await;
        ear.close().await;
        heard.unwrap_or_else(|_| panic!("in vain: {topic} about {payment}"))
    }

    /// Stops in good order.
    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("ends well");
    }
}

/// Says events that the services' own would not.
pub struct Stranger {
    outbox: Outbox<sqlite::Sqlite>,
    running: JoinHandle<()>,
}

impl Stranger {
    async fn on(folder: &Path) -> Self {
        let db = sqlite::Sqlite::open(folder.join("stranger.db").to_str().expect("a plain path")).await.expect("opens");
        db.migrate().await.expect("migrates");
        let log = sqlite::Embedded::open(folder.join("log.db")).await.expect("opens");
        let service = Service::new("stranger", db, Arc::new(log))
            .emits::<payments::contracts::PaymentApproved>()
            .emits::<payments::contracts::PaymentSettled>()
            .emits::<payments::contracts::PaymentFailed>();
        let outbox = service.outbox();
        let runtime = Runtime::new().with(service);
        let running = tokio::spawn(async move {
            let ended = runtime.run_until(std::future::pending::<()>()).await;
            ended.expect("well defined");
        });
        Self { outbox, running }
    }

    pub async fn say<E: Event>(&self, event: E) {
        let mut tx = self.outbox.begin().await.expect("begins");
        tx.publish(event).await.expect("is said");
        tx.commit().await.expect("commits");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.running.abort();
    }
}
