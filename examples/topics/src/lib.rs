//! What lies on the topics, in either of the places where they may be: for those who judge what services left behind,
//! and so without a line of the code that put it there.

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::Headers,
};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What lies on the topics, after removing duplicates.
#[derive(Debug, Default)]
pub struct Topics {
    /// The first record of each event id.
    pub first: BTreeMap<String, Seen>,
    /// Records that were duplicates.
    pub duplicates: usize,
    /// The partitions in which each (topic, key) was seen.
    pub partitions_of_key: BTreeMap<(String, String), BTreeSet<i64>>,
}

/// One event as its record shows it.
#[derive(Debug)]
pub struct Seen {
    /// Its type.
    pub kind: String,
    /// Its record's key.
    pub key: String,
    /// The event that led to it.
    pub cause: Option<String>,
}

/// A record, whose headers are found by name.
struct Found<'a> {
    topic: &'a str,
    partition: i64,
    key: &'a [u8],
    header: &'a dyn Fn(&str) -> Option<String>,
}

impl Topics {
    fn see(&mut self, record: &Found<'_>) {
        let key = String::from_utf8_lossy(record.key).into_owned();
        let at = (record.topic.to_owned(), key.clone());
        self.partitions_of_key.entry(at).or_default().insert(record.partition);
        let id = (record.header)("ce_id").unwrap_or_else(|| format!("a record on {} without an id", record.topic));
        if self.first.contains_key(&id) {
            self.duplicates += 1;
            return;
        }
        let kind = (record.header)("ce_type").unwrap_or_default();
        self.first.insert(id, Seen { kind, key, cause: (record.header)("ce_causationid") });
    }
}

/// Reads every topic of a log that is a SQLite file. A record lies at its partition's number * 2^40 + its offset;
/// its headers are names and values in turn, each behind its length, in 32 bits, little-endian.
pub async fn read_log(path: &str) -> Result<Topics, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut log = SqliteConnection::connect_with(&options).await?;
    let records = "SELECT topic.name, partition.number, record.key, record.headers FROM record
                     JOIN partition ON partition.id = record.at >> 40 JOIN topic ON topic.id = partition.topic
                    ORDER BY record.at";
    type Row = (String, i64, Option<Vec<u8>>, Vec<u8>);
    let rows: Vec<Row> = sqlx::query_as(records).fetch_all(&mut log).await?;
    let mut topics = Topics::default();
    for (topic, partition, key, headers) in rows {
        let headers = split(&headers);
        let header = |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        topics.see(&Found { topic: &topic, partition, key: &key.unwrap_or_default(), header: &header });
    }
    Ok(topics)
}

fn split(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut next = || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(String::from_utf8_lossy(part).into_owned())
    };
    std::iter::from_fn(|| Some((next()?, next()?))).collect()
}

/// Reads every topic of a Kafka from its beginning to its present end.
pub fn read_kafka(bootstrap: &str) -> Result<Topics, KafkaError> {
    let wait = Duration::from_secs(20);
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "checker")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()?;
    let (mut assignment, mut left) = (TopicPartitionList::new(), BTreeMap::new());
    let metadata = consumer.fetch_metadata(None, wait)?;
    for topic in metadata.topics().iter().filter(|topic| !topic.name().starts_with("__")) {
        for partition in topic.partitions() {
            let (low, high) = consumer.fetch_watermarks(topic.name(), partition.id(), wait)?;
            if low < high {
                assignment.add_partition_offset(topic.name(), partition.id(), Offset::Offset(low))?;
                left.insert((topic.name().to_owned(), partition.id()), high);
            }
        }
    }
    consumer.assign(&assignment)?;
    let mut topics = Topics::default();
    while !left.is_empty() {
        let Some(record) = consumer.poll(wait) else { break };
        let record = record?;
        let at = (record.topic().to_owned(), record.partition());
        if left.get(&at).is_some_and(|high| record.offset() + 1 >= *high) {
            left.remove(&at);
        }
        let header = |name: &str| {
            let found = record.headers()?.iter().find(|header| header.key == name)?;
            Some(String::from_utf8_lossy(found.value?).into_owned())
        };
        topics.see(&Found {
            topic: record.topic(),
            partition: i64::from(record.partition()),
            key: record.key().unwrap_or_default(),
            header: &header,
        });
    }
    Ok(topics)
}
