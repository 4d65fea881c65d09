//! What keys that fail cost the others: 1,000 keys, of which 10 fail always and 50 three times.

use crate::{
    Fallible,
    places::{Ping, Place, Pong, Runs, fill, log, ping, start},
    rounds,
};
use malote::{Budget, Failure, Outcome, Runtime, Service, retry::Policy, with};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const KEYS: i64 = 1_000;
/// Keys whose first message fails always, and those of which it fails three times.
const ALWAYS: i64 = 10;
const THRICE: i64 = 50;

#[derive(Default)]
struct Bench {
    bad: bool,
    /// How often each key's first message has failed.
    failures: Mutex<HashMap<i64, u32>>,
}

impl Bench {
    /// A failure is one of a stored attempt: of a run with its neighbours, nothing is kept.
    fn fails(&self, key: i64) -> bool {
        if !self.bad || key >= ALWAYS + THRICE {
            return false;
        }
        let mut failures = self.failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let failures = failures.entry(key).or_default();
        *failures += 1;
        // the first attempt is made twice: with its neighbours, and apart from them
        key < ALWAYS || *failures <= 4
    }
}

/// Changes a row of the key's, and answers.
async fn work<T: Runs>(ping: Ping, tx: &mut T, bench: &Arc<Bench>) -> Outcome<Pong> {
    let key: i64 = ping.key[1..].parse()?;
    tx.run(&format!("UPDATE account SET balance = balance + 1 WHERE id = {key}")).await?;
    if ping.n == 0 && bench.fails(key) {
        return Err(Failure::retry("one of the bad ones"));
    }
    Ok(Pong { key: ping.key, n: ping.n })
}

/// How long the good keys took.
async fn run<S: Place>(home: &S::Home, each: i64, bad: bool) -> Fallible<Duration> {
    let (folder, store) = (tempfile::tempdir()?, S::fresh(home, "worker").await?);
    store.once("CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL)").await?;
    let rows: Vec<String> = (0..KEYS).map(|key| format!("({key}, 0)")).collect();
    store.once(&format!("INSERT INTO account VALUES {}", rows.join(", "))).await?;
    let log = log(folder.path()).await?;
    fill(&log, &store, (0..each).flat_map(|n| (0..KEYS).map(move |key| ping(key, n)))).await?;
    let bench = Arc::new(Bench { bad, ..Bench::default() });
    let policy = Policy::default().attempts(5).backoff(Duration::from_millis(20), Duration::from_millis(200));
    let service = Service::new("worker", store.clone(), log)
        .on(with(bench, work::<S::Tx>))
        .terminal::<Pong>()
        .without_relay()
        .retry(policy)
        .retry_budget(Budget { per_second: 1_000.0, burst: 1_000.0 });
    let good = format!("SELECT count(*) FROM account WHERE id >= {} AND balance >= {each}", ALWAYS + THRICE);
    let began = Instant::now();
    let running = start(Runtime::new().with(service));
    let took = store.until(&good, KEYS - ALWAYS - THRICE).await? - began;
    let given_up = if bad { ALWAYS } else { 0 };
    store.until("SELECT count(*) FROM malote.dead", given_up).await?;
    store.until("SELECT count(*) FROM malote.outbox", KEYS * each - given_up).await?;
    running.stop().await?;
    Ok(took)
}

pub async fn measure<S: Place>(home: &S::Home) -> Fallible<()> {
    for each in [4, 40] {
        let taken = rounds::of(async |bad| run::<S>(home, each, bad).await).await?;
        let what = format!(
            "{}: good keys' throughput with {ALWAYS} keys of {KEYS} failing always and {THRICE} three times, \
             against none ({each} messages of each key)",
            S::NAME
        );
        rounds::print(&what, &taken);
    }
    Ok(())
}
