//! The four services on PostgreSQL, Kafka and Redis, two processes each, while one process after
//! another is killed with work in flight and the servers are restarted. Judged by a checker that
//! shares no code with them.
//!
//! `MALOTE_SOAK_MINUTES=n` makes it last.
#![allow(missing_docs)]

use malote_testkit::{
    fleet::Fleet,
    servers::{Kafka, Postgres, Redis},
};
use payments_checker::{Books, judge, read_kafka};
use std::{
    collections::BTreeMap,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::task::JoinSet;

const SERVICES: [&str; 4] = ["payment", "fraud", "ledger", "notification"];
const KILLS: usize = 44;
/// Sent before each kill, so that it meets work in flight.
const BURST: usize = 23;
const PATIENCE: Duration = Duration::from_secs(120);

struct Stack {
    // before the servers that its processes use
    fleet: Fleet,
    postgres: Postgres,
    kafka: Kafka,
    redis: Redis,
    folder: TempDir,
    http: reqwest::Client,
}

impl Stack {
    async fn start() -> Option<Self> {
        let (postgres, redis) = (Postgres::start_or_skip()?, Redis::start_or_skip()?);
        let kafka = Kafka::start_or_skip()?;
        for service in SERVICES {
            postgres.create_database(service).expect("a database");
        }
        let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().expect("a client");
        let folder = tempfile::tempdir().expect("a folder");
        let mut stack = Self { fleet: Fleet::new(folder.path()), postgres, kafka, redis, folder, http };
        for service in SERVICES {
            stack.add(service, 'a');
            stack.add(service, 'b');
        }
        for at in 0..stack.fleet.size() {
            stack.fleet.ready(at).await;
        }
        Some(stack)
    }

    /// One of the two processes of a service.
    fn add(&mut self, service: &'static str, twin: char) {
        let name = format!("{service}-{twin}");
        let settings = [
            ("MALOTE_DATA", self.folder.path().display().to_string()),
            ("MALOTE_STORE", self.postgres.url("{service}")),
            ("MALOTE_TRANSPORT", format!("kafka://{}", self.kafka.bootstrap())),
            ("MALOTE_REDIS", self.redis.url()),
            ("MALOTE_LEASE_MS", "1000".into()),
            ("MALOTE_KAFKA_SESSION_MS", "3000".into()),
            ("MALOTE_KAFKA_INSTANCE", name.clone()),
            ("RUST_LOG", "info".into()),
        ];
        self.fleet.add(name, "/ready", move |address| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_payments"));
            command.arg(service).env("MALOTE_HTTP", address).envs(settings.iter().map(|(name, value)| (name, value)));
            command
        });
    }

    fn url(&self) -> impl Fn(&str) -> String + use<> {
        let pattern = self.postgres.url("{service}");
        move |service| pattern.replace("{service}", service)
    }
}

/// The client: sends each payment under its key until it is accepted.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    doors: Vec<String>,
    accepted: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Client {
    async fn pay(self, number: usize) {
        let key = format!("kills-{number}");
        let (from, to) = if number.is_multiple_of(2) { ("alice", "bob") } else { ("bob", "alice") };
        // one in ten is more than carol has
        let body = match number % 10 {
            9 => r#"{"amount": 999999999, "from": "carol", "to": "bob"}"#.to_owned(),
            _ => format!(r#"{{"amount": {}, "from": "{from}", "to": "{to}"}}"#, 1 + number % 1500),
        };
        let end = Instant::now() + PATIENCE;
        for attempt in number.. {
            let url = format!("{}/payment", self.doors[attempt % self.doors.len()]);
            let request = self.http.post(url).header("Idempotency-Key", &key).body(body.clone());
            if let Ok(answer) = request.send().await
                && answer.status() == 202
                && let Ok(body) = answer.json::<serde_json::Value>().await
            {
                let id = body["id"].as_str().expect("an id").to_owned();
                let before = self.accepted.lock().expect("no panic").insert(key.clone(), id.clone());
                assert!(before.is_none_or(|b| b == id), "one key, two payments");
                return;
            }
            assert!(Instant::now() < end, "payment {number} was never accepted");
            tokio::time::sleep(Duration::from_millis(100)).await; // a client's own pause
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_nothing_is_lost_or_repeated_while_processes_are_killed() {
    let Some(mut stack) = Stack::start().await else { return };
    let fleet = &stack.fleet;
    let doors =
        (0..fleet.size()).filter(|at| fleet.name(*at).starts_with("payment")).map(|at| fleet.base(at)).collect();
    let client = Client { http: stack.http.clone(), doors, accepted: Arc::default() };
    let minutes: u64 = std::env::var("MALOTE_SOAK_MINUTES").ok().and_then(|m| m.parse().ok()).unwrap_or(0);
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let (mut sent, mut kills, mut round) = (0, 0, 0);
    let mut paying = JoinSet::new();
    while kills < KILLS || Instant::now() < end {
        for _ in 0..BURST {
            paying.spawn(client.clone().pay(sent));
            sent += 1;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(5..150))).await; // a random moment
        let in_flight = Books::open(stack.url()).await.unwrap_or(0);
        let victim = round % stack.fleet.size();
        stack.fleet.kill9(victim);
        kills += usize::from(in_flight > 0);
        match round % KILLS {
            10 | 30 => stack.kafka.restart().expect("Kafka restarts"),
            20 => stack.postgres.restart(false).expect("PostgreSQL restarts"),
            40 => {
                stack.postgres.kill9().expect("PostgreSQL runs");
                stack.postgres.start_again().expect("PostgreSQL recovers");
            }
            _ => {}
        }
        stack.fleet.restart(victim);
        stack.fleet.ready(victim).await;
        round += 1;
    }
    while let Some(paid) = paying.join_next().await {
        paid.expect("every payment is accepted");
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let open = Books::open(stack.url()).await.expect("PostgreSQL is up");
        if open == 0 {
            break;
        }
        assert!(Instant::now() < end, "{open} payments have not ended\n{}", stack.fleet.logs());
        tokio::time::sleep(Duration::from_millis(200)).await; // between two looks
    }
    let books = Books::read(stack.url()).await.expect("PostgreSQL is up");
    let topics = read_kafka(stack.kafka.bootstrap()).expect("Kafka is up");
    let accepted = client.accepted.lock().expect("no panic").clone();
    let wrong = judge(&accepted, &books, &topics);
    println!(
        "{sent} payments, {kills} kills with work in flight of {round}, {} events, {} duplicates on the topics",
        topics.first.len(),
        topics.duplicates
    );
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), stack.fleet.logs());
}
