//! How fast the publisher is beside a bare producer loop that sends the same records from memory.
//!
//! ```text
//! cargo run --release -p malote-kafka --example throughput -- BOOTSTRAP [RECORDS] [setting=value]…
//! ```
//!
//! Read the ratio, not the rates: both runs share the machine with the broker. BOOTSTRAP may be `mock`
//! for librdkafka's mock cluster, which costs less than a broker and so shows the client's own cost.

use bytes::Bytes;
use malote_core::{Envelope, Report, Transport, partition, wire};
use malote_kafka::Kafka;
use rdkafka::{
    ClientConfig,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, Producer},
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const PARTITIONS: u32 = 6;
const BATCH: usize = 2_000;
const AHEAD: usize = 4;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let mut bootstrap = args.next().ok_or("which broker?")?;
    let count: usize = args.next().map_or(Ok(200_000), |n| n.parse())?;
    let settings: Vec<(String, String)> =
        args.filter_map(|arg| arg.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))).collect();
    let topic = format!("throughput-{}", std::process::id());
    let mock = MockCluster::new(1)?;
    if bootstrap == "mock" {
        mock.create_topic(&topic, PARTITIONS as i32, 1)?;
        bootstrap = mock.bootstrap_servers();
    }
    let records: Vec<Envelope> = (0..count).map(|n| envelope(&topic, n)).collect();
    kafka(&bootstrap, &[])?.ensure(std::slice::from_ref(&topic)).await?;
    let per_record = |cpu: Duration| cpu.as_secs_f64() * 1e6 / count as f64;
    for round in 1..=3 {
        let before = cpu()?;
        let bare = bare(&bootstrap, &settings, &records)?;
        let between = cpu()?;
        let ours = ours(&bootstrap, &settings, &records).await?;
        let (bare_cpu, our_cpu) = (per_record(between - before), per_record(cpu()? - between));
        let rate = |time: Duration| count as f64 / time.as_secs_f64();
        println!(
            "round {round}: bare {:.0}/s with {bare_cpu:.1} us of CPU a record, publisher {:.0}/s with {our_cpu:.1}, ratio {:.2}",
            rate(bare),
            rate(ours),
            rate(ours) / rate(bare)
        );
    }
    println!("one record at a time: {:?} each", singly(&bootstrap, &settings, &records[..count.min(300)]).await?);
    Ok(())
}

/// CPU time of this process so far, in steps of 10 ms.
fn cpu() -> Fallible<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("no stat")?.1.split_whitespace().collect();
    Ok(Duration::from_millis(10 * (fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)))
}

/// The time from a record to its report, at best.
async fn singly(bootstrap: &str, settings: &[(String, String)], records: &[Envelope]) -> Fallible<Duration> {
    let mut publisher = kafka(bootstrap, settings)?.publisher().await?;
    let mut times = Vec::new();
    for record in records {
        let start = Instant::now();
        stored(Some(publisher.send(vec![record.clone()]).await?)).await?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn kafka(bootstrap: &str, settings: &[(String, String)]) -> Fallible<Kafka> {
    let builder = Kafka::builder(bootstrap).partitions(PARTITIONS);
    Ok(settings.iter().fold(builder, |b, (k, v)| b.set(k, v)).connect()?)
}

async fn ours(bootstrap: &str, settings: &[(String, String)], records: &[Envelope]) -> Fallible<Duration> {
    let kafka = kafka(bootstrap, settings)?;
    let mut publisher = kafka.publisher().await?;
    let start = Instant::now();
    let mut open = VecDeque::new();
    for batch in records.chunks(BATCH) {
        if open.len() == AHEAD {
            stored(open.pop_front()).await?;
        }
        open.push_back(publisher.send(batch.to_vec()).await?);
    }
    while !open.is_empty() {
        stored(open.pop_front()).await?;
    }
    Ok(start.elapsed())
}

async fn stored(reports: Option<malote_core::Reports>) -> Fallible<()> {
    let Some(reports) = reports else { return Ok(()) };
    match reports.await.into_iter().find(|report| *report != Report::Stored) {
        Some(other) => Err(format!("{other:?}").into()),
        None => Ok(()),
    }
}

/// The settings of the publisher and the same records, in a plain loop.
fn bare(bootstrap: &str, settings: &[(String, String)], records: &[Envelope]) -> Fallible<Duration> {
    let mut config = ClientConfig::new();
    for (key, value) in [
        ("bootstrap.servers", bootstrap),
        ("enable.idempotence", "true"),
        ("acks", "all"),
        ("linger.ms", "1"),
        ("compression.type", "lz4"),
        ("batch.size", "1000000"),
        ("queue.buffering.max.messages", "50000"),
    ] {
        config.set(key, value);
    }
    for (key, value) in settings {
        config.set(key, value);
    }
    let producer: BaseProducer = config.create()?;
    let start = Instant::now();
    for envelope in records {
        let record = &wire::encode(envelope);
        let headers = record
            .headers
            .iter()
            .fold(OwnedHeaders::new(), |h, (key, value)| h.insert(Header { key, value: Some(&value[..]) }));
        let mut out = BaseRecord::to(&envelope.topic)
            .partition(partition::of_key(envelope.key.as_bytes(), PARTITIONS) as i32)
            .headers(headers);
        out.key = record.key.as_deref();
        out.payload = record.payload.as_deref();
        while let Err((error, back)) = producer.send::<[u8], [u8]>(out) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(1));
            out = back;
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(60))?;
    Ok(start.elapsed())
}

/// About 300 bytes of JSON.
fn envelope(topic: &str, n: usize) -> Envelope {
    let payload = format!(
        r#"{{"payment_id":"01890a5d-ac96-774b-bcce-{n:012}","amount":{},"from":"alice","to":"bob","note":"{:0>160}"}}"#,
        n % 10_000,
        n * 7919
    );
    Envelope {
        id: uuid::Uuid::from_u128(n as u128 + 1),
        kind: "payment.received.v1".into(),
        topic: topic.into(),
        key: format!("01890a5d-ac96-774b-bcce-{:012}", n % 5_000),
        source: "payment".into(),
        time: chrono::DateTime::UNIX_EPOCH,
        content_type: "application/json".into(),
        correlation_id: Some(format!("01890a5d-ac96-774b-bcce-{n:012}")),
        causation_id: None,
        trace: None,
        hop: None,
        sequence: Some(n as i64),
        headers: Vec::new(),
        payload: Bytes::from(payload),
    }
}
