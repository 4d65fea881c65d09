//! The throw-away servers themselves: what was acknowledged survives each way
//! of ending them, and nothing of them is left behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use malote_testkit::servers::{self, Kafka, PgBouncer, Port, Postgres, Redis};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn postgres_keeps_what_was_committed() {
    let Some(mut postgres) = Postgres::builder().setting("work_mem", "5MB").start_or_skip() else {
        return;
    };
    let url = postgres.create_database("letters").unwrap();
    assert_eq!(url, postgres.url("letters"));
    let sql = |postgres: &Postgres, sql: &str| postgres.psql("letters", sql).unwrap();
    assert_eq!(sql(&postgres, "SHOW work_mem"), "5MB");
    assert_eq!(sql(&postgres, "SHOW max_connections"), "300");
    assert_eq!(sql(&postgres, "SHOW max_prepared_transactions"), "10");
    sql(&postgres, "CREATE TABLE letter (n int)");

    type End = fn(&mut Postgres) -> std::io::Result<()>;
    let ends: [End; 4] = [
        |postgres| postgres.restart(false),
        |postgres| postgres.restart(true),
        |postgres| postgres.kill9().and_then(|()| postgres.start_again()),
        |postgres| postgres.stop().and_then(|()| postgres.start_again()),
    ];
    for (n, end) in ends.iter().enumerate() {
        sql(&postgres, &format!("INSERT INTO letter VALUES ({n})"));
        end(&mut postgres).unwrap();
        assert_eq!(sql(&postgres, "SELECT count(*) FROM letter"), (n + 1).to_string());
    }
}

#[test]
fn postgres_says_why_it_does_not_start() {
    if Postgres::start_or_skip().is_none() {
        return;
    }
    let error = Postgres::builder().setting("no_such_setting", "1").start().unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[test]
fn pgbouncer_passes_queries_on() {
    let Some(postgres) = Postgres::start_or_skip() else {
        return;
    };
    postgres.create_database("letters").unwrap();
    let pooler = PgBouncer::before(&postgres).unwrap();
    let psql = Command::new("psql").args(["-XAtc", "SELECT 41 + 1", &pooler.url("letters")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&psql.stdout).trim(), "42");
}

#[test]
fn each_fresh_database_is_another() {
    let Some(first) = servers::fresh_database("letters") else {
        return;
    };
    let Some(second) = servers::fresh_database("letters") else {
        return;
    };
    assert_ne!(first, second);
}

#[test]
fn redis_keeps_what_it_acknowledged() {
    let Some(mut redis) = Redis::start_or_skip() else {
        return;
    };
    assert_eq!(ask(&redis, "SET letter sealed"), "+OK\r\n");
    redis.kill9().unwrap();
    redis.start_again().unwrap();
    assert_eq!(ask(&redis, "GET letter"), "$6\r\nsealed\r\n");
    redis.stop().unwrap();
    redis.start_again().unwrap();
    assert_eq!(ask(&redis, "GET letter"), "$6\r\nsealed\r\n");
    redis.flush().unwrap();
    assert_eq!(ask(&redis, "GET letter"), "$-1\r\n");
}

#[tokio::test]
async fn kafka_keeps_what_it_acknowledged() {
    let Some(mut kafka) = Kafka::start_or_skip() else {
        return;
    };
    create_topic(&kafka, "letters").await;
    type End = fn(&mut Kafka) -> std::io::Result<()>;
    let ends: [End; 3] = [
        |kafka| kafka.restart(),
        |kafka| kafka.kill9().and_then(|()| kafka.start_again()),
        |kafka| kafka.sigstop().and_then(|()| kafka.sigcont()),
    ];
    for (n, end) in ends.iter().enumerate() {
        send(&kafka, "letters", &n.to_string()).await;
        end(&mut kafka).unwrap();
        let expected: Vec<String> = (0..=n).map(|n| n.to_string()).collect();
        assert_eq!(read(&kafka, "letters", expected.len()), expected);
    }
}

#[test]
fn a_port_is_claimed_once() {
    let ports: Vec<Port> = (0..50).map(|_| Port::claim().unwrap()).collect();
    let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), ports.len());
}

/// Kills the program that started a server; the server has to go too.
#[test]
fn no_server_outlives_its_starter() {
    if Redis::start_or_skip().is_none() {
        return;
    }
    let mut starter = Command::new(env!("CARGO_BIN_EXE_malote-servers"))
        .args(["run", "--without", "postgres", "--without", "kafka", "--"])
        .args(["sh", "-c", "echo $MALOTE_TEST_REDIS; exec cat"])
        // `cat` ends with its input, which is ours.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = Vec::new();
    let mut output = starter.stdout.take().unwrap();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let url = String::from_utf8(line).unwrap();
    let port: u16 = url.trim().rsplit(':').next().unwrap().parse().unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());

    starter.kill().unwrap();
    starter.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
        assert!(Instant::now() < deadline, "Redis outlived its starter");
        std::thread::yield_now();
    }
}

#[test]
fn the_command_gives_its_code_and_no_address_of_what_was_left_out() {
    let run = |script: &str| {
        Command::new(env!("CARGO_BIN_EXE_malote-servers"))
            .args(["run", "--without", "postgres", "--without", "redis", "--without", "kafka"])
            .args(["--", "sh", "-c", script])
            .status()
            .unwrap()
            .code()
    };
    assert_eq!(run("exit 7"), Some(7));
    assert_eq!(run("test -z \"$MALOTE_TEST_POSTGRES$MALOTE_TEST_REDIS$MALOTE_TEST_KAFKA\""), Some(0));
}

/// A person or a time limit ends a test run: cargo and the test programs that it started end with it.
#[test]
fn a_signal_is_passed_on_to_all_that_runs() {
    let mut run = Command::new(env!("CARGO_BIN_EXE_malote-servers"))
        .args(["run", "--without", "postgres", "--without", "redis", "--without", "kafka"])
        .args(["--", "sh", "-c", "sleep 600 & echo $! $$; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut said).unwrap();
    Command::new("kill").arg(run.id().to_string()).status().unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(128 + 15));
    let deadline = Instant::now() + PATIENCE;
    for pid in said.split_whitespace() {
        while Path::new(&format!("/proc/{pid}")).exists() {
            assert!(Instant::now() < deadline, "{pid} outlived the run");
            std::thread::yield_now();
        }
    }
}

#[test]
fn no_folder_is_left_behind() {
    let Some(redis) = Redis::start_or_skip() else {
        return;
    };
    let answer = ask(&redis, "CONFIG GET dir");
    let folder = answer.lines().find(|line| line.starts_with('/')).unwrap().to_owned();
    assert!(Path::new(&folder).exists());
    drop(redis);
    assert!(!Path::new(&folder).exists());
}

fn ask(redis: &Redis, command: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port())).unwrap();
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.strip_suffix("+OK\r\n").unwrap().to_owned()
}

fn client(kafka: &Kafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap());
    config
}

async fn create_topic(kafka: &Kafka, topic: &str) {
    let admin: AdminClient<DefaultClientContext> = client(kafka).create().unwrap();
    let topic = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
    let results = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

async fn send(kafka: &Kafka, topic: &str, payload: &str) {
    let producer: FutureProducer = client(kafka).set("acks", "all").create().unwrap();
    producer.send(FutureRecord::<(), _>::to(topic).payload(payload), PATIENCE).await.unwrap();
}

/// The first `count` payloads, read from the start by a new group.
fn read(kafka: &Kafka, topic: &str, count: usize) -> Vec<String> {
    let consumer: BaseConsumer = client(kafka)
        .set("group.id", servers::unique("readers"))
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    consumer.subscribe(&[topic]).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut payloads = Vec::new();
    while payloads.len() < count {
        assert!(Instant::now() < deadline, "only {payloads:?} came");
        if let Some(message) = consumer.poll(Duration::from_millis(200)) {
            // A restart shows as a lost connection; the client finds back.
            let Ok(message) = message else { continue };
            payloads.push(String::from_utf8_lossy(message.payload().unwrap()).into_owned());
        }
    }
    payloads
}
