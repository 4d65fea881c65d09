//! What every transport does, on a real broker.

mod common;

use common::*;
use malote_core::Transport;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_is_received_in_order_and_once_acknowledged_not_again() {
    let Some(bootstrap) = malote_testkit::servers::kafka() else { return };
    let kafka = builder(&bootstrap).connect().unwrap();
    let topic = unique("round");
    let group = unique("group");
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let mut publisher = kafka.publisher().await.unwrap();
    let batch = (0..1000).map(|n| envelope(&topic, &format!("key-{}", n % 10), n)).collect();
    assert!(all_stored(&send(&mut publisher, batch).await));

    let mut first = kafka.subscribe(&group, std::slice::from_ref(&topic)).await.unwrap();
    let read_first = read(&mut first, 1000).await;
    for partition in 0..3 {
        let numbers: Vec<_> = read_first.iter().filter(|d| d.place.partition == partition).map(number).collect();
        assert!(numbers.is_sorted(), "partition {partition}: {numbers:?}");
    }
    let places: Vec<_> = read_first.iter().take(600).map(|d| d.place.clone()).collect();
    first.acknowledge(&places).await.unwrap();
    first.close().await;

    let mut second = kafka.subscribe(&group, &[topic]).await.unwrap();
    let rest = read(&mut second, 400).await;
    let mut numbers: Vec<_> = read_first.iter().take(600).chain(&rest).map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    second.close().await;
}
