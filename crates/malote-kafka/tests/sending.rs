//! What the publisher promises when the broker refuses, is silent, or is away. Each test has a broker
//! of its own where it mistreats it.

mod common;

use common::*;
use malote_core::{Envelope, Report, Transport, partition};
use malote_kafka::Kafka;
use malote_testkit::servers;
use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Does what a relay does: sends in order with several batches under way, sets aside what is refused,
/// and after any doubt takes a new publisher and sends again whatever has no report of its own.
/// Gives the numbers of the refused, and how many publishers it took.
async fn relay(kafka: &Kafka, rows: &[Envelope], batch: usize) -> (Vec<usize>, usize) {
    relay_telling(kafka, rows, batch, &watch::Sender::new(0)).await
}

/// The same; adds up in `stored` how many rows have been reported as stored.
async fn relay_telling(
    kafka: &Kafka,
    rows: &[Envelope],
    batch: usize,
    stored: &watch::Sender<usize>,
) -> (Vec<usize>, usize) {
    let mut open: BTreeSet<usize> = (0..rows.len()).collect();
    let (mut refused, mut publishers) = (Vec::new(), 0);
    let deadline = Instant::now() + 2 * PATIENCE;
    while !open.is_empty() {
        assert!(Instant::now() < deadline, "{} rows never come through", open.len());
        publishers += 1;
        let mut publisher = kafka.publisher().await.unwrap();
        let todo: Vec<usize> = open.iter().copied().collect();
        let mut under_way = VecDeque::new();
        for chunk in todo.chunks(batch) {
            let Ok(reports) = publisher.send(chunk.iter().map(|at| rows[*at].clone()).collect()).await else { break };
            under_way.push_back((chunk, reports));
        }
        for (chunk, reports) in under_way {
            let reports = soon("the reports", reports).await;
            assert_eq!(reports.len(), chunk.len(), "one report per row");
            for (at, report) in chunk.iter().zip(reports) {
                match report {
                    Report::Stored => {
                        open.remove(at);
                        stored.send_modify(|stored| *stored += 1);
                    }
                    Report::Unknown(_) => {}
                    Report::Refused(_) => {
                        open.remove(at);
                        refused.push(*at);
                    }
                }
            }
        }
    }
    (refused, publishers)
}

/// Numbers on the topic, in order, of one key.
async fn numbers(kafka: &Kafka, topic: &str) -> Vec<usize> {
    whole_topic(kafka, topic).await.iter().map(number).collect()
}

/// Rows behind one that the broker refuses do not overtake it: they are on the topic after its refusal
/// was told, and none of them counts as stored before.
#[tokio::test(flavor = "multi_thread")]
async fn ac_003_nothing_of_a_key_counts_as_stored_behind_a_refused_record() {
    let Some(bootstrap) = servers::kafka() else { return };
    let topic = unique("refused");
    // each record has a request of its own, so that those behind are on their way already
    let kafka = builder(&bootstrap).set("batch.num.messages", "1").connect().unwrap();
    create(&bootstrap, &topic, &[("max.message.bytes", "4000")]).await;
    let mut rows = vec![sized(&topic, "k", 0, 20_000)];
    rows.extend((1..50).map(|n| envelope(&topic, "k", n)));

    let mut publisher = kafka.publisher().await.unwrap();
    let reports = send(&mut publisher, rows.clone()).await;
    assert!(publisher.send(rows[1..].to_vec()).await.is_err(), "the publisher has ended");
    drop(publisher);
    assert_eq!(numbers(&kafka, &topic).await, [] as [usize; 0], "nothing is on the topic");
    assert!(matches!(reports[0], Report::Refused(_)), "{:?}", reports[0]);
    assert!(reports[1..].iter().all(|report| matches!(report, Report::Unknown(_))), "{reports:?}");

    let (refused, _) = relay(&kafka, &rows, 10).await;
    assert_eq!(refused, [0]);
    assert_eq!(first_occurrences(numbers(&kafka, &topic).await), (1..50).collect::<Vec<_>>());
}

/// The same in mid-stream: what was stored before the refused one is stored, nothing behind it is.
#[tokio::test(flavor = "multi_thread")]
async fn ac_003_the_first_failure_ends_the_stream() {
    let Some(bootstrap) = servers::kafka() else { return };
    let topic = unique("midstream");
    let kafka = builder(&bootstrap).set("batch.num.messages", "1").connect().unwrap();
    create(&bootstrap, &topic, &[("max.message.bytes", "4000")]).await;
    let rows: Vec<_> = (0..400).map(|n| sized(&topic, "k", n, if n == 200 { 20_000 } else { 10 })).collect();
    let mut publisher = kafka.publisher().await.unwrap();
    let reports = send(&mut publisher, rows.clone()).await;
    assert!(all_stored(&reports[..200]));
    assert!(reports[200..].iter().all(|report| matches!(report, Report::Unknown(_))), "{:?}", &reports[200..]);
    drop(publisher);
    assert_eq!(numbers(&kafka, &topic).await, (0..200).collect::<Vec<_>>());
    assert_eq!(relay(&kafka, &rows[200..], 50).await.0, [0], "the first of the rest");
    let all = first_occurrences(numbers(&kafka, &topic).await);
    assert!(all.iter().copied().eq((0..400).filter(|n| *n != 200)), "{all:?}");
}

/// A request with many records is refused for the sake of one, or of none (it is too large as a
/// whole): exactly those at fault are refused in the end, the others keep their order.
#[tokio::test(flavor = "multi_thread")]
async fn ac_003_a_request_refused_as_a_whole_condemns_no_innocent_record() {
    let Some(bootstrap) = servers::kafka() else { return };
    let topic = unique("innocent");
    let kafka = builder(&bootstrap).connect().unwrap();
    create(&bootstrap, &topic, &[("max.message.bytes", "4000")]).await;
    let guilty = [17, 60];
    let rows: Vec<_> =
        (0..100).map(|n| sized(&topic, "k", n, if guilty.contains(&n) { 20_000 } else { 700 })).collect();

    let (mut refused, publishers) = relay(&kafka, &rows, 25).await;
    refused.sort_unstable();
    assert_eq!(refused, guilty, "after {publishers} publishers");
    let innocent: Vec<_> = (0..100).filter(|n| !guilty.contains(n)).collect();
    assert_eq!(first_occurrences(numbers(&kafka, &topic).await), innocent);
}

/// The broker gets the request and answers too late. The rows are unknown, not refused and not stored;
/// sent again under the same ids they are there, in order, some of them twice.
#[tokio::test(flavor = "multi_thread")]
async fn ac_035_a_record_without_an_answer_is_unknown_and_sent_again_under_its_id() {
    let Some(broker) = servers::Kafka::start_or_skip() else { return };
    let topic = unique("late");
    let kafka = builder(broker.bootstrap()).delivery_limit(Duration::from_secs(3)).connect().unwrap();
    let patient = builder(broker.bootstrap()).connect().unwrap();
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let mut sent = 0;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut publisher = kafka.publisher().await.unwrap();
        let met = (sent..sent + 1).map(|n| envelope(&topic, "k", n)).collect();
        assert!(all_stored(&send(&mut publisher, met).await));
        broker.sigstop().unwrap();
        let rows: Vec<_> = (sent + 1..sent + 100).map(|n| envelope(&topic, "k", n)).collect();
        let reports = send(&mut publisher, rows.clone()).await;
        broker.sigcont().unwrap();
        assert!(reports.iter().all(|report| matches!(report, Report::Unknown(_))), "{reports:?}");
        sent += 100;
        assert_eq!(relay(&kafka, &rows, 50).await.0, [] as [usize; 0]);
        let read = whole_topic(&patient, &topic).await;
        let on_topic: Vec<_> = read.iter().map(number).collect();
        assert_eq!(first_occurrences(on_topic.iter().copied()), (0..sent).collect::<Vec<_>>());
        if on_topic.len() > sent {
            break; // it was in the log all the same
        }
        assert!(Instant::now() < deadline, "the late answer never happened");
    }
}

/// The broker is away for longer than the local buffer lasts: senders wait, nothing is dropped, and
/// it goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn ac_036_a_full_local_queue_means_wait() {
    let Some(broker) = servers::Kafka::start_or_skip() else { return };
    let topic = unique("full");
    let kafka =
        builder(broker.bootstrap()).buffer(100, 1024).delivery_limit(Duration::from_secs(120)).connect().unwrap();
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let mut publisher = kafka.publisher().await.unwrap();
    let first = (0..30).map(|n| envelope(&topic, &format!("k{n}"), n)).collect();
    assert!(all_stored(&send(&mut publisher, first).await));

    broker.sigstop().unwrap();
    let rows = (30..2000).map(|n| envelope(&topic, &format!("k{}", n % 30), n)).collect();
    let mut sending = publisher.send(rows);
    let early = tokio::time::timeout(Duration::from_secs(3), &mut sending).await;
    assert!(early.is_err(), "a hundred records fit, two thousand do not");
    broker.sigcont().unwrap();
    let reports = soon("room", sending).await.unwrap();
    let reports = soon("the reports", reports).await;
    assert!(all_stored(&reports), "{:?}", reports.iter().find(|report| **report != Report::Stored));
    let mut on_topic = numbers(&kafka, &topic).await;
    on_topic.sort_unstable();
    assert_eq!(on_topic, (0..2000).collect::<Vec<_>>(), "no loss, and no duplicate without a doubt");
}

/// The broker is frozen for longer than the delivery limit and thawed, in a loop, under load. Whatever
/// has no report is sent again by a new publisher: the set on the topic is the set sent, and the order
/// of each key holds.
#[tokio::test(flavor = "multi_thread")]
async fn ac_037_frozen_brokers_leave_no_gap() {
    let Some(broker) = servers::Kafka::start_or_skip() else { return };
    let topic = unique("frozen");
    let kafka = builder(broker.bootstrap()).delivery_limit(Duration::from_secs(1)).connect().unwrap();
    let patient = builder(broker.bootstrap()).connect().unwrap();
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let loops = std::env::var("MALOTE_FREEZES").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let rows: Vec<_> = (0..loops * 3_000).map(|n| envelope(&topic, &format!("k{}", n % 7), n)).collect();
    let (tell, mut stored) = watch::channel(0);
    let sending = tokio::spawn({
        let (kafka, rows) = (kafka.clone(), rows.clone());
        async move {
            let mut publishers = 0;
            for part in rows.chunks(3_000) {
                publishers += relay_telling(&kafka, part, 50, &tell).await.1;
            }
            publishers
        }
    });
    for _ in 0..loops {
        broker.sigstop().unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await; // beyond the limit, as the case says
        broker.sigcont().unwrap();
        // it is in use again, so the next freeze meets work in flight; an error says that all is sent
        let before = *stored.borrow();
        let _ = soon("a record", stored.wait_for(|now| *now > before)).await;
    }
    let publishers = soon("sending", sending).await.unwrap();
    assert!(publishers > rows.len() / 3_000, "no publisher was ever in doubt");
    let on_topic = first_occurrences(numbers(&patient, &topic).await);
    assert_eq!(on_topic.len(), rows.len(), "the set is complete");
    for key in 0..7 {
        let of_key: Vec<_> = on_topic.iter().filter(|n| **n % 7 == key).collect();
        assert!(of_key.is_sorted(), "key {key}");
    }
}

/// A publisher that is dropped stops: what it still had does not reach the broker when that wakes.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_publisher_sends_no_more() {
    let Some(broker) = servers::Kafka::start_or_skip() else { return };
    let topic = unique("dropped");
    let kafka = builder(broker.bootstrap()).set("linger.ms", "1000").connect().unwrap();
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let mut publisher = kafka.publisher().await.unwrap();
    let first = (0..1).map(|n| envelope(&topic, "k", n)).collect();
    assert!(all_stored(&send(&mut publisher, first).await));
    let late = (1..100).map(|n| envelope(&topic, "k", n)).collect();
    let reports = publisher.send(late).await.unwrap();
    drop(publisher);
    let reports = soon("the reports", reports).await;
    assert!(reports.iter().all(|report| matches!(report, Report::Unknown(_))), "{reports:?}");
    assert_eq!(numbers(&kafka, &topic).await, [0]);
}

/// Too large for any request: refused without asking the broker, and the others are stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_no_request_can_hold_is_refused() {
    let Some(bootstrap) = servers::kafka() else { return };
    let topic = unique("large");
    let kafka = builder(&bootstrap).connect().unwrap();
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let rows = vec![sized(&topic, "k", 0, 1_100_000), envelope(&topic, "k", 1), sized(&topic, "k", 2, 1_100_000)];
    let mut publisher = kafka.publisher().await.unwrap();
    let reports = send(&mut publisher, rows).await;
    assert!(matches!(&reports[..], [Report::Refused(_), Report::Stored, Report::Refused(_)]), "{reports:?}");
    assert!(all_stored(&send(&mut publisher, vec![envelope(&topic, "k", 3)]).await), "it goes on");
    assert_eq!(numbers(&kafka, &topic).await, [1, 3]);
}

/// Nothing is sent to a topic that is not there, not even once it is, until there is a new publisher:
/// a later record would overtake an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_stays_missing_for_its_publisher() {
    let Some(bootstrap) = servers::kafka() else { return };
    let (missing, other) = (unique("missing"), unique("other"));
    let kafka = builder(&bootstrap).connect().unwrap();
    kafka.ensure(std::slice::from_ref(&other)).await.unwrap();
    let both = || vec![envelope(&missing, "k", 0), envelope(&other, "k", 0)];
    let mut publisher = kafka.publisher().await.unwrap();
    for _ in 0..2 {
        let reports = send(&mut publisher, both()).await;
        assert!(
            matches!(&reports[..], [Report::Unknown(why), Report::Stored] if why.contains(&missing)),
            "{reports:?}"
        );
        kafka.ensure(std::slice::from_ref(&missing)).await.unwrap();
    }
    assert!(all_stored(&send(&mut kafka.publisher().await.unwrap(), both()).await));
}

/// Partitions are those of the pinned count, whatever the client's own partitioner would say.
#[tokio::test(flavor = "multi_thread")]
async fn records_lie_where_their_key_says() {
    let Some(bootstrap) = servers::kafka() else { return };
    let topic = unique("placed");
    let kafka = builder(&bootstrap).connect().unwrap();
    kafka.ensure(std::slice::from_ref(&topic)).await.unwrap();
    let keys: Vec<String> = (0..60).map(|n| format!("chave-{n}-ção")).chain([String::new()]).collect();
    let rows = keys.iter().enumerate().map(|(n, key)| envelope(&topic, key, n)).collect();
    let mut publisher = kafka.publisher().await.unwrap();
    assert!(all_stored(&send(&mut publisher, rows).await));
    for delivery in whole_topic(&kafka, &topic).await {
        let key = &keys[number(&delivery)];
        assert_eq!(delivery.place.partition, partition::of_key(key.as_bytes(), 3) as i32, "{key:?}");
    }
}
