//! What needs no server: settings, the table of partitions, and faults that librdkafka's mock cluster
//! can play.

mod common;

use common::*;
use malote_core::{Report, Transport, partition};
use malote_kafka::{ConfigError, Kafka};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::time::Duration;

/// Computed by the Java client; see `vectors/PartitionVectors.java`.
const VECTORS: &str = include_str!("vectors/partitions.tsv");

fn vectors() -> impl Iterator<Item = (Vec<u8>, i32, Vec<u32>)> {
    VECTORS.lines().map(|line| {
        let (key, rest) = line.split_once('\t').unwrap();
        let key = (0..key.len()).step_by(2).map(|at| u8::from_str_radix(&key[at..at + 2], 16).unwrap()).collect();
        let (hash, partitions) = rest.split_once('\t').unwrap();
        (key, hash.parse().unwrap(), partitions.split('\t').map(|p| p.parse().unwrap()).collect())
    })
}

#[test]
fn ac_039_keys_lie_where_the_java_client_puts_them() {
    let (mut count, mut negative) = (0, 0);
    for (key, hash, partitions) in vectors() {
        assert_eq!(partition::murmur2(&key) as i32, hash, "{key:?}");
        let ours: Vec<_> = [1, 3, 6, 12, 50, 1000].map(|count| partition::of_key(&key, count)).into();
        assert_eq!(ours, partitions, "{key:?}");
        count += 1;
        negative += usize::from(hash < 0);
    }
    assert_eq!(count, 1000);
    assert!(negative > 300, "negative hashes are where clients differ");
}

/// Each of the partitioners that librdkafka calls murmur2 agrees with the table.
#[tokio::test(flavor = "multi_thread")]
async fn ac_039_librdkafkas_murmur2_agrees() {
    use rdkafka::producer::{FutureProducer, FutureRecord};
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("six", 6, 1).unwrap();
    for partitioner in ["murmur2", "murmur2_random"] {
        let producer: FutureProducer = rdkafka::ClientConfig::new()
            .set("bootstrap.servers", mock.bootstrap_servers())
            .set("partitioner", partitioner)
            .create()
            .unwrap();
        let sent: Vec<_> = vectors()
            .map(|(key, _, partitions)| {
                let sent = producer.send_result(FutureRecord::to("six").key(&key).payload("x")).map_err(|(e, _)| e);
                (key, sent.unwrap(), partitions[2])
            })
            .collect();
        for (key, sent, expected) in sent {
            let delivered = soon("a report", sent).await.unwrap().map_err(|(e, _)| e).unwrap();
            assert_eq!(delivered.partition, expected as i32, "{partitioner} {key:?}");
        }
    }
}

/// Requests of one topic go unanswered, or are answered with "not enough replicas", while another
/// topic is fine. The client's queue is empty in the end all the same; the rows without a positive
/// report of their own stay unsent, exactly those.
#[tokio::test(flavor = "multi_thread")]
async fn ac_040_a_row_counts_as_stored_only_by_its_own_report() {
    let mock = MockCluster::new(2).unwrap();
    for (topic, broker) in [("ill", 2), ("well", 1)] {
        mock.create_topic(topic, 3, 1).unwrap();
        for partition in 0..3 {
            mock.partition_leader(topic, partition, Some(broker)).unwrap();
        }
    }
    let kafka = builder(&mock.bootstrap_servers()).delivery_limit(Duration::from_secs(2)).connect().unwrap();
    let mixed = || (0..200).map(|n| envelope(if n % 4 == 0 { "ill" } else { "well" }, &format!("k{n}"), n)).collect();

    let mut publisher = kafka.publisher().await.unwrap();
    assert!(all_stored(&send(&mut publisher, mixed()).await));
    mock.broker_round_trip_time(2, Duration::from_secs(600)).unwrap(); // stored, and the answer never comes
    let reports = send(&mut publisher, mixed()).await;
    for (at, report) in reports.iter().enumerate() {
        let positive = *report == Report::Stored;
        assert_eq!(positive, at % 4 != 0, "row {at}: {report:?}");
        assert!(!matches!(report, Report::Refused(_)), "row {at}: {report:?}");
    }
    assert!(publisher.send(mixed()).await.is_err(), "the publisher has ended");
    mock.broker_round_trip_time(2, Duration::ZERO).unwrap();

    let mut publisher = kafka.publisher().await.unwrap();
    assert!(all_stored(&send(&mut publisher, mixed()).await));
    mock.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 10_000]);
    let reports = send(&mut publisher, mixed()).await;
    assert!(reports.iter().all(|report| matches!(report, Report::Unknown(_))), "{reports:?}");
    mock.clear_request_errors(RDKafkaApiKey::Produce);
    let mut publisher = kafka.publisher().await.unwrap();
    assert!(all_stored(&send(&mut publisher, mixed()).await), "it goes on by itself");
}

/// An error that passes is tried again within the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_passing_error_is_not_seen() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("t", 3, 1).unwrap();
    let kafka = builder(&mock.bootstrap_servers()).connect().unwrap();
    mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT],
    );
    let mut publisher = kafka.publisher().await.unwrap();
    let reports = send(&mut publisher, (0..100).map(|n| envelope("t", &format!("k{n}"), n)).collect()).await;
    assert!(all_stored(&reports), "{reports:?}");
}

/// A batch without records has its reports at once.
#[tokio::test]
async fn an_empty_batch_has_no_reports() {
    let kafka = builder("127.0.0.1:1").connect().unwrap();
    let mut publisher = kafka.publisher().await.unwrap();
    assert_eq!(send(&mut publisher, Vec::new()).await, []);
}

/// A topic with fewer partitions than are pinned would leave keys without a place.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_with_fewer_partitions_is_an_error() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("two", 2, 1).unwrap();
    let kafka = builder(&mock.bootstrap_servers()).connect().unwrap();
    let error = kafka.ensure(&["two".to_owned()]).await.unwrap_err();
    assert!(!error.transient && error.source.to_string().contains("it has 2 partitions and 3"), "{error:?}");
}

#[test]
fn settings_that_break_a_promise_are_refused() {
    for (key, value) in [
        ("acks", "1"),
        ("enable.idempotence", "false"),
        ("enable.auto.offset.store", "true"),
        ("auto.offset.reset", "latest"),
        ("allow.auto.create.topics", "true"),
        ("message.timeout.ms", "5000"),
        ("isolation.level", "read_uncommitted"),
    ] {
        let error = Kafka::builder("localhost").set(key, value).connect().unwrap_err();
        assert!(matches!(&error, ConfigError::Fixed { key: k, .. } if k == key), "{error}");
    }
    assert!(Kafka::builder("localhost").set("acks", "all").connect().is_ok(), "saying the same is no contradiction");
}

#[test]
fn secrets_are_not_shown() {
    let kafka = Kafka::builder("localhost")
        .set("sasl.mechanism", "PLAIN")
        .set("sasl.username", "app")
        .set("sasl.password", "hunter2")
        .connect()
        .unwrap();
    assert!(!format!("{kafka:?}").contains("hunter2") && format!("{kafka:?}").contains("sasl.password"));
    for key in ["no.such.setting", "socket.timeout.ms"] {
        let error = Kafka::builder("localhost").set(key, "hunter2").connect().unwrap_err();
        assert!(error.to_string().contains(key) && !error.to_string().contains("hunter2"), "{error}");
    }
    let error = Kafka::connect("kafka://localhost?partitions=hunter2").unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn an_address_is_a_url_or_a_list_of_brokers() {
    let kafka = Kafka::connect("kafka://a:1,b:2?partitions=12&replication=3&client.id=x%20y").unwrap();
    assert_eq!(kafka.partitions(), 12);
    assert!(format!("{kafka:?}").contains("a:1,b:2"));
    assert_eq!(Kafka::connect("a:1").unwrap().partitions(), 6);
    for wrong in ["", "kafka://", "http://a:1", "kafka://a/b", "a b", "a?x", "a?x=%zz", "a?partitions=0"] {
        assert!(Kafka::connect(wrong).is_err(), "{wrong}");
    }
}
