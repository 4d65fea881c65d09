//! A provider whose every answer a test decides, and the service that calls it.

use super::{common::*, tick};
use malote::{Failure, IdempotencyKey, Outcome, Service, Transaction, Transport, with};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::watch;

/// Longer than a test waits for anything: what is held stays held.
pub const NEVER: Duration = Duration::from_secs(3600);

/// Answers at once, but for the numbers that are held; refuses those that fail.
#[derive(Clone)]
pub struct Provider {
    pub begun: Log<i64>,
    held: watch::Sender<BTreeSet<i64>>,
    failing: watch::Sender<BTreeSet<i64>>,
    now: Arc<AtomicUsize>,
    /// How many calls have been under way at once.
    most: Arc<AtomicUsize>,
}

impl Default for Provider {
    fn default() -> Self {
        let (held, failing) = (watch::Sender::default(), watch::Sender::default());
        Self { begun: Log::default(), held, failing, now: Arc::default(), most: Arc::default() }
    }
}

impl Provider {
    pub fn holding(numbers: impl IntoIterator<Item = i64>) -> Self {
        let this = Self::default();
        this.held.send_modify(|held| held.extend(numbers));
        this
    }
    pub fn hold(&self, numbers: impl IntoIterator<Item = i64>) {
        self.held.send_modify(|held| held.extend(numbers));
    }
    pub fn let_go(&self, n: i64) {
        self.held.send_modify(|held| held.retain(|m| *m != n));
    }
    pub fn let_all_go(&self) {
        self.held.send_modify(BTreeSet::clear);
    }
    pub fn fail(&self, numbers: impl IntoIterator<Item = i64>) {
        self.failing.send_modify(|failing| failing.extend(numbers));
    }
    pub fn mend(&self) {
        self.failing.send_modify(BTreeSet::clear);
    }
    pub fn times(&self, n: i64) -> usize {
        self.begun.all().iter().filter(|m| **m == n).count()
    }
    pub fn most_at_once(&self) -> usize {
        self.most.load(SeqCst)
    }
    pub async fn until_begun(&self, n: i64) {
        self.until_begun_times(n, 1).await;
    }
    pub async fn until_begun_times(&self, n: i64, times: usize) {
        self.begun.until(|all| all.iter().filter(|m| **m == n).count() >= times).await;
    }
}

async fn call(ping: Ping, _: IdempotencyKey, provider: &Provider) -> Outcome<Ping> {
    provider.most.fetch_max(provider.now.fetch_add(1, SeqCst) + 1, SeqCst);
    provider.begun.add(ping.n);
    let let_go = provider.held.subscribe().wait_for(|held| !held.contains(&ping.n)).await.map(drop);
    provider.now.fetch_sub(1, SeqCst);
    let_go.map_err(|gone| Failure::retry(gone.to_string()))?;
    match provider.failing.borrow().contains(&ping.n) {
        true => Err(Failure::retry("the provider fails")),
        false => Ok(ping),
    }
}

/// Notes what is committed, not what is rolled back: what it answers is heard.
async fn reply<T: Transaction>(ping: Ping, _: &mut T) -> Outcome<Pong> {
    Ok(Pong { key: ping.key, n: ping.n })
}

/// A service that calls the provider with pings, and handles ticks of the same topic.
pub fn caller<S: TestStore>(store: &S, log: &Arc<dyn Transport>, provider: &Provider, ticks: &Log<i64>) -> Service<S> {
    Service::new("caller", store.clone(), log.clone())
        .effect(with(provider.clone(), call), reply::<S::Tx>)
        .on(with(ticks.clone(), tick::<S::Tx>))
}

/// A service that asks, and hears what took effect.
pub fn asker<S: TestStore>(store: &S, log: &Arc<dyn Transport>, heard: &Log<Pong>) -> Service<S> {
    Service::new("asker", store.clone(), log.clone())
        .emits::<Ping>()
        .emits::<super::Tick>()
        .on(with(heard.clone(), hear::<S::Tx>))
}

pub fn numbers(pongs: &[Pong]) -> Vec<i64> {
    pongs.iter().map(|pong| pong.n).collect()
}
