//! What a member of a group promises through rebalances, slow handlers and growing topics, on a real
//! broker.

mod common;

use common::*;
use malote_core::{Delivery, Place, Subscription, Transport};
use malote_kafka::{Builder, Kafka};
use malote_testkit::servers;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewPartitions},
    producer::{BaseProducer, BaseRecord, Producer},
};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Acknowledgements are committed only when partitions are revoked or the member leaves.
fn lazy(bootstrap: &str) -> Builder {
    builder(bootstrap).commit_every(Duration::from_secs(3600)).session(Duration::from_secs(6))
}

async fn filled(kafka: &Kafka, count: usize) -> String {
    let topic = unique("received");
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let mut publisher = kafka.publisher().await.unwrap();
    for from in (0..count).step_by(1000) {
        let rows = (from..count.min(from + 1000)).map(|n| envelope(&topic, &format!("k{}", n % 50), n)).collect();
        assert!(all_stored(&send(&mut publisher, rows).await));
    }
    topic
}

fn places(deliveries: &[Delivery]) -> Vec<Place> {
    deliveries.iter().map(|delivery| delivery.place.clone()).collect()
}

fn partitions(deliveries: &[Delivery]) -> BTreeSet<i32> {
    deliveries.iter().map(|delivery| delivery.place.partition).collect()
}

/// Whatever comes within a short while of silence.
async fn rest(member: &mut Box<dyn Subscription>) -> Vec<Delivery> {
    let mut read = Vec::new();
    while let Ok(more) = tokio::time::timeout(Duration::from_secs(2), member.next(1000)).await {
        read.extend(more.unwrap());
    }
    read
}

/// A handler that takes longer than the client's limit between two polls keeps its partitions.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_loses_no_membership() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka =
        builder(&bootstrap).session(Duration::from_secs(2)).set("max.poll.interval.ms", "2000").connect().unwrap();
    let topic = filled(&kafka, 20_000).await;
    let mut member = kafka.subscribe(&unique("slow"), &[topic]).await.unwrap();
    let mut read = read(&mut member, 10).await;
    tokio::time::sleep(Duration::from_secs(5)).await; // what is tested: a handler at work for longer than every limit
    while read.len() < 20_000 {
        read.extend(soon("the rest", member.next(1000)).await.unwrap());
    }
    let numbers: BTreeSet<_> = read.iter().map(number).collect();
    assert_eq!(numbers.len(), 20_000, "no record came twice");
    let assignments: BTreeSet<_> = read.iter().map(|d| (d.place.partition, d.place.assignment)).collect();
    assert_eq!(assignments.len(), 3, "no partition was assigned twice");
    member.close().await;
}

/// Partitions go to a second member and come back. What the first one read before is not acknowledged
/// by its old places; what it had in its buffer of a lost partition does not come out.
#[tokio::test(flavor = "multi_thread")]
async fn places_of_a_former_assignment_count_for_nothing() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka = lazy(&bootstrap).connect().unwrap();
    let topic = filled(&kafka, 3_000).await;
    let group = unique("former");
    let mut first = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    let mut before = Vec::new();
    while partitions(&before).len() < 3 {
        before.extend(soon("records of each partition", first.next(100)).await.unwrap());
    }
    // the second member gets at least one partition; the first has records of it in its buffer
    let mut second = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    let moved = partitions(&soon("the second member's share", second.next(1000)).await.unwrap());
    let late = rest(&mut first).await;
    assert!(partitions(&late).is_disjoint(&moved), "{moved:?} is not the first member's any more");
    second.close().await;
    let back = soon("the partitions come back", first.next(1)).await.unwrap();
    assert!(moved.contains(&back[0].place.partition));

    first.acknowledge(&places(&before)).await.unwrap();
    first.close().await;
    let mut third = kafka.subscribe(&group, &[topic]).await.unwrap();
    let again = rest(&mut third).await;
    let of_moved = |d: &&Delivery| moved.contains(&d.place.partition);
    let lowest = again.iter().filter(of_moved).map(|d| d.place.offset).min();
    assert_eq!(lowest, Some(0), "nothing of {moved:?} was acknowledged under its last assignment");
    third.close().await;
}

/// What is acknowledged when a partition leaves is committed first: its next owner does not get it.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_are_committed_before_a_partition_leaves() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka = lazy(&bootstrap).connect().unwrap();
    let topic = filled(&kafka, 900).await;
    let group = unique("leaving");
    let mut first = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    let all = read(&mut first, 900).await;
    first.acknowledge(&places(&all)).await.unwrap();
    let mut second = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    // a record for each partition shows which ones have moved
    let mut publisher = kafka.publisher().await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    let got = loop {
        let rows = (0..3).map(|p| envelope(&topic, &key_of(p, 3), 900)).collect();
        assert!(all_stored(&send(&mut publisher, rows).await));
        if let Ok(got) = tokio::time::timeout(Duration::from_secs(1), second.next(10_000)).await {
            break got.unwrap();
        }
        assert!(Instant::now() < deadline, "no partition moves");
    };
    assert!(got.iter().all(|d| number(d) == 900), "acknowledged records came again");
    first.close().await;
    second.close().await;
}

/// A topic grows from 3 to 6 partitions under load. Keys stay where they were, the alarm is raised,
/// nothing is missed, and the new partitions are read from their start.
#[tokio::test(flavor = "multi_thread")]
async fn ac_038_a_raised_partition_count_moves_no_key() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka = builder(&bootstrap)
        .watch_partitions(Duration::from_millis(100))
        .set("topic.metadata.refresh.interval.ms", "500")
        .connect()
        .unwrap();
    let topic = filled(&kafka, 50).await;
    let mut member = kafka.subscribe(&unique("grown"), std::slice::from_ref(&topic)).await.unwrap();
    let mut read = read(&mut member, 50).await;

    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", &bootstrap).create().unwrap();
    admin.create_partitions([&NewPartitions::new(&topic, 6)], &AdminOptions::new()).await.unwrap();
    let mut publisher = kafka.publisher().await.unwrap();
    let mut sent = 50;
    let deadline = Instant::now() + PATIENCE;
    while kafka.outgrown().is_empty() {
        assert!(Instant::now() < deadline, "the alarm is not raised");
        let rows = (sent..sent + 50).map(|n| envelope(&topic, &format!("k{}", n % 50), n)).collect();
        assert!(all_stored(&send(&mut publisher, rows).await));
        sent += 50;
    }
    assert_eq!(kafka.outgrown(), [(topic.clone(), 6)]);
    let rows = (sent..sent + 50).map(|n| envelope(&topic, &format!("k{}", n % 50), n)).collect();
    assert!(all_stored(&send(&mut publisher, rows).await));
    sent += 50;
    // somebody else, who has adopted the new count, writes to a new partition before it is assigned
    let other: BaseProducer = ClientConfig::new().set("bootstrap.servers", &bootstrap).create().unwrap();
    let foreign = malote_core::wire::encode(&envelope(&topic, "new", sent));
    let headers = foreign.headers.iter().fold(rdkafka::message::OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(rdkafka::message::Header { key, value: Some(&value[..]) })
    });
    let record = BaseRecord::to(&topic).partition(5).key("new").payload("{}").headers(headers);
    other.send(record).map_err(|(error, _)| error).unwrap();
    other.flush(PATIENCE).unwrap();

    while read.len() < sent + 1 {
        read.extend(soon("every record", member.next(1000)).await.unwrap());
    }
    for key in 0..50 {
        let of_key: Vec<_> = read.iter().filter(|d| number(d) % 50 == key && number(d) < sent).collect();
        let home: BTreeSet<_> = of_key.iter().map(|d| d.place.partition).collect();
        assert_eq!(home.len(), 1, "key {key} lives in {home:?}");
        assert!(of_key.iter().map(|d| number(d)).is_sorted());
    }
    assert!(read.iter().any(|d| d.place.partition == 5 && d.place.offset == 0), "from its start");
    member.close().await;
}

/// Records of an aborted transaction never happened.
#[tokio::test(flavor = "multi_thread")]
async fn aborted_records_are_not_delivered() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka = builder(&bootstrap).connect().unwrap();
    let topic = unique("aborted");
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let (name, at) = (topic.clone(), bootstrap.clone());
    let written = tokio::task::spawn_blocking(move || {
        let producer: BaseProducer =
            ClientConfig::new().set("bootstrap.servers", at).set("transactional.id", &name).create()?;
        producer.init_transactions(PATIENCE)?;
        producer.begin_transaction()?;
        let aborted = BaseRecord::to(&name).key("k").payload("aborted").partition(0);
        producer.send(aborted).map_err(|(e, _)| e)?;
        producer.flush(PATIENCE)?;
        producer.abort_transaction(PATIENCE)
    });
    written.await.unwrap().unwrap();
    let read = whole_topic(&kafka, &topic).await;
    assert!(read.is_empty(), "{read:?}");
}

/// Many processes make sure of the same topics at once.
#[tokio::test(flavor = "multi_thread")]
async fn topics_are_created_once_by_many() {
    let Some(bootstrap) = servers::kafka() else { return };
    let topics: Vec<_> = (0..5).map(|_| unique("many")).collect();
    let all = (0..6).map(|_| {
        let (kafka, topics) = (builder(&bootstrap).connect().unwrap(), topics.clone());
        tokio::spawn(async move { kafka.ensure(&topics).await })
    });
    for done in all.collect::<Vec<_>>() {
        soon("making sure", done).await.unwrap().unwrap();
    }
    let five = Kafka::builder(&bootstrap).partitions(5).connect().unwrap();
    assert!(!five.ensure(&topics).await.unwrap_err().transient, "three partitions are too few for five");
    let replicated = builder(&bootstrap).replication(2).connect().unwrap();
    assert!(!replicated.ensure(&[unique("two")]).await.unwrap_err().transient, "there is one broker");
}
