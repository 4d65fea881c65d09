//! What is committed is published, in order, whatever the transport does to it on the way.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Message, Outbox, Runtime, Service, State, Transaction, Transport, retry::Backoff, with};
use malote_testkit::faults::{Fate, Faulty};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

on_each_store!(
    ac_003_a_refused_record_is_set_aside_and_the_rest_keeps_its_order,
    many_refusals_do_not_hold_the_relay_up,
    ac_004_the_next_event_of_a_key_never_overtakes_one_that_waits,
    ac_035_an_unknown_result_is_sent_again_and_takes_effect_once,
    ac_040_a_row_counts_by_its_own_report_only,
    ac_049_one_id_from_the_row_to_the_last_attempt,
    a_stand_by_takes_over_from_a_relay_that_stops,
    ac_002_positions_that_went_back_stop_the_relay_loudly,
);

type Seen = Arc<Mutex<HashMap<i64, Vec<malote::Envelope>>>>;

/// Which ping it is; answers are nobody's concern here.
fn number(envelope: &malote::Envelope) -> i64 {
    if envelope.kind == "ping.v1" { envelope.open::<Ping>().map_or(-1, |p| p.n) } else { -1 }
}

/// Decides by the event's number and by how often it was sent before; remembers what was sent.
fn faulty(
    inner: Arc<dyn Transport>,
    decide: impl Fn(i64, usize) -> Fate + Send + Sync + 'static,
) -> (Arc<dyn Transport>, Seen) {
    let seen = Seen::default();
    let sent = seen.clone();
    let transport = Faulty::new(inner, move |envelope| {
        let mut sent = sent.lock().unwrap();
        let times = sent.entry(number(envelope)).or_default();
        times.push(envelope.clone());
        decide(number(envelope), times.len())
    });
    (Arc::new(transport), seen)
}

fn quick() -> Backoff {
    Backoff { first: Duration::from_millis(5), most: Duration::from_millis(50) }
}

async fn publish<S: TestStore>(store: &S, pings: impl IntoIterator<Item = Ping>) {
    let mut tx = Outbox::new("asker", store.clone()).begin().await.unwrap();
    let sealed = pings.into_iter().map(|p| tx.sealer().seal(Message::of(&p).unwrap()).unwrap()).collect();
    tx.append(sealed).await.unwrap();
    tx.commit().await.unwrap();
}

/// An asker over `transport`, and a listener that notes what takes effect; returns both at work.
async fn run<S: TestStore>(asker: &S, listener: &S, transport: &Arc<dyn Transport>, heard: &Log<Ping>) -> Running {
    let asker = Service::new("asker", asker.clone(), transport.clone()).emits::<Ping>().backoff(quick());
    let listener =
        Service::new("listener", listener.clone(), transport.clone()).on(with(heard.clone(), answer::<S::Tx>));
    start(Runtime::new().with(asker).with(listener.terminal::<Pong>())).await
}

fn numbers(heard: &[Ping]) -> Vec<i64> {
    heard.iter().map(|p| p.n).collect()
}

async fn ac_003_a_refused_record_is_set_aside_and_the_rest_keeps_its_order<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let refuse = |n, _| if n == 1 { Fate::Refuse("too large".into()) } else { Fate::Pass };
    let ((transport, seen), heard) = (faulty(log().await, refuse), Log::default());
    let running = run(&a, &b, &transport, &heard).await;
    publish(&a, (1..=3).map(|n| ping("k", n))).await;
    publish(&a, [ping("k", 4)]).await;
    let heard = heard.until(|all| all.iter().any(|p| p.n == 4)).await;
    running.stop().await;
    assert_eq!(numbers(&heard), [2, 3, 4]);
    assert_eq!(seen.lock().unwrap()[&1].len(), 1, "what is refused for good is not sent again");
    assert_eq!(a.count("select count(*) from malote.dead where \"by\" = 'relay asker'").await, 1);
}

async fn many_refusals_do_not_hold_the_relay_up<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let refuse = |n: i64, _| if n % 2 == 0 { Fate::Refuse("too large".into()) } else { Fate::Pass };
    let ((transport, _), heard) = (faulty(log().await, refuse), Log::default());
    let running = run(&a, &b, &transport, &heard).await;
    // a transaction each: setting aside, saving and publishing meet in the store
    for n in 0..300 {
        publish(&a, [ping(&format!("k{}", n % 3), n)]).await;
    }
    heard.until(|all| all.len() == 150).await;
    running.stop().await;
    assert_eq!(a.count("select count(*) from malote.dead where \"by\" = 'relay asker'").await, 150);
}

async fn ac_004_the_next_event_of_a_key_never_overtakes_one_that_waits<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    // the first sending of 1 fails; 2 is due at once
    let fail = |n, times| if n == 1 && times < 4 { Fate::Vanish } else { Fate::Pass };
    let ((transport, _), heard) = (faulty(log().await, fail), Log::default());
    let running = run(&a, &b, &transport, &heard).await;
    publish(&a, [ping("k", 1)]).await;
    publish(&a, [ping("k", 2)]).await;
    let heard = heard.until(|all| all.len() == 2).await;
    running.stop().await;
    assert_eq!(numbers(&heard), [1, 2]);
}

async fn ac_035_an_unknown_result_is_sent_again_and_takes_effect_once<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let lose = |n: i64, times| if n % 50 == 7 && times == 1 { Fate::LoseAnswer } else { Fate::Pass };
    let ((transport, seen), heard) = (faulty(log().await, lose), Log::default());
    let running = run(&a, &b, &transport, &heard).await;
    for first in (0..1000).step_by(20) {
        publish(&a, (first..first + 20).map(|n| ping(&format!("k{}", n % 5), n))).await;
    }
    let again = |n: &i64| seen.lock().unwrap().get(n).is_some_and(|times| times.len() >= 2);
    eventually("what was in doubt is sent again", || (7..1000).step_by(50).all(|n| again(&n))).await;
    let heard = heard.until(|all| all.len() >= 1000).await;
    running.stop().await;
    let once: HashSet<i64> = heard.iter().map(|p| p.n).collect();
    assert_eq!((heard.len(), once.len()), (1000, 1000), "each in effect once");
    for key in 0..5 {
        let of_key: Vec<i64> = heard.iter().map(|p| p.n).filter(|n| n % 5 == key).collect();
        assert!(of_key.is_sorted(), "order of key {key}");
    }
}

async fn ac_040_a_row_counts_by_its_own_report_only<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let vanish = |n: i64, times| if n % 100 == 50 && times <= 2 { Fate::Vanish } else { Fate::Pass };
    let ((transport, _), heard) = (faulty(log().await, vanish), Log::default());
    let running = run(&a, &b, &transport, &heard).await;
    publish(&a, (0..500).map(|n| ping(&format!("k{}", n % 5), n))).await;
    let heard = heard.until(|all| all.len() == 500).await;
    running.stop().await;
    assert_eq!(heard.iter().map(|p| p.n).collect::<HashSet<_>>().len(), 500);
}

async fn ac_049_one_id_from_the_row_to_the_last_attempt<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let lose = |_, times| if times < 3 { Fate::LoseAnswer } else { Fate::Pass };
    let ((transport, seen), heard) = (faulty(log().await, lose), Log::default());
    let running = run(&a, &b, &transport, &heard).await;
    publish(&a, [ping("k", 1)]).await;
    heard.until(|all| all.len() == 1).await;
    eventually("it is sent again", || seen.lock().unwrap()[&1].len() >= 3).await;
    running.stop().await;
    let seen = seen.lock().unwrap();
    assert!(seen[&1].iter().all(|e| e.id == seen[&1][0].id && e.time == seen[&1][0].time));
}

async fn a_stand_by_takes_over_from_a_relay_that_stops<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let (transport, heard) = (log().await, Log::default());
    let first = run(&a, &b, &transport, &heard).await;
    let second = run(&a, &b, &transport, &heard).await;
    publish(&a, (0..10).map(|n| ping("k", n))).await;
    heard.until(|all| all.len() == 10).await;
    first.stop().await;
    publish(&a, (10..20).map(|n| ping("k", n))).await;
    let heard = heard.until(|all| all.len() == 20).await;
    second.stop().await;
    assert_eq!(numbers(&heard), (0..20).collect::<Vec<_>>());
}

async fn ac_002_positions_that_went_back_stop_the_relay_loudly<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("listener").await) else { return };
    let (transport, heard) = (log().await, Log::default());
    let running = run(&a, &b, &transport, &heard).await;
    publish(&a, [ping("k", 1)]).await;
    heard.until(|all| all.len() == 1).await;
    running.stop().await;
    // as on a copy whose sequence was not copied
    a.execute("update malote.relay set high = 1000").await;
    let runtime = Runtime::new().with(Service::new("asker", a.clone(), transport).emits::<Ping>().backoff(quick()));
    let health = runtime.health();
    let complains = async {
        let failing = || health.parts().values().any(|state| matches!(state, State::Failing(_)));
        eventually("the relay complains", failing).await;
        health.parts()
    };
    let (told, parts) = tokio::sync::oneshot::channel();
    let stop = async { drop(told.send(complains.await)) };
    runtime.run_until(stop).await.unwrap();
    let why = format!("{:?}", parts.await.unwrap());
    assert!(why.contains("the positions have gone back") && why.contains("set high = 0"), "{why}");
}
