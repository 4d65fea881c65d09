//! Calls to the outside go on side by side with whatever else comes, and in order within their key.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod away;
mod moved;
mod provider;
mod suspects;
mod turns;

use common::*;
use malote::{
    Event, IdempotencyKey, Message, Outcome, Runtime, Service, Transaction, Transport, partition, retry::Policy, with,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

on_each_store!(
    a_slow_call_holds_up_its_own_key_only,
    what_comes_behind_a_call_waits_for_it,
    nothing_is_acknowledged_past_a_call_under_way,
    no_more_than_a_batch_is_open,
    no_more_calls_are_under_way_than_may_be,
    a_stop_begins_no_more_calls,
);

/// Is a process that calls, when it is told so.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    if let Some(words) = malote_testkit::child::told() {
        moved::child(&words).await;
    }
}

/// With the least that a runtime may be told to wait for a sign of life, a consumer has twenty seconds.
mod standstill {
    use super::*;
    use std::time::Instant;

    async fn slow(ping: Ping, _: IdempotencyKey, (begun, takes): &(Log<i64>, Duration)) -> Outcome<Ping> {
        begun.add(ping.n);
        tokio::time::sleep(*takes).await; // the outside takes its time
        Ok(ping)
    }

    async fn calls(count: i64, takes: Duration) {
        let Some(scene) = Scene::<malote::sqlite::Sqlite>::fresh().await else { return };
        let begun = Log::default();
        let caller = Service::new("caller", scene.caller.clone(), scene.log.clone())
            .effect(with((begun.clone(), takes), slow), with(scene.done.clone(), record::<malote::sqlite::Tx>))
            .retry(Policy::default().deadline(2 * takes));
        let running = start(scene.runtime(caller).stalled_after(Duration::from_secs(1))).await;
        let began = Instant::now();
        ask(&scene.asker, (0..count).map(|n| ping("k", n))).await;
        scene.done.within(Duration::from_secs(90), |all| all.len() == count as usize).await;
        assert!(began.elapsed() > Duration::from_secs(24), "too short to tell anything");
        running.stop().await;
        assert_eq!(begun.all(), (0..count).collect::<Vec<_>>(), "begun again: it was taken for a standstill");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_calls_of_one_key_are_none() {
        calls(9, Duration::from_secs(3)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_of_the_whole_deadline_is_none() {
        calls(1, Duration::from_secs(25)).await;
    }
}

/// Handled, not called.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Tick {
    key: String,
    n: i64,
}
impl Event for Tick {
    const TYPE: &'static str = "tick.v1";
    /// Beside the pings, so that the two keep order.
    fn topic() -> &'static str {
        Ping::topic()
    }
    fn key(&self) -> String {
        self.key.clone()
    }
}

fn tick_of(key: &str, n: i64) -> Message {
    Message::of(&Tick { key: key.into(), n }).unwrap()
}

/// The outside: does not answer calls of the key "slow" until it is let go.
#[derive(Clone)]
struct Outside {
    begun: Log<(i64, String)>,
    open: watch::Sender<bool>,
}

impl Default for Outside {
    fn default() -> Self {
        Self { begun: Log::default(), open: watch::Sender::new(false) }
    }
}

impl Outside {
    async fn until_begun(&self, n: i64) {
        self.begun.until(|all| all.iter().any(|(m, _)| *m == n)).await;
    }

    fn begun(&self) -> Vec<i64> {
        self.begun.all().into_iter().map(|(n, _)| n).collect()
    }

    fn let_go(&self) {
        self.open.send_replace(true);
    }
}

async fn call(ping: Ping, key: IdempotencyKey, outside: &Outside) -> Outcome<Ping> {
    outside.begun.add((ping.n, key.0));
    if ping.key == "slow" {
        outside.open.subscribe().wait_for(|open| *open).await.map_err(|e| malote::Failure::retry(e.to_string()))?;
    }
    Ok(ping)
}

async fn record<T: Transaction>(ping: Ping, _: &mut T, done: &Log<i64>) -> Outcome {
    done.add(ping.n);
    Ok(())
}

async fn tick<T: Transaction>(tick: Tick, _: &mut T, done: &Log<i64>) -> Outcome {
    done.add(tick.n);
    Ok(())
}

struct Scene<S> {
    asker: S,
    caller: S,
    log: Arc<dyn Transport>,
    outside: Outside,
    done: Log<i64>,
}

impl<S: TestStore> Scene<S> {
    async fn fresh() -> Option<Self> {
        let (asker, caller) = (S::fresh("asker").await?, S::fresh("caller").await?);
        Some(Self { asker, caller, log: log().await, outside: Outside::default(), done: Log::default() })
    }

    fn caller(&self) -> Service<S> {
        Service::new("caller", self.caller.clone(), self.log.clone())
            .effect(with(self.outside.clone(), call), with(self.done.clone(), record::<S::Tx>))
            .on(with(self.done.clone(), tick::<S::Tx>))
    }

    fn runtime(&self, caller: Service<S>) -> Runtime {
        let asker = Service::new("asker", self.asker.clone(), self.log.clone()).emits::<Ping>().emits::<Tick>();
        Runtime::new().with(asker).with(caller)
    }

    async fn done(&self, n: i64) {
        self.done.until(|all| all.contains(&n)).await;
    }
}

/// Keys of the partition in which "slow" lies.
fn beside() -> impl Iterator<Item = String> {
    let slow = partition::of_key(b"slow", 4);
    (0..).map(|n| format!("key{n}")).filter(move |key| partition::of_key(key.as_bytes(), 4) == slow)
}

async fn a_slow_call_holds_up_its_own_key_only<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let running = start(scene.runtime(scene.caller())).await;
    ask(&scene.asker, [ping("slow", 0)]).await;
    scene.outside.until_begun(0).await;
    for n in 1..=20 {
        ask(&scene.asker, [ping(&format!("key{n}"), n)]).await;
        scene.done(n).await;
    }
    assert!(!scene.done.all().contains(&0));
    scene.outside.let_go();
    scene.done(0).await;
    running.stop().await;
}

async fn what_comes_behind_a_call_waits_for_it<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let running = start(scene.runtime(scene.caller())).await;
    ask(&scene.asker, [ping("slow", 1)]).await;
    scene.outside.until_begun(1).await;
    // what comes last in the partition tells that the others have come
    let (behind, last) = (|n| tick_of("slow", n), beside().next().unwrap());
    say(
        &scene.asker,
        [behind(2), Message::of(&ping("slow", 3)).unwrap(), behind(4), Message::of(&ping(&last, 9)).unwrap()],
    )
    .await;
    scene.done(9).await;
    assert_eq!((scene.done.all(), scene.outside.begun()), (vec![9], vec![1, 9]));
    scene.outside.let_go();
    scene.done(4).await;
    running.stop().await;
    assert_eq!((scene.done.all(), scene.outside.begun()), (vec![9, 1, 2, 3, 4], vec![1, 9, 3]));
}

async fn nothing_is_acknowledged_past_a_call_under_way<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let running = start(scene.runtime(scene.caller()).grace(Duration::from_millis(100))).await;
    ask(&scene.asker, [ping("slow", 1)]).await;
    scene.outside.until_begun(1).await;
    for (n, key) in (2..5).zip(beside()) {
        ask(&scene.asker, [ping(&key, n)]).await;
        scene.done(n).await;
    }
    // the call is cut off
    running.stop().await;
    scene.outside.let_go();
    let running = start(scene.runtime(scene.caller())).await;
    scene.done(1).await;
    running.stop().await;
    let calls = scene.outside.begun.all();
    let keys: Vec<_> = calls.iter().filter(|(n, _)| *n == 1).map(|(_, key)| key).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1], "the outside knows it again");
    assert_eq!(scene.done.all(), [2, 3, 4, 1], "what was done is not done again");
}

async fn no_more_than_a_batch_is_open<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let Some(other) = S::fresh("witness").await else { return };
    let seen = Log::default();
    let witness = Service::new("witness", other, scene.log.clone()).on(with(seen.clone(), answer::<S::Tx>));
    let running = start(scene.runtime(scene.caller().batch(10)).with(witness.terminal::<Pong>())).await;
    ask(&scene.asker, [ping("slow", 0)]).await;
    scene.outside.until_begun(0).await;
    for (n, key) in (1..=40).zip(beside()) {
        ask(&scene.asker, [ping(&key, n)]).await;
        // one that is not held up tells how far the other might have come
        seen.until(|all| all.len() > n as usize).await;
    }
    let begun = scene.outside.begun();
    assert!(begun.len() <= 10, "{begun:?}");
    scene.outside.let_go();
    scene.done.until(|all| all.len() == 41).await;
    running.stop().await;
}

async fn no_more_calls_are_under_way_than_may_be<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let running = start(scene.runtime(scene.caller().effects_at_once(1))).await;
    ask(&scene.asker, [ping("slow", 0)]).await;
    scene.outside.until_begun(0).await;
    let key = beside().next().unwrap();
    ask(&scene.asker, [ping(&key, 1)]).await;
    // handlers need no place, and this one comes behind the call
    say(&scene.asker, [tick_of(&beside().nth(1).unwrap(), 2)]).await;
    scene.done(2).await;
    assert_eq!(scene.outside.begun(), [0]);
    scene.outside.let_go();
    scene.done(1).await;
    running.stop().await;
    assert_eq!(scene.done.all(), [2, 0, 1]);
}

async fn a_stop_begins_no_more_calls<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let patient = Policy::default().deadline(Duration::from_secs(4));
    let caller = || scene.caller().effects_at_once(1).retry(patient);
    let running = start(scene.runtime(caller()).grace(LONG)).await;
    ask(&scene.asker, [ping("slow", 0)]).await;
    scene.outside.until_begun(0).await;
    let mut keys = beside();
    ask(&scene.asker, [ping(&keys.next().unwrap(), 1), ping("slow", 2)]).await;
    say(&scene.asker, [tick_of(&keys.next().unwrap(), 3)]).await;
    scene.done(3).await;
    // ends when the call that has begun comes to the end of its time
    running.stop().await;
    assert_eq!(scene.outside.begun(), [0], "the others had not begun");
    scene.outside.let_go();
    let running = start(scene.runtime(caller())).await;
    scene.done.until(|all| all.len() == 4).await;
    running.stop().await;
    let slow: Vec<i64> = scene.done.all().into_iter().filter(|n| n % 2 == 0).collect();
    assert_eq!(slow, [0, 2], "in the order of their key");
}
