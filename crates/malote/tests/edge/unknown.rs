//! A database that goes silent, and one that is lost in the middle of a COMMIT.

use crate::{
    bench::{Bank, Bench, Front, LONG, Setup, common::TestStore, until},
    proxy::{Break, Proxy},
};
use malote::{edge::Limits, postgres::Postgres};
use malote_testkit::servers;
use std::time::Duration;

const PAY: &str = r#"{"amount": 5}"#;
const SHORT: Duration = Duration::from_millis(300);
/// A client that waits so long waits for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bench whose wire to PostgreSQL can break, and a store on a wire of its own.
async fn start(setup: Setup) -> Option<(Bench<Postgres>, Postgres, Proxy)> {
    let url = servers::fresh_database("edge")?;
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, database) = rest.split_once('/').unwrap();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("postgres", authority));
    let proxy = Proxy::to(host.to_owned()).await;
    let beside = Postgres::connect(&url).await.unwrap();
    beside.migrate().await.unwrap();
    beside.execute(<Postgres as Bank>::TABLE).await;
    let behind = Postgres::connect(&format!("{scheme}://{user}@{}/{database}", proxy.address)).await.unwrap();
    let bench = Bench::over(behind, Front::Alone, setup).await?;
    Some((bench, beside, proxy))
}

async fn broken(when: Break) -> Option<(Bench<Postgres>, Postgres)> {
    let (bench, beside, proxy) = start(Setup::default()).await?;
    *bench.desk.before_commit.lock().unwrap() = Some(Box::new({
        let (proxy, armed) = (proxy.clone(), std::sync::atomic::AtomicBool::new(true));
        move || {
            if armed.swap(false, std::sync::atomic::Ordering::SeqCst) {
                proxy.breaks(when);
            }
        }
    }));
    Some((bench, beside))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_looked_up() {
    let Some((bench, beside)) = broken(Break::BehindCommit).await else { return };
    let first = bench.pay("k", PAY).await;
    assert_eq!((first.status, first.replayed), (202, false), "{first:?}");
    assert_eq!(bench.pay("k", PAY).await, first.again());
    assert_eq!(beside.payments("k").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_leaves_the_key_free() {
    let Some((bench, beside)) = broken(Break::BeforeCommit).await else { return };
    bench.pay("k", PAY).await.problem(503, "same key");
    assert_eq!(beside.payments("k").await, 0);
    let second = bench.pay("k", PAY).await;
    assert_eq!((second.status, second.replayed), (202, false), "{second:?}");
    assert_eq!(beside.payments("k").await, 1);
    beside.until_nobody_is_inside().await;
}

/// The handler's time is over while its commit waits for a lock: the commit decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_has_begun_is_waited_for() {
    let limits = Limits { work_time: SHORT, ..Limits::default() };
    let Some(bench) = Bench::<Postgres>::with(Front::Alone, Setup { limits, ..Setup::default() }).await else { return };
    let reply = bench.pay_beside("k", r#"{"amount": 5, "hold": "before"}"#);
    bench.desk.until_waiting(1).await;
    let mut lock = bench.store.pool().begin().await.unwrap();
    sqlx::query("select from malote.idempotency for update").execute(&mut *lock).await.unwrap();
    bench.desk.gate.add_permits(1);
    let mut over = bench.desk.over.subscribe();
    tokio::time::timeout(LONG, over.wait_for(|over| *over == 1)).await.expect("the handler goes on").unwrap();
    lock.rollback().await.unwrap();
    let reply = reply.await.unwrap();
    assert_eq!((reply.status, reply.replayed), (202, false), "{reply:?}");
    assert_eq!(bench.store.payments("k").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_answer_holds_no_client() {
    let limits = Limits { work_time: SHORT, lease: 3 * SHORT, ..Limits::default() };
    let Some((bench, beside, proxy)) = start(Setup { limits, ..Setup::default() }).await else { return };
    assert_eq!(bench.pay("before", PAY).await.status, 202);
    proxy.stalled.send_replace(true);
    let unanswered = tokio::time::timeout(PATIENCE, bench.pay("k", PAY)).await.expect("it hangs with the database");
    unanswered.problem(503, "a little later");
    proxy.stalled.send_replace(false);
    // what was on its way may have claimed the key after all; then its lease frees it
    until("the key is free", || async { bench.pay("k", PAY).await.status == 202 }).await;
    assert_eq!(beside.payments("k").await, 1);
}
