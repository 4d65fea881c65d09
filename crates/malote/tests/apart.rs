//! Of a batch in which many fail, in any order, each one is dealt with once, and leaves what it is to leave.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Failure, Message, Outcome, Runtime, Service, Transaction, inspect::Filter, with};
use std::collections::{BTreeMap, HashSet};

on_each_store!(what_fails_takes_none_of_its_batch_along);

const KEYS: i64 = 40;
const EACH: i64 = 5;

/// Writes something down, and then refuses those that are to fail.
async fn note<T: Transaction>(ping: Ping, tx: &mut T, bad: &HashSet<i64>) -> Outcome<Pong> {
    let noted = tx.sealer().seal(Message::of(&Pong { key: ping.key.clone(), n: 1_000 + ping.n })?)?;
    tx.append(vec![noted]).await?;
    match bad.contains(&ping.n) {
        true => Err(Failure::reject("one of the bad ones")),
        false => Ok(Pong { key: ping.key, n: ping.n }),
    }
}

/// Handles one batch, of which `bad` fail; the rest is there once, in each key's order.
async fn batch<S: TestStore>(store: S, bad: HashSet<i64>) {
    let (log, all) = (log().await, KEYS * EACH);
    log.ensure(&["ping.v1".into(), "pong.v1".into()]).await.unwrap();
    let mut tx = malote::Outbox::new("maker", store.clone()).begin().await.unwrap();
    let sealed = (0..all).map(|n| ping(&format!("k{}", n % KEYS), n));
    let sealed = sealed.map(|ping| tx.sealer().seal(Message::of(&ping).unwrap()).unwrap()).collect();
    tx.rollback().await.unwrap();
    log.publisher().await.unwrap().send(sealed).await.unwrap().await;

    let worker = Service::new("worker", store.clone(), log.clone())
        .on(with(bad.clone(), note::<S::Tx>))
        .terminal::<Pong>()
        .batch(all.try_into().unwrap());
    let running = start(Runtime::new().with(worker)).await;
    let mut subscription = log.subscribe("reader", &["pong.v1".into()]).await.unwrap();
    let mut heard: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    while heard.values().map(Vec::len).sum::<usize>() < 2 * (all.cast_unsigned() as usize - bad.len()) {
        for delivery in subscription.next(1_000).await.unwrap() {
            let pong: Pong = serde_json::from_slice(&delivery.record.payload.unwrap()).unwrap();
            heard.entry(pong.key).or_default().push(pong.n);
        }
    }
    subscription.close().await;
    store.until_count("select count(*) from malote.dead", bad.len() as i64).await;
    running.stop().await;
    for (key, heard) in heard {
        let of_key = (0..all).filter(|n| format!("k{}", n % KEYS) == key && !bad.contains(n));
        let (answers, notes): (Vec<i64>, Vec<i64>) = heard.iter().partition(|n| **n < 1_000);
        assert_eq!(answers, of_key.clone().collect::<Vec<_>>(), "{key} with {bad:?}");
        assert_eq!(notes, of_key.map(|n| 1_000 + n).collect::<Vec<_>>(), "{key} with {bad:?}");
    }
    assert_eq!(store.count("select count(*) from malote.outbox").await, 2 * (all - bad.len() as i64), "{bad:?}");
    let dead = store.dead(&Filter::default(), 1_000).await.unwrap();
    assert_eq!(dead.len(), bad.len());
    assert!(dead.iter().all(|letter| letter.attempts == 1), "{dead:?}");
}

async fn what_fails_takes_none_of_its_batch_along<S: TestStore>() {
    let all = KEYS * EACH;
    let few = (0..all).filter(|n| n % 37 == 5).collect();
    let (half, most) = ((0..all).filter(|n| n % 2 == 1).collect(), (0..all).filter(|n| n % 23 != 0).collect());
    for bad in [few, half, most, (0..all).collect()] {
        let Some(store) = S::fresh("worker").await else { return };
        batch(store, bad).await;
    }
}
