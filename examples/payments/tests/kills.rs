//! The four services on PostgreSQL, Kafka and Redis, two processes each, while one process after
//! another is killed with work in flight and the servers are restarted. Judged by a checker that
//! shares no code with them.
//!
//! `MALOTE_SOAK_MINUTES=n` makes it last.
#![allow(missing_docs)]

use malote_testkit::servers::{Kafka, Port, Postgres, Redis, bound};
use payments_checker::{Books, judge, read_topics};
use std::{
    collections::BTreeMap,
    fs::File,
    process::{Child, Command, Stdio},
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

/// One of the two processes of a service.
struct Process {
    service: &'static str,
    twin: char,
    port: Port,
    child: Child,
}

impl Process {
    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    fn kill9(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Stack {
    postgres: Postgres,
    kafka: Kafka,
    redis: Redis,
    folder: TempDir,
    processes: Vec<Process>,
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
        let mut stack = Self { postgres, kafka, redis, folder, processes: Vec::new(), http };
        for service in SERVICES {
            for twin in ['a', 'b'] {
                let port = Port::claim().expect("a port");
                let child = stack.spawn(service, twin, &port);
                stack.processes.push(Process { service, twin, port, child });
            }
        }
        for at in 0..stack.processes.len() {
            stack.ready(at).await;
        }
        Some(stack)
    }

    fn spawn(&self, service: &str, twin: char, port: &Port) -> Child {
        let log = self.folder.path().join(format!("{service}-{twin}.log"));
        let log = File::options().create(true).append(true).open(log).expect("a log file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_payments"));
        command
            .arg(service)
            .env("MALOTE_HTTP", format!("127.0.0.1:{}", port.number()))
            .env("MALOTE_DATA", self.folder.path())
            .env("MALOTE_STORE", self.postgres.url("{service}"))
            .env("MALOTE_TRANSPORT", format!("kafka://{}", self.kafka.bootstrap()))
            .env("MALOTE_REDIS", self.redis.url())
            .env("MALOTE_LEASE_MS", "1000")
            .env("MALOTE_KAFKA_SESSION_MS", "3000")
            .env("MALOTE_KAFKA_INSTANCE", format!("{service}-{twin}"))
            .env("RUST_LOG", "info");
        bound(&command).stdout(Stdio::null()).stderr(log).spawn().expect("payments starts")
    }

    fn restart(&mut self, at: usize) {
        let process = &self.processes[at];
        let child = self.spawn(process.service, process.twin, &process.port);
        self.processes[at].child = child;
    }

    async fn ready(&self, at: usize) {
        let (service, twin) = (self.processes[at].service, self.processes[at].twin);
        let url = format!("{}/ready", self.processes[at].base());
        let end = Instant::now() + PATIENCE;
        while !self.http.get(&url).send().await.is_ok_and(|r| r.status() == 200) {
            if Instant::now() > end {
                let parts = match self.http.get(&url).send().await {
                    Ok(answer) => answer.text().await.unwrap_or_default(),
                    Err(error) => error.to_string(),
                };
                panic!("{service} {twin} is not ready: {parts}\n{}", self.logs());
            }
            tokio::time::sleep(Duration::from_millis(50)).await; // between two looks
        }
    }

    fn url(&self) -> impl Fn(&str) -> String + use<> {
        let pattern = self.postgres.url("{service}");
        move |service| pattern.replace("{service}", service)
    }

    /// The ends of the processes' logs.
    fn logs(&self) -> String {
        self.processes.iter().fold(String::new(), |mut all, process| {
            let name = format!("{}-{}.log", process.service, process.twin);
            let log = std::fs::read_to_string(self.folder.path().join(&name)).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            all += &format!("== {name}\n{}\n", lines[lines.len().saturating_sub(15)..].join("\n"));
            all
        })
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
    let doors = stack.processes.iter().filter(|p| p.service == "payment").map(Process::base).collect();
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
        let victim = round % stack.processes.len();
        stack.processes[victim].kill9();
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
        stack.restart(victim);
        stack.ready(victim).await;
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
        assert!(Instant::now() < end, "{open} payments have not ended\n{}", stack.logs());
        tokio::time::sleep(Duration::from_millis(200)).await; // between two looks
    }
    let books = Books::read(stack.url()).await.expect("PostgreSQL is up");
    let topics = read_topics(stack.kafka.bootstrap()).expect("Kafka is up");
    let accepted = client.accepted.lock().expect("no panic").clone();
    let wrong = judge(&accepted, &books, &topics);
    println!(
        "{sent} payments, {kills} kills with work in flight of {round}, {} events, {} duplicates on the topics",
        topics.first.len(),
        topics.duplicates
    );
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), stack.logs());
}
