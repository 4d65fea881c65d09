//! What lies on the topics.

use crate::TOPICS;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::Headers,
};
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
    pub partitions_of_key: BTreeMap<(String, String), BTreeSet<i32>>,
}

/// One event as its record shows it.
#[derive(Debug)]
pub struct Seen {
    /// Its type.
    pub kind: String,
    /// Its record's key: the payment.
    pub key: String,
    /// The event that led to it.
    pub cause: Option<String>,
}

/// Reads every topic from its beginning to its present end.
pub fn read_topics(bootstrap: &str) -> Result<Topics, KafkaError> {
    let wait = Duration::from_secs(20);
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "checker")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()?;
    let (mut assignment, mut left) = (TopicPartitionList::new(), BTreeMap::new());
    for name in TOPICS {
        let metadata = consumer.fetch_metadata(Some(name), wait)?;
        for partition in metadata.topics().iter().flat_map(|t| t.partitions()) {
            let (low, high) = consumer.fetch_watermarks(name, partition.id(), wait)?;
            if low < high {
                assignment.add_partition_offset(name, partition.id(), Offset::Offset(low))?;
                left.insert((name.to_owned(), partition.id()), high);
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
        topics.see(&record);
    }
    Ok(topics)
}

impl Topics {
    fn see(&mut self, record: &impl Message) {
        let header = |name: &str| {
            let headers = record.headers()?;
            let found = headers.iter().find(|h| h.key == name)?;
            Some(String::from_utf8_lossy(found.value?).into_owned())
        };
        let key = String::from_utf8_lossy(record.key().unwrap_or_default()).into_owned();
        let at = (record.topic().to_owned(), key.clone());
        self.partitions_of_key.entry(at).or_default().insert(record.partition());
        let id = header("ce_id").unwrap_or_else(|| format!("no id at {} {}", record.topic(), record.offset()));
        if self.first.contains_key(&id) {
            self.duplicates += 1;
            return;
        }
        let seen = Seen { kind: header("ce_type").unwrap_or_default(), key, cause: header("ce_causationid") };
        self.first.insert(id, seen);
    }
}
