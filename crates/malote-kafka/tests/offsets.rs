//! Where a group begins, and that it never goes back or forward past anything, on a real broker.

mod common;
#[path = "../../malote-sqlite/tests/told/mod.rs"]
mod told;

use common::*;
use malote_core::{Delivery, Place, Transport};
use malote_kafka::Kafka;
use malote_testkit::servers;
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
};
use std::{collections::BTreeSet, time::Duration};
use told::Told;

fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap()
}

async fn filled(kafka: &Kafka, count: usize) -> String {
    let topic = unique("offsets");
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let mut publisher = kafka.publisher().await.unwrap();
    let rows = (0..count).map(|n| envelope(&topic, &format!("k{}", n % 50), n)).collect();
    assert!(all_stored(&send(&mut publisher, rows).await));
    topic
}

fn places<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>) -> Vec<Place> {
    deliveries.into_iter().map(|delivery| delivery.place.clone()).collect()
}

/// What a group has committed of each partition; none counts as 0.
async fn committed(bootstrap: &str, group: &str, topic: &str) -> Vec<i64> {
    let (bootstrap, group, topic) = (bootstrap.to_owned(), group.to_owned(), topic.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", bootstrap).set("group.id", group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&topic, 0, 2);
        consumer.committed_offsets(list, PATIENCE).unwrap()
    });
    let list = asked.await.unwrap();
    let offset = |partition| list.elements().iter().find(|e| e.partition() == partition).map(|e| e.offset());
    (0..3).map(|partition| if let Some(Offset::Offset(at)) = offset(partition) { at } else { 0 }).collect()
}

/// A group that is new, and one whose offsets were forgotten, begins at the oldest record.
#[tokio::test(flavor = "multi_thread")]
async fn ac_041_a_group_without_a_position_starts_at_the_oldest_record() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka = builder(&bootstrap).session(Duration::from_secs(6)).connect().unwrap();
    let (topic, group) = (filled(&kafka, 100).await, unique("new"));
    for again in 0..2 {
        let mut member = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
        let all = read(&mut member, 100).await;
        assert_eq!(all.iter().map(number).collect::<BTreeSet<_>>().len(), 100, "time {again}");
        member.acknowledge(&places(&all)).await.unwrap();
        member.close().await;
        assert_eq!(committed(&bootstrap, &group, &topic).await.iter().sum::<i64>(), 100);
        let gone = admin(&bootstrap).delete_groups(&[&group], &AdminOptions::new()).await.unwrap();
        assert!(gone[0].is_ok(), "{gone:?}");
    }
}

/// A partition goes to another member, which handles it to its end, and comes back. What its former owner
/// has to say about it then, from before, moves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn ac_042_a_former_owner_takes_no_offset_back() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka =
        builder(&bootstrap).commit_every(Duration::from_secs(3600)).session(Duration::from_secs(6)).connect().unwrap();
    let (topic, group) = (filled(&kafka, 900).await, unique("former"));
    let mut first = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    let before = read(&mut first, 900).await;
    let mut second = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    let mut theirs = soon("the second member's share", second.next(1000)).await.unwrap();
    while let Ok(more) = tokio::time::timeout(Duration::from_secs(2), second.next(1000)).await {
        theirs.extend(more.unwrap());
    }
    second.acknowledge(&places(&theirs)).await.unwrap();
    second.close().await;
    let moved: BTreeSet<i32> = theirs.iter().map(|delivery| delivery.place.partition).collect();
    let handled = committed(&bootstrap, &group, &topic).await;
    assert!(moved.iter().all(|partition| handled[*partition as usize] > 10), "{handled:?} of {moved:?}");

    // a record of each partition shows that they have come back
    let mut publisher = kafka.publisher().await.unwrap();
    let rows = (0..3).map(|partition| envelope(&topic, &key_of(partition, 3), 900)).collect();
    assert!(all_stored(&send(&mut publisher, rows).await));
    let mut back = BTreeSet::new();
    while !moved.is_subset(&back) {
        let come = soon("the partitions come back", first.next(1000)).await.unwrap();
        back.extend(come.iter().map(|delivery| delivery.place.partition));
    }
    let late = before.iter().filter(|d| moved.contains(&d.place.partition) && d.place.offset < 10);
    first.acknowledge(&places(late)).await.unwrap();
    first.close().await;
    let after = committed(&bootstrap, &group, &topic).await;
    assert!(after.iter().zip(&handled).all(|(after, handled)| after >= handled), "{handled:?}, then {after:?}");
}

/// A group was away for longer than its topic keeps records.
#[tokio::test(flavor = "multi_thread")]
async fn ac_045_a_group_whose_records_are_gone_goes_on_at_the_oldest_and_says_so() {
    let Some(bootstrap) = servers::kafka() else { return };
    let kafka = builder(&bootstrap).session(Duration::from_secs(6)).connect().unwrap();
    let (topic, group) = (filled(&kafka, 600).await, unique("away"));
    let mut member = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    let all = read(&mut member, 600).await;
    member.acknowledge(&places(all.iter().filter(|delivery| delivery.place.offset < 20))).await.unwrap();
    member.close().await;
    assert_eq!(committed(&bootstrap, &group, &topic).await, [20; 3]);
    // as retention does, at a moment of our choice
    let mut until = TopicPartitionList::new();
    for partition in 0..3 {
        until.add_partition_offset(&topic, partition, Offset::Offset(33)).unwrap();
    }
    admin(&bootstrap).delete_records(&until, &AdminOptions::new()).await.unwrap();

    let told = Told::listen();
    let left: BTreeSet<usize> = all.iter().filter(|delivery| delivery.place.offset >= 33).map(number).collect();
    for group in [&group, &unique("later")] {
        let mut member = kafka.subscribe(group, std::slice::from_ref(&topic)).await.unwrap();
        let rest = read(&mut member, left.len()).await;
        assert_eq!(rest.iter().map(number).collect::<BTreeSet<_>>(), left);
        member.acknowledge(&places(&rest)).await.unwrap();
        member.close().await;
    }
    let mut lines = told.lines();
    lines.sort();
    let expected: Vec<String> = (0..3).map(|partition| format!("{group} {topic} {partition} 20 32")).collect();
    assert_eq!(lines, expected, "the new group has missed nothing");
}
