//! Partitions move from one process to another while calls are under way, and processes die.

use super::{Tick, common::*, provider::*, tick_of};
use malote::{
    IdempotencyKey, Message, Outcome, Runtime, Service, Transaction, Transport,
    kafka::Kafka,
    partition,
    postgres::Postgres,
    retry::Policy,
    sqlite::{Embedded, Sqlite},
};
use malote_testkit::{
    child::{self, Other},
    servers,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

crate::on_each_store!(what_another_process_parked_is_not_passed);

/// A log of two partitions, which are handed over at once.
async fn log_of_two() -> Arc<dyn Transport> {
    let path = folder().join("log.db");
    let builder = Embedded::builder().partitions(2).handover(Duration::from_millis(100));
    Arc::new(builder.open(path.to_str().unwrap()).await.unwrap())
}

/// A key of a partition.
fn key_in(partition: u32, name: &str) -> String {
    (0..).map(|n| format!("{name}{n}")).find(|key| partition::of_key(key.as_bytes(), 2) == partition).unwrap()
}

/// Says this of each partition, with its number × 100 added, and then a mark; waits for the marks.
async fn tell<S: TestStore>(store: &S, of: &[u32], n: i64, mark: i64, ticks: &[&Log<i64>]) {
    let at = |partition: u32| i64::from(partition) * 100;
    let said = of.iter().flat_map(|&p| {
        let said = Message::of(&ping(&key_in(p, "k"), at(p) + n)).unwrap();
        [said, tick_of(&key_in(p, "mark"), at(p) + mark)]
    });
    say(store, said).await;
    for &p in of {
        let has = || ticks.iter().any(|ticks| ticks.all().contains(&(at(p) + mark)));
        eventually("the mark has come", has).await;
    }
}

/// One process calls, and its partition moves to another, which calls too. The first one's call fails late,
/// and is parked: what comes behind it in the other process has to wait for it.
async fn what_another_process_parked_is_not_passed<S: TestStore>() {
    let (Some(a), Some(c)) = (S::fresh("asker").await, S::fresh("caller").await) else { return };
    let (log, heard) = (log_of_two().await, Log::default());
    let both = [0, 1, 2, 100, 101, 102];
    let (old, new) = (Provider::holding(both), Provider::holding(both));
    let (old_ticks, new_ticks) = (Log::default(), Log::default());
    let policy = Policy::default().attempts(9).backoff(Duration::from_secs(3), Duration::from_secs(3)).deadline(NEVER);
    let asking = start(Runtime::new().with(asker(&a, &log, &heard))).await;
    let first = start(Runtime::new().with(caller(&c, &log, &old, &old_ticks).retry(policy))).await;
    tell(&a, &[0, 1], 0, 50, &[&old_ticks]).await;
    old.until_begun(0).await;
    old.until_begun(100).await;
    tell(&a, &[0, 1], 1, 51, &[&old_ticks]).await;
    let second = start(Runtime::new().with(caller(&c, &log, &new, &new_ticks).retry(policy))).await;
    let begun = new.begun.until(|all| !all.is_empty()).await;
    let moved = (begun[0] / 100) as u32;
    let at = begun[0];
    say(&a, [Message::of(&ping(&key_in(moved, "k"), at + 2)).unwrap()]).await;
    // what they both call comes to an end in the old one first
    old.let_go(at);
    old.until_begun(at + 1).await;
    new.let_go(at);
    new.until_begun(at + 1).await;
    old.fail([at + 1]);
    old.let_go(at + 1);
    c.until_count("select count(*) from malote.inbox where state = 'parked'", 1).await;
    old.mend();
    new.let_all_go();
    old.let_all_go();
    let of_it = |all: &[Pong]| numbers(all).into_iter().filter(|n| n / 100 == at / 100).collect::<Vec<_>>();
    let all = heard.until(|all| of_it(all).len() == 3).await;
    assert_eq!(of_it(&all), [at, at + 1, at + 2], "in the order of their key");
    for running in [first, second, asking] {
        running.stop().await;
    }
}

/// Calls that take their time, and end in the death of the process more often than not.
async fn takes_its_time(ping: Ping, _: IdempotencyKey) -> Outcome<Ping> {
    if ping.n % 10 == 0 {
        child::say(format!("call {}", ping.n));
    }
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..40))).await; // the outside takes its time
    Ok(ping)
}

async fn reply<T: Transaction>(ping: Ping, _: &mut T) -> Outcome<Pong> {
    Ok(Pong { key: ping.key, n: ping.n })
}

/// Handled between the calls, and answered like them.
async fn reply_to_tick<T: Transaction>(tick: Tick, _: &mut T) -> Outcome<Pong> {
    Ok(Pong { key: tick.key, n: tick.n })
}

/// What a child is: a process that calls until it is killed.
pub async fn child(words: &[String]) {
    let [store, log] = words else { panic!("a store and a log are expected: {words:?}") };
    let log = open(log).await;
    if store.starts_with("postgres") {
        live(Postgres::connect(store).await.unwrap(), log).await;
    } else {
        live(Sqlite::open(store).await.unwrap(), log).await;
    }
}

async fn live<S: TestStore>(store: S, log: Arc<dyn Transport>) {
    let caller = Service::new("caller", store, log)
        .effect(takes_its_time, reply::<S::Tx>)
        .on(reply_to_tick::<S::Tx>)
        .lease(Duration::from_millis(500));
    let running = start(Runtime::new().with(caller)).await;
    tokio::time::sleep(Duration::from_secs(600)).await; // its parent kills it
    running.stop().await;
}

async fn open(log: &str) -> Arc<dyn Transport> {
    match log.strip_prefix("kafka:") {
        Some(bootstrap) => {
            let kafka = Kafka::builder(bootstrap).partitions(2).session(Duration::from_secs(6));
            Arc::new(kafka.connect().unwrap())
        }
        None => Arc::new(Embedded::builder().lease(Duration::from_millis(500)).open(log).await.unwrap()),
    }
}

/// Two processes at a time, one of which is killed while its calls are under way and replaced by another, again
/// and again: each record takes effect once, in the order of its key.
async fn the_killed_leave_nothing_behind<S: TestStore>(store: Option<(S, String)>, log: Option<String>) {
    let (Some((c, url)), Some(log)) = (store, log) else { return };
    let (a, heard) = (Sqlite::fresh("asker").await.unwrap(), Log::default());
    let asking = start(Runtime::new().with(asker(&a, &open(&log).await, &heard))).await;
    let mut said: Vec<(String, i64)> = Vec::new();
    let mut processes = vec![Other::start_with(&[&url, &log])];
    for round in 0..4 {
        let some = round * 100..(round + 1) * 100;
        let messages: Vec<_> = some
            .map(|n| {
                let key = format!("k{}", n % 7);
                said.push((key.clone(), n));
                if n % 3 == 1 { tick_of(&key, n) } else { Message::of(&ping(&key, n)).unwrap() }
            })
            .collect();
        say(&a, messages).await;
        processes.push(Other::start_with(&[&url, &log]));
        let mut old = processes.remove(0);
        let old = tokio::task::spawn_blocking(move || {
            let heard = old.hear();
            (old, heard)
        });
        // it may be that the other one has them all
        if let Ok(Ok((mut old, _))) = tokio::time::timeout(Duration::from_secs(20), old).await {
            old.kill();
        }
    }
    heard.within(2 * LONG, |all| all.len() >= said.len()).await;
    c.until_count("select count(*) from malote.run", 0).await;
    drop(processes);
    asking.stop().await;
    let by_key = |all: Vec<(String, i64)>| {
        all.into_iter().fold(BTreeMap::<String, Vec<i64>>::new(), |mut keys, (key, n)| {
            keys.entry(key).or_default().push(n);
            keys
        })
    };
    let heard = heard.all().into_iter().map(|pong| (pong.key, pong.n)).collect();
    assert_eq!(by_key(heard), by_key(said), "each once and in order");
    assert_eq!(c.count("select count(*) from malote.dead").await, 0, "no record is to blame");
}

async fn sqlite() -> Option<(Sqlite, String)> {
    let path = folder().join("caller.db").to_str().unwrap().to_owned();
    let store = Sqlite::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    Some((store, path))
}

async fn postgres() -> Option<(Postgres, String)> {
    let url = servers::fresh_database("caller")?;
    let store = Postgres::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Some((store, url))
}

async fn on_a_file() -> Option<String> {
    Some(folder().join("log.db").to_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_killed_leave_nothing_behind_on_sqlite() {
    the_killed_leave_nothing_behind(sqlite().await, on_a_file().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_killed_leave_nothing_behind_on_postgres() {
    the_killed_leave_nothing_behind(postgres().await, on_a_file().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_killed_leave_nothing_behind_on_postgres_and_kafka() {
    let broker = tokio::task::spawn_blocking(servers::Kafka::start_or_skip).await.unwrap();
    let log = broker.as_ref().map(|broker| format!("kafka:{}", broker.bootstrap()));
    the_killed_leave_nothing_behind(postgres().await, log).await;
}
