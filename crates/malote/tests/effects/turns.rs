//! Who has a turn when calls are slow: no lane, partition or retry keeps another one waiting.

use super::{common::*, provider::*, tick_of};
use malote::{Message, Runtime, Transport, partition, retry::Policy};
use std::{sync::Arc, time::Duration};

crate::on_each_store!(
    lanes_take_turns_call_by_call,
    a_record_that_came_twice_is_called_once,
    a_retry_that_hangs_holds_up_its_own_key_only,
    no_more_retries_are_under_way_than_may_be,
    a_slow_partition_holds_up_no_other,
    any_number_of_calls_may_be_under_way,
);

async fn any_number_of_calls_may_be_under_way<S: TestStore>() {
    for at_once in [0, usize::MAX] {
        let Some(scene) = Scene::<S>::fresh().await else { return };
        let running = scene.start(scene.caller(&Provider::default()).effects_at_once(at_once)).await;
        scene.ask((0..3).map(|n| ping(&format!("k{n}"), n))).await;
        scene.heard.until(|all| all.len() == 3).await;
        running.stop().await;
    }
}

pub struct Scene<S> {
    pub asker: S,
    pub caller: S,
    log: Arc<dyn Transport>,
    pub heard: Log<Pong>,
    ticks: Log<i64>,
    marks: std::sync::atomic::AtomicI64,
}

impl<S: TestStore> Scene<S> {
    pub async fn fresh() -> Option<Self> {
        let (asker, caller) = (S::fresh("asker").await?, S::fresh("caller").await?);
        let (heard, ticks) = (Log::default(), Log::default());
        Some(Self { asker, caller, log: log().await, heard, ticks, marks: 1_000.into() })
    }

    pub fn caller(&self, provider: &Provider) -> malote::Service<S> {
        caller(&self.caller, &self.log, provider, &self.ticks).retry(quick())
    }

    pub async fn start(&self, caller: malote::Service<S>) -> Running {
        start(Runtime::new().with(asker(&self.asker, &self.log, &self.heard)).with(caller)).await
    }

    /// Asks, and waits until all of it has come to the caller: a mark of another key in the same partition has.
    pub async fn ask(&self, pings: impl IntoIterator<Item = Ping>) {
        let n = self.marks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let pings: Vec<Ping> = pings.into_iter().collect();
        let marks: Vec<String> = pings.iter().map(|ping| beside(&ping.key)).collect();
        let messages = pings.iter().map(|ping| Message::of(ping).unwrap());
        say(&self.asker, messages.chain(marks.iter().map(|key| tick_of(key, n)))).await;
        self.ticks.until(|all| all.iter().filter(|m| **m == n).count() == marks.len()).await;
    }

    pub async fn heard(&self, n: i64) {
        self.heard.until(|all| all.iter().any(|pong| pong.n == n)).await;
    }
}

/// Tried again soon, given time without end.
fn quick() -> Policy {
    Policy::default().attempts(100).backoff(Duration::from_millis(20), Duration::from_millis(40)).deadline(NEVER)
}

pub fn partition_of(key: &str) -> u32 {
    partition::of_key(key.as_bytes(), 4)
}

/// Another key of the same partition.
pub fn beside(key: &str) -> String {
    (0..).map(|n| format!("mark{n}")).find(|mark| partition_of(mark) == partition_of(key)).unwrap()
}

/// A key of another partition.
pub fn elsewhere(key: &str) -> String {
    (0..).map(|n| format!("else{n}")).find(|other| partition_of(other) != partition_of(key)).unwrap()
}

async fn lanes_take_turns_call_by_call<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let provider = Provider::holding(0..4);
    let running = scene.start(scene.caller(&provider).effects_at_once(1)).await;
    scene.ask((0..4).map(|n| ping("slow", n))).await;
    provider.until_begun(0).await;
    provider.let_go(0);
    provider.until_begun(1).await;
    scene.ask([ping("other", 9)]).await;
    for n in 1..4 {
        provider.let_go(n);
    }
    scene.heard.until(|all| all.len() == 5).await;
    running.stop().await;
    assert_eq!(provider.begun.all(), [0, 1, 9, 2, 3]);
    assert_eq!(provider.most_at_once(), 1);
}

async fn a_record_that_came_twice_is_called_once<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let provider = Provider::holding([0]);
    let running = scene.start(scene.caller(&provider)).await;
    scene.ask([ping("k", 0)]).await;
    provider.until_begun(0).await;
    // as a relay does that did not hear whether it was taken
    let mut tx = malote::Outbox::new("asker", scene.asker.clone()).begin().await.unwrap();
    let envelopes: Vec<_> = (1..3)
        .map(|n| malote::Transaction::sealer(&mut tx).seal(Message::of(&ping("k", n)).unwrap()).unwrap())
        .collect();
    drop(tx);
    let twice = envelopes.iter().chain(&envelopes).cloned().collect();
    let mut publisher = scene.log.publisher().await.unwrap();
    publisher.send(twice).await.unwrap().await;
    scene.ask([ping(&beside("k"), 9)]).await;
    provider.let_go(0);
    scene.heard.until(|all| all.len() == 4).await;
    running.stop().await;
    let mut begun = provider.begun.all();
    begun.sort_unstable();
    assert_eq!(begun, [0, 1, 2, 9]);
}

async fn a_retry_that_hangs_holds_up_its_own_key_only<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let provider = Provider::default();
    provider.fail([1, 2]);
    let running = scene.start(scene.caller(&provider)).await;
    scene.ask([ping("hangs", 1)]).await;
    provider.until_begun(1).await;
    scene.caller.until_count("select count(*) from malote.parked where attempts > 0", 1).await;
    // its next attempt hangs
    provider.hold([1]);
    let so_far = provider.times(1);
    provider.until_begun_times(1, so_far + 1).await;
    scene.ask([ping("other", 2), ping("other", 3)]).await;
    provider.until_begun_times(2, 2).await;
    provider.mend();
    scene.heard(3).await;
    assert_eq!(numbers(&scene.heard.all()), [2, 3]);
    provider.let_all_go();
    scene.heard(1).await;
    running.stop().await;
}

async fn no_more_retries_are_under_way_than_may_be<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let provider = Provider::default();
    provider.fail(0..4);
    let running = scene.start(scene.caller(&provider).effects_at_once(1)).await;
    scene.ask([ping("hangs", 0)]).await;
    provider.until_begun(0).await;
    scene.caller.until_count("select count(*) from malote.parked where attempts > 0", 1).await;
    // its next attempt hangs, in the only place that there is for one
    provider.hold([0]);
    let so_far = provider.times(0);
    provider.until_begun_times(0, so_far + 1).await;
    scene.ask((1..4).map(|n| ping(&format!("k{n}"), n))).await;
    scene.caller.until_count("select count(*) from malote.parked", 4).await;
    // long enough for them to be due
    for n in 10..40 {
        scene.ask([ping("fresh", n)]).await;
        scene.heard(n).await;
    }
    assert_eq!([1, 2, 3].map(|n| provider.times(n)), [1, 1, 1], "tried again beside the one that hangs");
    provider.mend();
    provider.let_all_go();
    scene.heard.until(|all| all.len() == 34).await;
    running.stop().await;
}

async fn a_slow_partition_holds_up_no_other<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    let provider = Provider::holding([0]);
    let running = scene.start(scene.caller(&provider).batch(10)).await;
    scene.ask([ping("slow", 0)]).await;
    provider.until_begun(0).await;
    // far more than may be open at once
    let many = (1..100).map(|n| Message::of(&ping("slow", n)).unwrap());
    say(&scene.asker, many).await;
    let other = elsewhere("slow");
    for n in 100..130 {
        scene.ask([ping(&other, n)]).await;
        scene.heard(n).await;
    }
    assert!(!numbers(&scene.heard.all()).contains(&0));
    provider.let_all_go();
    scene.heard.until(|all| all.len() == 130).await;
    running.stop().await;
    let slow: Vec<i64> = numbers(&scene.heard.all()).into_iter().filter(|n| *n < 100).collect();
    assert_eq!(slow, (0..100).collect::<Vec<_>>());
}
