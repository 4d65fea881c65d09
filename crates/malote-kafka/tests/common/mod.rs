//! What the tests of this crate share.

#![allow(dead_code, reason = "each test program uses a part")]

use bytes::Bytes;
use chrono::{DateTime, Utc};
use malote_core::{Delivery, Envelope, Publisher, Report, Reports, Subscription, Transport, wire};
use malote_kafka::{Builder, Kafka};
use std::{future::Future, time::Duration};
use uuid::Uuid;

/// Far more than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn unique(prefix: &str) -> String {
    malote_testkit::servers::unique(prefix)
}

/// Three partitions and a topic with a name of its own.
pub fn builder(bootstrap: &str) -> Builder {
    Kafka::builder(bootstrap).partitions(3)
}

/// An envelope whose payload is its number.
pub fn envelope(topic: &str, key: &str, number: usize) -> Envelope {
    sized(topic, key, number, 0)
}

/// The same with an uncompressible payload of about `size` bytes.
pub fn sized(topic: &str, key: &str, number: usize, size: usize) -> Envelope {
    let filler: String = (0..size).map(|_| fastrand::alphanumeric()).collect();
    Envelope {
        id: Uuid::from_u128(number as u128 + 1),
        kind: "test.happened.v1".into(),
        topic: topic.into(),
        key: key.into(),
        source: "test".into(),
        time: DateTime::<Utc>::UNIX_EPOCH,
        content_type: "application/json".into(),
        correlation_id: None,
        causation_id: None,
        trace: None,
        hop: None,
        sequence: Some(number as i64),
        headers: Vec::new(),
        payload: Bytes::from(format!("{{\"n\":{number},\"filler\":\"{filler}\"}}")),
    }
}

/// Fails the test rather than wait for ever.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} does not happen"),
    }
}

/// Sends a batch and waits for its reports.
pub async fn send(publisher: &mut Box<dyn Publisher>, batch: Vec<Envelope>) -> Vec<Report> {
    let reports: Reports = soon("handing over", publisher.send(batch)).await.expect("the publisher takes the batch");
    soon("the reports", reports).await
}

pub fn all_stored(reports: &[Report]) -> bool {
    reports.iter().all(|report| *report == Report::Stored)
}

/// The sequence number of a delivered envelope.
pub fn number(delivery: &Delivery) -> usize {
    let envelope = wire::decode(&delivery.place.topic, &delivery.record).expect("an envelope");
    usize::try_from(envelope.sequence.expect("a sequence")).expect("not negative")
}

/// Reads `count` records without acknowledging any.
pub async fn read(subscription: &mut Box<dyn Subscription>, count: usize) -> Vec<Delivery> {
    let mut read = Vec::new();
    while read.len() < count {
        let what = format!("record {} of {count}", read.len() + 1);
        read.extend(soon(&what, subscription.next(count - read.len())).await.expect("records"));
    }
    read
}

/// Reads whatever is on the topics now, in order per partition, as a member of a group of its own,
/// until a marker sent to every partition of each topic has come.
pub async fn whole_topic(kafka: &Kafka, topic: &str) -> Vec<Delivery> {
    const MARKER: i64 = i64::MAX;
    let mut publisher = kafka.publisher().await.expect("a publisher");
    let own = Uuid::from_u128(fastrand::u128(..));
    let mark = (0..kafka.partitions()).map(|partition| {
        let key = key_of(partition, kafka.partitions());
        Envelope { id: own, sequence: Some(MARKER), ..envelope(topic, &key, 0) }
    });
    let marks: Vec<_> = mark.collect();
    let mut left = marks.len();
    assert!(all_stored(&send(&mut publisher, marks).await), "markers are stored");
    let mut subscription = kafka.subscribe(&unique("reader"), &[topic.to_owned()]).await.expect("a member");
    let mut read = Vec::new();
    while left > 0 {
        for delivery in soon("the rest of the topic", subscription.next(1000)).await.expect("records") {
            match wire::decode(topic, &delivery.record) {
                Ok(envelope) if envelope.id == own => left -= 1,
                Ok(envelope) if envelope.sequence == Some(MARKER) => {} // of another reader
                _ => read.push(delivery),
            }
        }
    }
    subscription.close().await;
    read
}

/// Some key of this partition.
pub fn key_of(partition: u32, count: u32) -> String {
    (0..)
        .map(|n| format!("k{n}"))
        .find(|key| malote_core::partition::of_key(key.as_bytes(), count) == partition)
        .expect("a key")
}

/// The first occurrences of each number, in order.
pub fn first_occurrences(numbers: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut seen = std::collections::HashSet::new();
    numbers.into_iter().filter(|number| seen.insert(*number)).collect()
}

/// Creates a topic of three partitions with settings of its own.
pub async fn create(bootstrap: &str, topic: &str, settings: &[(&str, &str)]) {
    use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
    let admin: AdminClient<_> =
        rdkafka::ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client");
    let new = NewTopic::new(topic, 3, TopicReplication::Fixed(1));
    let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
    let results = admin.create_topics([&new], &AdminOptions::new()).await.expect("an answer");
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}
