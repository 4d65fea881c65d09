//! A broker that was away comes back, and is not met by a storm.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Envelope, Runtime, Service, Transport, kafka::Kafka, retry::Backoff, sqlite::Sqlite};
use malote_testkit::{
    faults::{Fate, Faulty},
    servers, soak,
};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Rows a second that may be sent a second time, by all replicas together.
const RATE: u32 = 20;
/// The time after the recovery that is looked at.
const WINDOW: Duration = Duration::from_secs(10);

/// A service of several replicas, and what they hand over to the broker.
struct Replicas {
    count: usize,
    store: Sqlite,
    sent: Arc<Mutex<Vec<(i64, Instant)>>>,
    running: Vec<Running>,
}

impl Replicas {
    async fn start(count: usize, bootstrap: &str) -> Self {
        let (store, sent) = (Sqlite::fresh("asker").await.unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let mut running = Vec::new();
        for _ in 0..count {
            let kafka = Kafka::builder(bootstrap).partitions(3).delivery_limit(Duration::from_secs(2)).connect();
            let seen = sent.clone();
            let transport = Faulty::new(Arc::new(kafka.unwrap()), move |envelope: &Envelope| {
                let n = envelope.open::<Ping>().map_or(-1, |ping| ping.n);
                seen.lock().unwrap().push((n, Instant::now()));
                Fate::Pass
            });
            let transport: Arc<dyn Transport> = Arc::new(transport);
            let service = Service::new("asker", store.clone(), transport)
                .emits::<Ping>()
                .answered_within(Duration::from_secs(3))
                .backoff(Backoff { first: Duration::from_millis(50), most: Duration::from_secs(1) })
                .resent_per_second(RATE);
            running.push(start(Runtime::new().with(service)).await);
        }
        Self { count, store, sent, running }
    }

    /// How many were handed over again from one moment until another.
    fn again(&self, from: Instant, until: Instant) -> usize {
        let (sent, mut seen) = (self.sent.lock().unwrap(), HashSet::new());
        sent.iter().filter(|(n, at)| !seen.insert(*n) && *at >= from && *at < until).count()
    }
}

/// Writes at a steady rate until told to stop; returns how many rows.
async fn write(store: Sqlite, going: Arc<AtomicBool>) -> i64 {
    let (mut n, mut pace) = (0, tokio::time::interval(Duration::from_millis(50)));
    while going.load(SeqCst) {
        pace.tick().await;
        ask(&store, (n..n + 10).map(|n| ping(&format!("k{}", n % 20), n))).await;
        n += 10;
    }
    n
}

/// With 1, 2 and 4 replicas, through one outage: an outage of five seconds here, of a minute in a soak run.
#[tokio::test(flavor = "multi_thread")]
async fn soak_an_outage_of_the_broker_ends_in_no_storm() {
    let short = Duration::from_secs(5);
    let outage = soak::duration(short).min(Duration::from_secs(60));
    let Some(broker) = tokio::task::spawn_blocking(servers::Kafka::start_or_skip).await.unwrap() else { return };
    let (going, mut all) = (Arc::new(AtomicBool::new(true)), Vec::new());
    for count in [1, 2, 4] {
        let replicas = Replicas::start(count, broker.bootstrap()).await;
        all.push((tokio::spawn(write(replicas.store.clone(), going.clone())), replicas));
    }
    eventually("all send", || all.iter().all(|(_, replicas)| replicas.sent.lock().unwrap().len() > 100)).await;
    broker.sigstop().unwrap();
    tokio::time::sleep(outage).await; // the outage
    broker.sigcont().unwrap();
    let back = Instant::now();
    tokio::time::sleep(WINDOW).await; // what is looked at
    going.store(false, SeqCst);
    for (writing, replicas) in all {
        let written = writing.await.unwrap();
        let settled = format!("select count(*) from malote.relay where name = 'asker' and high = {written}");
        replicas.store.until_count(&settled, 1).await;
        let (again, count) = (replicas.again(back, back + WINDOW), replicas.count);
        let total = replicas.again(back - outage, Instant::now());
        for one in replicas.running {
            one.stop().await;
        }
        println!("{count} replicas: {again} of {written} rows sent again in the first {WINDOW:?}, {total} in all");
        let allowed = WINDOW.as_secs_f64() * f64::from(RATE) * 1.1 + f64::from(RATE) / 10.0;
        assert!(total > 0, "the outage was not met");
        assert!(again as f64 <= allowed, "{count} replicas sent {again} rows again, {allowed} are allowed");
    }
}
