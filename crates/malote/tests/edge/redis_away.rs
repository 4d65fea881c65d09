//! Redis dies, freezes, forgets and lies; nothing takes effect twice and no key is locked.

use crate::bench::{Bank, Bench, Front, LONG, Setup};
use malote::{edge::Redis, postgres::Postgres, sqlite::Sqlite};
use malote_testkit::servers;
use redis::AsyncCommands;

const PAY: &str = r#"{"amount": 5}"#;

macro_rules! on_each_store_behind_redis {
    ($($test:ident),+ $(,)?) => {
        mod with_sqlite { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test::<super::Sqlite>().await })+ }
        mod with_postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test::<super::Postgres>().await })+ }
    };
}

on_each_store_behind_redis!(
    redis_may_die_and_come_back_at_any_moment,
    redis_may_forget_everything,
    redis_may_freeze,
    whatever_else_lies_in_redis_is_passed_over,
    copies_are_used_and_end_by_themselves,
);

/// A bench behind a Redis of its own.
async fn start<S: Bank>() -> Option<(Bench<S>, servers::Redis)> {
    let server = servers::Redis::start_or_skip()?;
    let redis = Redis::new(&server.url()).unwrap();
    let bench = Bench::with(Front::Redis, Setup { redis: Some(redis), ..Setup::default() }).await?;
    Some((bench, server))
}

async fn connect(server: &servers::Redis) -> redis::aio::MultiplexedConnection {
    redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Waits until there are so many copies; a copy is put beside the answer's way to the client.
async fn copies(server: &servers::Redis, many: usize) -> Vec<String> {
    let mut connection = connect(server).await;
    let waited = tokio::time::timeout(LONG, async {
        loop {
            let names: Vec<String> = connection.keys("*").await.unwrap();
            if names.len() >= many {
                return names;
            }
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("no copy is ever put")
}

async fn redis_may_die_and_come_back_at_any_moment<S: Bank>() {
    let Some((bench, mut server)) = start::<S>().await else { return };
    let before = bench.pay("before", PAY).await;
    let held = bench.pay_beside("held", r#"{"amount": 5, "hold": "before"}"#);
    bench.desk.until_waiting(1).await;
    server.kill9().unwrap();
    assert_eq!(bench.pay("before", PAY).await, before.again());
    bench.pay("before", r#"{"amount": 6}"#).await.problem(422, "another request");
    bench.pay("held", r#"{"amount": 5, "hold": "before"}"#).await.problem(409, "still running");
    bench.desk.gate.add_permits(1);
    assert_eq!(held.await.unwrap().status, 202);
    let without = bench.pay("without", PAY).await;
    assert_eq!((without.status, without.replayed), (202, false));
    server.start_again().unwrap();
    assert_eq!(bench.pay("without", PAY).await, without.again());
    // it is found again by itself
    let mut after = 0;
    let back = tokio::time::timeout(LONG, async {
        let mut connection = connect(&server).await;
        let known: usize = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
        loop {
            after += 1;
            assert_eq!(bench.pay(&format!("after{after}"), PAY).await.status, 202);
            let now: usize = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
            if now > known {
                return;
            }
        }
    });
    back.await.expect("Redis is never used again");
    let payments = bench.store.count("select count(*) from payment").await;
    assert_eq!(payments, 3 + after);
}

async fn redis_may_forget_everything<S: Bank>() {
    let Some((bench, server)) = start::<S>().await else { return };
    let first = bench.pay("k", PAY).await;
    copies(&server, 1).await;
    server.flush().unwrap();
    assert_eq!(bench.pay("k", PAY).await, first.again());
    copies(&server, 1).await;
    server.flush().unwrap();
    bench.pay("k", r#"{"amount": 6}"#).await.problem(422, "another request");
    assert_eq!(bench.store.payments("k").await, 1);
}

async fn redis_may_freeze<S: Bank>() {
    let Some((bench, server)) = start::<S>().await else { return };
    let first = bench.pay("k", PAY).await;
    copies(&server, 1).await;
    server.sigstop().unwrap();
    for key in ["k", "k", "j", "i"] {
        let reply = tokio::time::timeout(LONG / 2, bench.pay(key, PAY)).await.expect("it hangs with Redis");
        assert_eq!(reply.status, 202);
        assert_eq!(reply.replayed, key == "k");
    }
    server.sigcont().unwrap();
    assert_eq!(bench.pay("k", PAY).await, first.again());
    assert_eq!(bench.store.count("select count(*) from payment").await, 3);
}

async fn whatever_else_lies_in_redis_is_passed_over<S: Bank>() {
    let Some((bench, server)) = start::<S>().await else { return };
    let (one, two) = (bench.pay("one", PAY).await, bench.pay("two", r#"{"amount": 6}"#).await);
    let names = copies(&server, 2).await;
    let mut connection = connect(&server).await;
    let copy: Vec<u8> = connection.get(&names[0]).await.unwrap();
    let other: Vec<u8> = connection.get(&names[1]).await.unwrap();
    // another request's copy, half a copy, no copy at all
    for [first, second] in [[&other[..], &copy[..]], [&copy[..20], &other[..20]], [b"running", b""]] {
        connection.set::<_, _, ()>(&names[0], first).await.unwrap();
        connection.set::<_, _, ()>(&names[1], second).await.unwrap();
        assert_eq!(bench.pay("one", PAY).await, one.again());
        assert_eq!(bench.pay("two", r#"{"amount": 6}"#).await, two.again());
    }
    connection.del::<_, ()>(&names[0]).await.unwrap();
    connection.lpush::<_, _, ()>(&names[0], "of another type").await.unwrap();
    assert_eq!(bench.pay("one", PAY).await, one.again());
    assert_eq!(bench.store.count("select count(*) from payment").await, 2);
}

async fn copies_are_used_and_end_by_themselves<S: Bank>() {
    let Some((bench, server)) = start::<S>().await else { return };
    let first = bench.pay("k", PAY).await;
    let names = copies(&server, 1).await;
    let lives: i64 = connect(&server).await.ttl(&names[0]).await.unwrap();
    assert!((1..=600).contains(&lives), "{lives}");
    assert!(names[0].starts_with("malote:edge:") && !names[0].contains('k'), "{names:?}");
    bench.store.forget_everything().await;
    assert_eq!(bench.pay("k", PAY).await, first.again(), "the copy was not used");
}
