//! The processes: four services and a payment provider.

use crate::{
    UNDER_WAY,
    client::{ITEMS, item},
    mischief::{self, Mischief},
    patience,
};
use malote_testkit::{
    child,
    fleet::Fleet,
    servers::{Kafka, Postgres},
};
use orders_checker::{Books, Lines, Places};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const SERVICES: [&str; 4] = ["order", "inventory", "billing", "shipping"];

/// Where the services keep their state, and what carries their messages.
pub enum Kind {
    Files,
    Servers { postgres: Box<Postgres>, kafka: Kafka },
}

impl Kind {
    pub fn files() -> Option<Self> {
        Some(Self::Files)
    }

    pub fn servers() -> Option<Self> {
        let (postgres, kafka) = (Box::new(Postgres::start_or_skip()?), Kafka::start_or_skip()?);
        for service in SERVICES {
            postgres.create_database(service).expect("a database");
        }
        Some(Self::Servers { postgres, kafka })
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Files => Vec::new(),
            Self::Servers { postgres, kafka } => vec![
                ("MALOTE_STORE", postgres.url("{service}")),
                ("MALOTE_TRANSPORT", format!("kafka://{}", kafka.bootstrap())),
                ("MALOTE_KAFKA_SESSION_MS", "3000".into()),
            ],
        }
    }
}

pub struct Shop {
    // before what its processes use
    pub fleet: Fleet,
    pub places: Places,
    pub kind: Kind,
    folder: TempDir,
}

impl Shop {
    pub async fn open(kind: Kind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |file: &str| folder.path().join(file).to_str().expect("a plain path").to_owned();
        let services = match &kind {
            Kind::Files => path("{service}.db"),
            Kind::Servers { postgres, .. } => postgres.url("{service}"),
        };
        let places = Places { services, provider: path("provider.db") };
        let mut shop = Self { fleet: Fleet::new(folder.path()), places, kind, folder };
        let book = shop.places.provider.clone();
        shop.fleet.add("provider", "/health", move |address| child::command(&[address, &book]));
        let provider = shop.fleet.base(0);
        for service in SERVICES {
            shop.add(service, &provider);
        }
        for at in 0..shop.fleet.size() {
            shop.fleet.ready(at).await;
        }
        // drawn for itself each: about one request in five meets one of them
        let faults = json!({"seed": 7, "error_percent": 7, "slow_percent": 5, "slow_ms": 250, "lose_percent": 5,
                            "timeout_percent": 4, "timeout_ms": 1_000});
        let set = reqwest::Client::new().put(format!("{provider}/faults")).json(&faults).send().await;
        assert_eq!(set.expect("an answer").status(), 200);
        shop
    }

    fn add(&mut self, service: &'static str, provider: &str) {
        let mut settings = self.kind.settings();
        let own = [
            ("MALOTE_DATA", self.folder.path().display().to_string()),
            ("MALOTE_PROVIDER", provider.to_owned()),
            ("MALOTE_PROVIDER_MS", "500".into()),
            ("MALOTE_KAFKA_INSTANCE", service.into()),
            ("MALOTE_LEASE_MS", "1000".into()),
            ("MALOTE_REQUEST_MS", "1000".into()),
            // short: silence, late answers and reservations that expire belong to it
            ("MALOTE_ANSWER_MS", "5000".into()),
            ("MALOTE_PAYMENT_ANSWER_MS", "3000".into()),
            ("MALOTE_PAYMENT_ASKS", "6".into()),
            ("MALOTE_RESERVATION_MS", "30000".into()),
            ("RUST_LOG", "info".into()),
        ];
        settings.extend(own);
        self.fleet.add(service, "/ready", move |address| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_orders"));
            command.arg(service).env("MALOTE_HTTP", address).envs(settings.iter().map(|(name, value)| (name, value)));
            command
        });
    }

    /// Where orders are taken.
    pub fn door(&self) -> String {
        self.fleet.base(1)
    }

    pub fn log(&self) -> String {
        self.folder.path().join("log.db").display().to_string()
    }

    /// Fills the shelves: of every other item there are too few for so many orders.
    pub async fn stock(&self, orders: usize) -> Lines {
        let wanted = orders as i64 * 9 / 4 / ITEMS as i64; // of each item, about
        let stock = |number: usize| if number.is_multiple_of(2) { 1 + wanted / 2 } else { 2 * wanted + 10 };
        let stock: Lines = (0..ITEMS).map(|number| (item(number), stock(number))).collect();
        let rows: Vec<_> = stock.iter().map(|(sku, n)| format!("('{sku}', {n}, {n})")).collect();
        self.run("inventory", &format!("INSERT INTO items (sku, total, available) VALUES {}", rows.join(", "))).await;
        let rows: Vec<_> = stock.keys().map(|sku| format!("('{sku}', 100)")).collect();
        self.run("order", &format!("INSERT INTO products (sku, price) VALUES {}", rows.join(", "))).await;
        stock
    }

    /// A statement in a service's database; how many rows it changed.
    async fn run(&self, service: &str, statement: &str) -> u64 {
        let place = self.places.services.replace("{service}", service);
        let done = match self.kind {
            Kind::Files => {
                let options = SqliteConnectOptions::new().filename(place);
                let mut db = SqliteConnection::connect_with(&options).await.expect("opens");
                let statement = statement.replace("malote.", "malote_");
                sqlx::query(AssertSqlSafe(statement)).execute(&mut db).await.map(|done| done.rows_affected())
            }
            Kind::Servers { .. } => {
                let mut db = PgConnection::connect(&place).await.expect("connects");
                sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&mut db).await.map(|done| done.rows_affected())
            }
        };
        done.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// A person has confirmed orders taken back, each once; how many of these were ever asked for.
    pub async fn take_back(&self, orders: &[String]) -> usize {
        let ids: Vec<_> = orders.iter().map(|id| format!("'{id}'")).collect();
        if ids.is_empty() {
            return 0;
        }
        let now = match self.kind {
            Kind::Files => "(SELECT now FROM malote.clock)",
            Kind::Servers { .. } => "malote.clock()",
        };
        let ask = format!(
            "INSERT INTO malote.saga_act (saga, deed, actor, reason, asked_at)
             SELECT id, '\"compensate\"', 'ana', 'it was sent back', {now} FROM malote.saga AS s
              WHERE status = 'completed' AND id IN ({})
                AND NOT EXISTS (SELECT 1 FROM malote.saga_act AS a WHERE a.saga = s.id)",
            ids.join(", ")
        );
        self.run("order", &ask).await;
        // changes nothing, and counts
        let count = "UPDATE malote.saga_act SET actor = actor WHERE actor = 'ana'";
        usize::try_from(self.run("order", count).await).expect("few")
    }

    pub fn mischief(&self) -> Mischief {
        match &self.kind {
            Kind::Files => Mischief::on_log(self.log()),
            Kind::Servers { kafka, .. } => Mischief::on_kafka(kafka.bootstrap().to_owned()),
        }
    }

    /// Whether something is asked of a process and not answered.
    pub async fn waits_for(&self, at: usize) -> bool {
        let under_way = Books::under_way(&self.places).await.expect("the database is there");
        match self.fleet.name(at) {
            "order" => !under_way.is_empty(),
            "provider" => under_way.contains_key("billing"),
            service => under_way.contains_key(service),
        }
    }

    /// Waits until more orders can be sent.
    pub async fn few_under_way(&self) {
        let end = Instant::now() + patience();
        loop {
            let under_way = Books::under_way(&self.places).await.expect("the database is there");
            if under_way.values().sum::<usize>() <= UNDER_WAY {
                return;
            }
            assert!(Instant::now() < end, "nothing goes on: {under_way:?}\n{}", self.fleet.logs());
            tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
        }
    }

    /// Waits until it is so; not for ever, since there may be nothing left to do.
    pub async fn busy(&self, at: usize) -> bool {
        let end = Instant::now() + Duration::from_secs(3);
        while !self.waits_for(at).await {
            if Instant::now() > end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await; // between two looks
        }
        true
    }

    /// While the order service is dead, lets the answers to it come in another order than they were given;
    /// how many changed their places. Kafka lets nobody do so.
    pub async fn reorder_answers(&self, victim: usize) -> usize {
        match self.kind {
            Kind::Files if self.fleet.name(victim) == "order" => mischief::reorder_answers(&self.log()).await,
            _ => 0,
        }
    }

    /// Waits until nothing moves any more.
    pub async fn quiet(&self, what: &str) {
        let end = Instant::now() + patience();
        loop {
            let mut restless = Books::restless(&self.places).await.expect("the databases are there");
            if let Kind::Files = self.kind {
                restless.extend(mischief::unread(&self.log()).await);
            }
            if restless.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "in vain: {what}: {}\n{}", restless.join("\n"), self.fleet.logs());
            tokio::time::sleep(Duration::from_millis(100)).await; // between two looks
        }
    }
}
