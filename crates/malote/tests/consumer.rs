//! What comes takes effect once, in order, and a bad message is nobody else's trouble.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Failure, Outcome, Runtime, Service, Transaction, Transport, partition, retry::Policy, with};
use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicI64, atomic::Ordering},
    time::Duration,
};

on_each_store!(
    a_question_is_answered_once,
    a_failing_message_holds_its_own_key_only,
    what_can_never_succeed_is_set_aside_and_the_rest_goes_on,
    what_a_failing_handler_wrote_is_gone,
    an_effect_is_called_with_one_key_and_recorded_once,
    what_was_not_handled_when_it_stopped_comes_again,
    what_was_under_way_when_it_was_cut_off_comes_again,
    records_that_are_no_events_are_set_aside,
);

fn quick() -> Policy {
    Policy { attempts: 1000, ..Policy::default() }.backoff(Duration::from_millis(5), Duration::from_millis(50))
}

fn asker<S: TestStore>(store: &S, log: &Arc<dyn Transport>) -> Service<S> {
    Service::new("asker", store.clone(), log.clone()).emits::<Ping>()
}

async fn a_question_is_answered_once<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("answerer").await) else { return };
    let (log, asked, heard) = (log().await, Log::default(), Log::default());
    let runtime = Runtime::new()
        .with(asker(&a, &log).on(with(heard.clone(), hear::<S::Tx>)))
        .with(Service::new("answerer", b, log).on(with(asked.clone(), answer::<S::Tx>)));
    assert_eq!(runtime.flow().check(), vec![]);
    let running = start(runtime).await;
    for n in 0..200 {
        ask(&a, [ping(&format!("k{}", n % 7), n)]).await;
    }
    let heard = heard.until(|all: &[Pong]| all.len() == 200).await;
    running.stop().await;
    assert_eq!(asked.all().len(), 200);
    in_order_per_key(heard.iter().map(|p| (p.key.as_str(), p.n)));
}

fn in_order_per_key<'a>(events: impl Iterator<Item = (&'a str, i64)>) {
    let mut last: HashMap<&str, i64> = HashMap::new();
    for (key, n) in events {
        let before = last.insert(key, n);
        assert!(before.is_none_or(|b| b < n), "{key}: {n} came after {before:?}");
    }
}

/// Fails for the first of the key "bad" until told otherwise.
async fn fragile<T: Transaction>(ping: Ping, _: &mut T, (log, mended): &(Log<Ping>, Arc<AtomicI64>)) -> Outcome {
    if ping.key == "bad" && ping.n < 2 && mended.load(Ordering::Acquire) == 0 {
        return Err(Failure::retry("not today"));
    }
    log.add(ping);
    Ok(())
}

async fn a_failing_message_holds_its_own_key_only<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("answerer").await) else { return };
    let (log, done, mended) = (log().await, Log::default(), Arc::new(AtomicI64::new(0)));
    let handler = with((done.clone(), mended.clone()), fragile::<S::Tx>);
    let fragile = Service::new("fragile", b, log.clone()).on(handler).retry(quick());
    let running = start(Runtime::new().with(asker(&a, &log)).with(fragile)).await;
    // in one transaction and one partition, so that they arrive as one batch
    let beside = |key: &&String| partition::of_key(key.as_bytes(), 4) == partition::of_key(b"bad", 4);
    let keys: Vec<String> = (0..).map(|n| format!("good{n}")).take(100).collect();
    let keys: Vec<&str> =
        std::iter::once("bad").chain(keys.iter().filter(beside).map(String::as_str).take(2)).collect();
    ask(&a, (0..30).map(|n| ping(keys[n as usize % 3], n))).await;
    done.until(|all| all.iter().filter(|p| p.key != "bad").count() == 20).await;
    assert!(done.all().iter().all(|p| p.key != "bad"), "nothing of the failing key is done yet");
    mended.store(1, Ordering::Release);
    let all = done.until(|all| all.len() == 30).await;
    running.stop().await;
    in_order_per_key(all.iter().map(|p| (p.key.as_str(), p.n)));
}

async fn picky<T: Transaction>(ping: Ping, _: &mut T, log: &Log<Ping>) -> Outcome {
    if ping.n == 3 {
        return Err(Failure::reject("three is not accepted"));
    }
    log.add(ping);
    Ok(())
}

async fn what_can_never_succeed_is_set_aside_and_the_rest_goes_on<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("picky").await) else { return };
    let (log, done) = (log().await, Log::default());
    let picky = Service::new("picky", b.clone(), log.clone()).on(with(done.clone(), picky::<S::Tx>)).retry(quick());
    let running = start(Runtime::new().with(asker(&a, &log)).with(picky)).await;
    // an envelope whose payload is no ping, among pings of the same key
    let mut envelope = sealed(&a, &ping("k", 100)).await;
    envelope.payload = "{\"key\": 5}".into();
    let outbox = malote::Outbox::new("asker", a.clone());
    let mut tx = outbox.begin().await.unwrap();
    tx.append(vec![envelope]).await.unwrap();
    tx.commit().await.unwrap();
    ask(&a, (0..6).map(|n| ping("k", n))).await;
    done.until(|all| all.iter().any(|p| p.n == 5)).await;
    running.stop().await;
    assert_eq!(
        done.all().iter().map(|p| p.n).filter(|n| *n < 100).collect::<std::collections::BTreeSet<_>>(),
        [0, 1, 2, 4, 5].into()
    );
    let dead = "select count(*) from malote.dead where \"by\" = 'consumer picky'";
    assert_eq!(b.count(dead).await, 2);
}

async fn sealed<S: TestStore>(store: &S, ping: &Ping) -> malote::Envelope {
    let outbox = malote::Outbox::new("asker", store.clone());
    let mut tx = outbox.begin().await.unwrap();
    let envelope = tx.sealer().seal(malote::Message::of(ping).unwrap()).unwrap();
    tx.rollback().await.unwrap();
    envelope
}

/// Publishes an answer of its own accord and then fails the first time.
async fn two_faced<T: Transaction>(ping: Ping, tx: &mut T, tries: &Arc<AtomicI64>) -> Outcome<Pong> {
    let early = tx.sealer().seal(malote::Message::of(&Pong { key: ping.key.clone(), n: -1 })?)?;
    tx.append(vec![early]).await?;
    match tries.fetch_add(1, Ordering::AcqRel) {
        0..=2 => Err(Failure::retry("after it has written")),
        _ => Ok(Pong { key: ping.key, n: ping.n }),
    }
}

async fn what_a_failing_handler_wrote_is_gone<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("answerer").await) else { return };
    let (log, heard) = (log().await, Log::default());
    let answerer = Service::new("answerer", b, log.clone())
        .on(with(Arc::new(AtomicI64::new(0)), two_faced::<S::Tx>))
        .retry(quick());
    let running =
        start(Runtime::new().with(asker(&a, &log).on(with(heard.clone(), hear::<S::Tx>))).with(answerer)).await;
    ask(&a, [ping("k", 7)]).await;
    heard.until(|all: &[Pong]| all.iter().any(|p| p.n == 7)).await;
    running.stop().await;
    assert_eq!(heard.all().iter().map(|p| p.n).collect::<Vec<_>>(), [-1, 7]);
}

/// Calls the outside, which fails twice for each event.
async fn call(ping: Ping, key: malote::IdempotencyKey, calls: &Log<(i64, String)>) -> Outcome<i64> {
    calls.add((ping.n, key.0));
    match calls.all().iter().filter(|(n, _)| *n == ping.n).count() {
        1 | 2 => Err(Failure::retry("no answer from outside")),
        _ => Ok(ping.n),
    }
}

async fn record<T: Transaction>(n: i64, _: &mut T) -> Outcome<Pong> {
    Ok(Pong { key: "k".into(), n })
}

async fn an_effect_is_called_with_one_key_and_recorded_once<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("caller").await) else { return };
    let (log, calls, heard) = (log().await, Log::default(), Log::default());
    let caller =
        Service::new("caller", b, log.clone()).effect(with(calls.clone(), call), record::<S::Tx>).retry(quick());
    let running = start(Runtime::new().with(asker(&a, &log).on(with(heard.clone(), hear::<S::Tx>))).with(caller)).await;
    ask(&a, (0..5).map(|n| ping("k", n))).await;
    let heard = heard.until(|all: &[Pong]| all.len() == 5).await;
    running.stop().await;
    assert_eq!(heard.iter().map(|p| p.n).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "in the order of their key");
    for n in 0..5 {
        let keys: Vec<_> = calls.all().into_iter().filter(|(m, _)| *m == n).map(|(_, k)| k).collect();
        assert_eq!(keys.len(), 3);
        assert!(keys.iter().all(|k| *k == keys[0]), "one key for all attempts: {keys:?}");
    }
}

async fn what_was_not_handled_when_it_stopped_comes_again<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("fragile").await) else { return };
    let (log, done, mended) = (log().await, Log::default(), Arc::new(AtomicI64::new(0)));
    let runtime = || {
        let handler = with((done.clone(), mended.clone()), fragile::<S::Tx>);
        let fragile = Service::new("fragile", b.clone(), log.clone()).on(handler).retry(quick());
        Runtime::new().with(asker(&a, &log)).with(fragile)
    };
    let running = start(runtime()).await;
    let beside =
        (0..).map(|n| format!("good{n}")).find(|k| partition::of_key(k.as_bytes(), 4) == partition::of_key(b"bad", 4));
    ask(&a, [ping("bad", 1), ping(&beside.unwrap(), 2)]).await;
    done.until(|all| all.len() == 1).await;
    running.stop().await;
    mended.store(1, Ordering::Release);
    let running = start(runtime()).await;
    let all = done.until(|all| all.len() == 2).await;
    running.stop().await;
    assert_eq!(all.iter().map(|p| p.n).collect::<Vec<_>>(), [2, 1]);
}

/// Begins, and comes to no end while it is held.
async fn begins<T: Transaction>(ping: Ping, _: &mut T, (begun, held): &(Log<Ping>, Arc<AtomicI64>)) -> Outcome {
    begun.add(ping);
    match held.load(Ordering::Acquire) {
        0 => Ok(()),
        _ => std::future::pending().await,
    }
}

async fn what_was_under_way_when_it_was_cut_off_comes_again<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("slow").await) else { return };
    let (log, begun, held) = (log().await, Log::default(), Arc::new(AtomicI64::new(1)));
    let runtime = || {
        let slow = Service::new("slow", b.clone(), log.clone())
            .on(with((begun.clone(), held.clone()), begins::<S::Tx>))
            .retry(quick());
        Runtime::new().grace(Duration::from_millis(100)).with(asker(&a, &log)).with(slow)
    };
    let running = start(runtime()).await;
    ask(&a, [ping("k", 1)]).await;
    begun.until(|all| all.len() == 1).await;
    running.stop().await;
    held.store(0, Ordering::Release);
    let running = start(runtime()).await;
    begun.until(|all| all.len() == 2).await;
    running.stop().await;
}

/// Sends what it is given, whatever it says of itself.
async fn records_that_are_no_events_are_set_aside<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let (log, done) = (log().await, Log::default());
    let listener = Service::new("listener", b.clone(), log.clone()).on(with(done.clone(), answer::<S::Tx>));
    let running = start(Runtime::new().with(asker(&a, &log)).with(listener.terminal::<Pong>())).await;
    let mut publisher = log.publisher().await.unwrap();
    // a source of nothing but a NUL, no source at all, and bytes that are no JSON
    let mut strange: Vec<malote::Envelope> = Vec::new();
    for n in 0..3 {
        strange.push(sealed(&a, &ping("k", n)).await);
    }
    strange[0].source = String::new();
    strange[1].kind = String::new();
    strange[2].payload = vec![0xff, 0, 0xfe].into();
    publisher.send(strange).await.unwrap().await;
    ask(&a, [ping("k", 9)]).await;
    done.until(|all| all.iter().any(|p| p.n == 9)).await;
    running.stop().await;
    assert_eq!(done.all().len(), 1);
    assert_eq!(b.count("select count(*) from malote.dead where \"by\" = 'consumer listener'").await, 3);
}
