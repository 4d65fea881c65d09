//! Partitions move from one process to another while calls are under way, and processes die.

use super::{common::*, provider::*, tick_of};
use malote::{Message, Runtime, Transport, partition, retry::Policy, sqlite::Embedded};
use std::{sync::Arc, time::Duration};

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
