//! What a network may do to messages: one in ten comes twice, the second time later and in another order.

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    message::OwnedMessage,
    producer::{BaseProducer, BaseRecord, Producer},
};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinHandle;

/// So many are held back before they come the second time.
const HELD: usize = 8;

/// Repeats records until it is stopped.
pub struct Mischief {
    stop: Arc<AtomicBool>,
    done: JoinHandle<usize>,
}

impl Mischief {
    pub fn on_log(path: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        Self { stop: stop.clone(), done: tokio::spawn(repeat_on_log(path, stop)) }
    }

    pub fn on_kafka(bootstrap: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        Self { stop, done: tokio::task::spawn_blocking(move || repeat_on_kafka(&bootstrap, &stopped)) }
    }

    /// How many it has repeated.
    pub async fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.done.await.expect("no panic")
    }
}

fn chosen() -> bool {
    fastrand::u8(..10) == 0
}

async fn open(path: &str) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path)).await.expect("the log opens")
}

/// A record of the embedded log: its partition, and the rest as it lies there.
type Lying = (i64, Option<Vec<u8>>, Vec<u8>, Option<Vec<u8>>);

async fn repeat_on_log(path: String, stop: Arc<AtomicBool>) -> usize {
    let mut log = open(&path).await;
    let (mut seen, mut own, mut held, mut count) = (BTreeMap::new(), BTreeSet::new(), Vec::new(), 0);
    loop {
        let last = stop.load(Ordering::Relaxed);
        for at in new_records(&mut log, &mut seen).await {
            if !own.contains(&at) && chosen() {
                let record = "SELECT at >> 40, key, headers, payload FROM record WHERE at = ?1";
                held.push(sqlx::query_as(record).bind(at).fetch_one(&mut log).await.expect("it was there"));
            }
        }
        if held.len() >= HELD || last {
            fastrand::shuffle(&mut held);
            count += held.len();
            own.extend(append(&mut log, std::mem::take(&mut held)).await);
        }
        if last {
            return count;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
}

/// The places of records behind those that were seen.
async fn new_records(log: &mut SqliteConnection, seen: &mut BTreeMap<i64, i64>) -> Vec<i64> {
    let partitions = sqlx::query_as("SELECT id, next FROM partition").fetch_all(&mut *log).await;
    let mut new = Vec::new();
    for (partition, next) in partitions.expect("the log is there") {
        let from = seen.insert(partition, next).unwrap_or_default();
        new.extend((from..next).map(|offset| (partition << 40) + offset));
    }
    new
}

async fn append(log: &mut SqliteConnection, records: Vec<Lying>) -> Vec<i64> {
    let mut tx = log.begin_with("BEGIN IMMEDIATE").await.expect("begins");
    let mut places = Vec::new();
    for (partition, key, headers, payload) in records {
        let next = "UPDATE partition SET next = next + 1 WHERE id = ?1 RETURNING (id << 40) + next - 1";
        let at: i64 = sqlx::query_scalar(next).bind(partition).fetch_one(&mut *tx).await.expect("a place");
        let insert = "INSERT INTO record (at, written_at, key, headers, payload)
                      VALUES (?1, (SELECT now FROM log_clock), ?2, ?3, ?4)";
        let insert = sqlx::query(insert).bind(at).bind(key).bind(headers).bind(payload);
        insert.execute(&mut *tx).await.expect("appends");
        places.push(at);
    }
    tx.commit().await.expect("commits");
    places
}

/// Answers that the order service has not handled, and nobody reads now: shuffles them within their
/// partitions; how many lie elsewhere then.
pub async fn reorder_answers(path: &str) -> usize {
    let mut log = open(path).await;
    let mut tx = log.begin_with("BEGIN IMMEDIATE").await.expect("begins");
    let unread = "SELECT at, at >> 40, key, headers, payload FROM record
                    JOIN partition ON partition.id = at >> 40 JOIN topic ON topic.id = partition.topic
                    JOIN assignment ON assignment.partition = partition.id
                   WHERE topic.name = 'order.replies.v1' AND at - (partition.id << 40) >= assignment.next ORDER BY at";
    type Row = (i64, i64, Option<Vec<u8>>, Vec<u8>, Option<Vec<u8>>);
    let rows: Vec<Row> = sqlx::query_as(unread).fetch_all(&mut *tx).await.expect("the log is there");
    let mut partitions: BTreeMap<i64, Vec<(i64, Lying)>> = BTreeMap::new();
    for (at, partition, key, headers, payload) in rows {
        partitions.entry(partition).or_default().push((at, (partition, key, headers, payload)));
    }
    let mut moved = 0;
    for records in partitions.into_values() {
        let mut order: Vec<usize> = (0..records.len()).collect();
        fastrand::shuffle(&mut order);
        for (to, from) in order.into_iter().enumerate().filter(|(to, from)| to != from) {
            let (_, (_, key, headers, payload)) = records[from].clone();
            let update = sqlx::query("UPDATE record SET key = ?2, headers = ?3, payload = ?4 WHERE at = ?1");
            let update = update.bind(records[to].0).bind(key).bind(headers).bind(payload);
            update.execute(&mut *tx).await.expect("moves");
            moved += 1;
        }
    }
    tx.commit().await.expect("commits");
    moved
}

/// What groups have not read yet, in words.
pub async fn unread(path: &str) -> Option<String> {
    let mut log = open(path).await;
    let count =
        "SELECT coalesce(sum(p.next - a.next), 0) FROM assignment AS a JOIN partition AS p ON p.id = a.partition";
    let count: i64 = sqlx::query_scalar(count).fetch_one(&mut log).await.expect("the log is there");
    (count > 0).then(|| format!("{count} records are not handled yet"))
}

fn repeat_on_kafka(bootstrap: &str, stop: &AtomicBool) -> usize {
    let settings = |group: &str| {
        let mut settings = ClientConfig::new();
        settings.set("bootstrap.servers", bootstrap).set("group.id", group);
        settings
    };
    let consumer: BaseConsumer = settings("mischief").create().expect("a consumer");
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("a producer");
    let metadata = consumer.fetch_metadata(None, Duration::from_secs(20)).expect("topics");
    let mut all = TopicPartitionList::new();
    for topic in metadata.topics().iter().filter(|topic| !topic.name().starts_with("__")) {
        for partition in topic.partitions() {
            all.add_partition_offset(topic.name(), partition.id(), Offset::Beginning).expect("a place");
        }
    }
    consumer.assign(&all).expect("they are there");
    let (mut held, mut own, mut count): (Vec<OwnedMessage>, BTreeSet<Vec<u8>>, _) = Default::default();
    loop {
        let last = stop.load(Ordering::Relaxed);
        if let Some(Ok(record)) = consumer.poll(Duration::from_millis(50))
            && chosen()
            && own.insert(record.payload().unwrap_or_default().to_vec())
        {
            held.push(record.detach());
        }
        if held.len() >= HELD || last {
            fastrand::shuffle(&mut held);
            count += held.len();
            for record in held.drain(..) {
                send(&producer, &record);
            }
        }
        producer.poll(Duration::ZERO);
        if last {
            producer.flush(Duration::from_secs(20)).expect("Kafka is up");
            return count;
        }
    }
}

fn send(producer: &BaseProducer, record: &OwnedMessage) {
    let repeat = BaseRecord::to(record.topic())
        .partition(record.partition())
        .key(record.key().unwrap_or_default())
        .payload(record.payload().unwrap_or_default())
        .headers(record.headers().cloned().unwrap_or_default());
    producer.send(repeat).map_err(|(error, _)| error).expect("there is room");
}
