//! A batch with members that fail in ways that show late, or leave their transaction half done.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    Failure, IdempotencyKey, Message, Outcome, Runtime, Service, Transaction, inspect::Filter, retry::Policy, with,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

on_each_store!(
    a_constraint_that_is_checked_at_commit_takes_none_along,
    an_error_that_was_swallowed_is_its_own_members_trouble,
    what_was_left_half_done_is_not_committed_with_a_failure_after_it,
    what_was_left_half_done_in_a_lane_is_not_committed,
    a_rollback_of_the_whole_is_its_own_members_trouble,
    a_rollback_of_the_whole_that_was_swallowed_is_its_own_members_trouble,
    panics_in_attempts_and_refusals_leave_nothing,
    an_error_that_was_swallowed_in_a_lane_does_not_end_the_retrier,
    an_error_that_was_swallowed_after_a_call_does_not_call_for_ever,
);

/// Statements of a test's own, in a transaction of either store.
#[allow(async_fn_in_trait)]
trait Raw: Transaction {
    fn run(&mut self, statement: String) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Begins an attempt, does something in it, and gives up half-way.
    fn half(&mut self, statement: String) -> impl Future<Output = ()> + Send;
    fn panic(&mut self, statement: String) -> impl Future<Output = ()> + Send;
    const SERVER: bool;
}

macro_rules! raw {
    ($tx:ty, $server:expr) => {
        impl Raw for $tx {
            const SERVER: bool = $server;
            async fn run(&mut self, statement: String) -> Result<(), sqlx::Error> {
                sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut **self).await.map(drop)
            }
            async fn half(&mut self, statement: String) {
                let attempt = self.attempt(async |tx| {
                    sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut **tx).await?;
                    std::future::pending::<Result<(), sqlx::Error>>().await
                });
                let _ = tokio::time::timeout(Duration::from_millis(30), attempt).await;
            }
            async fn panic(&mut self, statement: String) {
                let _ = self
                    .attempt(async |tx| {
                        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut **tx).await.unwrap();
                        if true {
                            panic!("in an attempt")
                        }
                        Ok::<(), sqlx::Error>(())
                    })
                    .await;
            }
        }
    };
}
raw!(malote::sqlite::Tx, false);
raw!(malote::postgres::Tx, true);

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Well,
    Late,
    Swallow,
    Half,
    Whole,
    Over,
    Panic,
    Reject,
    Again,
}

/// Who does what, and how often the one was tried that fails at first.
type Bench = (BTreeMap<i64, How>, Arc<AtomicU32>);

async fn work<T: Raw>(ping: Ping, tx: &mut T, bench: &Bench) -> Outcome<Pong> {
    let effect = |n: i64| format!("INSERT INTO effect VALUES ({n})");
    let how = bench.0.get(&ping.n).copied().unwrap_or(How::Well);
    if how != How::Half {
        tx.run(effect(ping.n)).await?;
    }
    match how {
        How::Well => {}
        How::Late => tx.run(format!("INSERT INTO child VALUES ({})", ping.n)).await?,
        How::Swallow => drop(tx.run("INSERT INTO nowhere VALUES (1)".into()).await),
        How::Half => tx.half(effect(ping.n)).await,
        How::Whole => tx.run("INSERT OR ROLLBACK INTO parent VALUES (0)".into()).await?,
        How::Over => {
            drop(tx.run("INSERT OR ROLLBACK INTO parent VALUES (0)".into()).await);
            drop(tx.run(effect(ping.n)).await);
        }
        How::Panic => tx.panic(effect(ping.n)).await,
        How::Reject => return Err(Failure::reject("bad")),
        How::Again if bench.1.fetch_add(1, Ordering::SeqCst) < 3 => return Err(Failure::retry("not yet")),
        How::Again => drop(tx.run("INSERT INTO nowhere VALUES (1)".into()).await),
    }
    Ok(Pong { key: ping.key, n: ping.n })
}

fn quick() -> Policy {
    Policy::default()
        .attempts(3)
        .backoff(Duration::from_millis(5), Duration::from_millis(40))
        .deadline(Duration::from_secs(1))
}

/// Handles `all` in one batch, of which some do something else: the `bad` ones are dead letters then and have left
/// nothing, the others are done once.
async fn batch<S: TestStore>(all: i64, key: impl Fn(i64) -> String, how: BTreeMap<i64, How>, bad: BTreeSet<i64>)
where
    S::Tx: Raw,
{
    let Some(store) = S::fresh("worker").await else { return };
    store.execute("CREATE TABLE effect (n BIGINT)").await;
    store.execute("CREATE TABLE parent (n BIGINT PRIMARY KEY)").await;
    store.execute("INSERT INTO parent VALUES (0)").await;
    store.execute("CREATE TABLE child (n BIGINT REFERENCES parent (n) DEFERRABLE INITIALLY DEFERRED)").await;
    let log: std::sync::Arc<dyn malote::Transport> = std::sync::Arc::new(
        malote::sqlite::Embedded::builder().partitions(1).open(folder().join("log.db")).await.unwrap(),
    );
    log.ensure(&["ping.v1".into(), "pong.v1".into()]).await.unwrap();
    let mut tx = malote::Outbox::new("maker", store.clone()).begin().await.unwrap();
    let sealed = (0..all).map(|n| ping(&key(n), n));
    let sealed = sealed.map(|ping| tx.sealer().seal(Message::of(&ping).unwrap()).unwrap()).collect();
    tx.rollback().await.unwrap();
    log.publisher().await.unwrap().send(sealed).await.unwrap().await;
    let over: Vec<String> = how.iter().filter(|(_, how)| **how == How::Over).map(|(n, _)| key(*n)).collect();
    let worker = Service::new("worker", store.clone(), log.clone())
        .on(with((how, Arc::<AtomicU32>::default()), work::<S::Tx>))
        .retry(quick())
        .terminal::<Pong>()
        .batch(all.try_into().unwrap());
    let running = start(Runtime::new().with(worker)).await;
    store.until_count("select count(*) from malote.inbox where state in ('done','dead')", all).await;
    let dead = store.dead(&Filter::default(), 1_000).await.unwrap();
    running.stop().await;
    for n in 0..all {
        let done = store.count(&format!("select count(*) from effect where n = {n}")).await;
        assert_eq!(done, i64::from(!bad.contains(&n)), "{n}");
    }
    for letter in dead.iter().filter(|letter| letter.key.as_ref().is_some_and(|key| over.contains(key))) {
        let told = S::Tx::SERVER || letter.reason.contains("the transaction was over already");
        assert!(told, "{}", letter.reason);
    }
    let dead: BTreeSet<Option<String>> = dead.into_iter().map(|letter| letter.key).collect();
    assert_eq!(dead, bad.iter().map(|n| Some(key(*n))).collect());
    assert_eq!(store.count("select count(*) from malote.outbox").await, all - bad.len() as i64);
    assert_eq!(store.count("select count(*) from malote.parked").await, 0);
}

fn own(n: i64) -> String {
    format!("k{n}")
}

async fn a_constraint_that_is_checked_at_commit_takes_none_along<S: TestStore>()
where
    S::Tx: Raw,
{
    batch::<S>(20, own, [(7, How::Late), (12, How::Late)].into(), [7, 12].into()).await;
}

async fn an_error_that_was_swallowed_is_its_own_members_trouble<S: TestStore>()
where
    S::Tx: Raw,
{
    let bad = if S::Tx::SERVER { [7].into() } else { [].into() };
    batch::<S>(20, own, [(7, How::Swallow)].into(), bad).await;
}

async fn what_was_left_half_done_is_not_committed_with_a_failure_after_it<S: TestStore>()
where
    S::Tx: Raw,
{
    batch::<S>(20, own, [(3, How::Half), (12, How::Reject)].into(), [3, 12].into()).await;
}

async fn what_was_left_half_done_in_a_lane_is_not_committed<S: TestStore>()
where
    S::Tx: Raw,
{
    batch::<S>(
        6,
        |n| format!("k{}", n % 2),
        [(0, How::Panic), (1, How::Panic), (2, How::Half), (3, How::Reject)].into(),
        [0, 1, 2, 3].into(),
    )
    .await;
}

async fn a_rollback_of_the_whole_is_its_own_members_trouble<S: TestStore>()
where
    S::Tx: Raw,
{
    batch::<S>(20, own, [(7, How::Whole), (12, How::Reject)].into(), [7, 12].into()).await;
}

async fn a_rollback_of_the_whole_that_was_swallowed_is_its_own_members_trouble<S: TestStore>()
where
    S::Tx: Raw,
{
    batch::<S>(20, own, [(7, How::Over), (12, How::Reject)].into(), [7, 12].into()).await;
    batch::<S>(1, own, [(0, How::Over)].into(), [0].into()).await;
}

async fn panics_in_attempts_and_refusals_leave_nothing<S: TestStore>()
where
    S::Tx: Raw,
{
    let how = (0..60)
        .map(|n| (n, [How::Panic, How::Well, How::Reject, How::Well, How::Well][n as usize * 7 % 5]))
        .collect::<BTreeMap<_, _>>();
    let bad = how.iter().filter(|(_, how)| **how != How::Well).map(|(n, _)| *n).collect();
    batch::<S>(60, own, how, bad).await;
}

async fn an_error_that_was_swallowed_in_a_lane_does_not_end_the_retrier<S: TestStore>()
where
    S::Tx: Raw,
{
    let bad: BTreeSet<i64> = if S::Tx::SERVER { [7].into() } else { [].into() };
    batch::<S>(20, own, [(7, How::Again), (9, How::Reject)].into(), &bad | &BTreeSet::from([9])).await;
}

/// What came of a call is written down wrongly: the call is not made more often than the policy says.
async fn an_error_that_was_swallowed_after_a_call_does_not_call_for_ever<S: TestStore>()
where
    S::Tx: Raw,
{
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("caller").await) else { return };
    let (log, called) = (log().await, Log::<i64>::default());
    let asker = Service::new("asker", a.clone(), log.clone()).emits::<Ping>();
    let caller =
        Service::new("caller", b.clone(), log).effect(with(called.clone(), call), forget::<S::Tx>).retry(quick());
    let running = start(Runtime::new().with(asker).with(caller)).await;
    ask(&a, [ping("k", 0)]).await;
    b.until_count("select count(*) from malote.inbox where state in ('done', 'dead')", 1).await;
    running.stop().await;
    assert_eq!(b.count("select count(*) from malote.dead").await, i64::from(S::Tx::SERVER));
    assert_eq!(called.all(), [0]);
}

async fn call(ping: Ping, _: IdempotencyKey, called: &Log<i64>) -> Outcome<Ping> {
    called.add(ping.n);
    Ok(ping)
}

async fn forget<T: Raw>(_: Ping, tx: &mut T) -> Outcome {
    drop(tx.run("INSERT INTO nowhere VALUES (1)".into()).await);
    Ok(())
}
