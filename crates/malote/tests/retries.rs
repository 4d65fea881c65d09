//! What fails is tried again a bounded number of times, in order, and is nobody else's trouble.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{
    Budget, Failure, Outcome, Runtime, Service, Transaction, Transport,
    inspect::{Act, Filter, Redrive},
    retry::Policy,
    retrying, with,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

on_each_store!(
    a_key_that_fails_waits_in_order_and_the_others_go_on,
    a_message_is_given_up_after_its_attempts_and_its_key_goes_on,
    a_key_can_be_held_until_a_person_decides,
    an_effect_that_fails_is_parked_with_its_key,
    what_is_put_off_is_no_attempt_and_says_what_it_waits_for,
    ac_012_a_handler_that_panics_is_a_failure,
    ac_014_an_endless_error_is_cut,
    ac_016_bad_rows_do_not_starve_fresh_ones,
    ac_047_a_redrive_after_newer_events_asks_first,
    ac_051_a_redriven_letter_comes_back_with_its_history,
    ac_052_a_handler_over_its_deadline_is_tried_again_and_given_up,
    a_budget_is_shared_by_all_processes,
    what_is_scheduled_comes_when_it_is_due_and_once,
);

/// Tried again at once, three times in all.
fn quick() -> Policy {
    Policy::default().attempts(3).backoff(Duration::from_millis(5), Duration::from_millis(40))
}

/// Asks, and hears the answers.
fn asker<S: TestStore>(store: &S, log: &Arc<dyn Transport>, bench: &Bench) -> Service<S> {
    Service::new("asker", store.clone(), log.clone()).emits::<Ping>().on(with(bench.done.clone(), hear::<S::Tx>))
}

/// The numbers that fail, and everything that is tried, in order.
#[derive(Clone, Default)]
struct Bench {
    failing: Arc<Mutex<BTreeSet<i64>>>,
    tried: Log<Ping>,
    /// What the asker has heard: what was really done.
    done: Log<Pong>,
}

impl Bench {
    fn fail(&self, numbers: impl IntoIterator<Item = i64>) {
        self.failing.lock().unwrap().extend(numbers);
    }
    fn mend(&self) {
        self.failing.lock().unwrap().clear();
    }
    fn fails(&self, ping: &Ping) -> bool {
        self.tried.add(ping.clone());
        self.failing.lock().unwrap().contains(&ping.n)
    }
    fn attempts(&self, n: i64) -> usize {
        self.tried.all().iter().filter(|ping| ping.n == n).count()
    }
}

async fn work<T: Transaction>(ping: Ping, _: &mut T, bench: &Bench) -> Outcome<Pong> {
    match bench.fails(&ping) {
        true => Err(Failure::retry(format!("{} fails", ping.n))),
        false => Ok(Pong { key: ping.key, n: ping.n }),
    }
}

/// A service `worker` at a bench, and one that asks it.
async fn at_work<S: TestStore>(policy: Policy, bench: &Bench) -> Option<(S, S, Running, Arc<dyn Transport>)> {
    let (a, b) = (S::fresh("asker").await?, S::fresh("worker").await?);
    let log = log().await;
    let worker = Service::new("worker", b.clone(), log.clone()).on(with(bench.clone(), work::<S::Tx>)).retry(policy);
    let running = start(Runtime::new().with(asker(&a, &log, bench)).with(worker)).await;
    Some((a, b, running, log))
}

fn numbers(pongs: &[Pong]) -> Vec<i64> {
    pongs.iter().map(|pong| pong.n).collect()
}

async fn a_key_that_fails_waits_in_order_and_the_others_go_on<S: TestStore>() {
    let bench = Bench::default();
    bench.fail([0]);
    let policy = Policy { attempts: 1000, ..quick() };
    let Some((a, b, running, _)) = at_work::<S>(policy, &bench).await else { return };
    let some = |numbers: std::ops::Range<i64>| {
        numbers.map(|n| ping(if n % 4 == 0 { "bad" } else { ["x", "y", "z"][n as usize % 4 - 1] }, n))
    };
    // some in the batch of the failure, some in a later one
    ask(&a, some(0..20)).await;
    b.until_count("select count(*) from malote.parked", 5).await;
    ask(&a, some(20..40)).await;
    bench.done.until(|all| all.len() == 30).await;
    assert!(bench.done.all().iter().all(|pong| pong.key != "bad"), "nothing of the failing key is done yet");
    assert_eq!(b.count("select count(*) from malote.parked").await, 10);
    assert_eq!(b.count("select count(*) from malote.lane").await, 1);
    assert_eq!(b.count("select count(*) from malote.inbox where state = 'parked'").await, 10);
    bench.mend();
    let all = bench.done.until(|all| all.len() == 40).await;
    let of_bad: Vec<i64> = all.iter().filter(|pong| pong.key == "bad").map(|pong| pong.n).collect();
    assert_eq!(of_bad, (0..10).map(|n| 4 * n).collect::<Vec<_>>());
    b.until_count("select count(*) from malote.lane", 0).await;
    assert_eq!(b.count("select count(*) from malote.inbox where state = 'done'").await, 40);
    assert_eq!(b.count("select count(*) from malote.dead").await, 0);
    running.stop().await;
}

async fn a_message_is_given_up_after_its_attempts_and_its_key_goes_on<S: TestStore>() {
    let bench = Bench::default();
    bench.fail([1]);
    let Some((a, b, running, _)) = at_work::<S>(quick(), &bench).await else { return };
    ask(&a, (0..4).map(|n| ping("k", n))).await;
    let all = bench.done.until(|all| all.len() == 3).await;
    assert_eq!(numbers(&all), [0, 2, 3]);
    // together, alone, and twice from its lane
    assert!((3..=4).contains(&bench.attempts(1)), "{}", bench.attempts(1));
    let dead = b.dead(&Filter::default(), 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    let letter = &dead[0];
    assert_eq!((letter.attempts, &*letter.by, letter.key.as_deref()), (3, "consumer worker", Some("k")));
    assert_eq!(letter.class, "transient");
    assert!(letter.reason.contains("1 fails") && letter.correlation_id.is_some() && letter.first_at <= letter.last_at);
    assert_eq!(letter.history.entries().iter().map(|entry| entry.attempt).collect::<Vec<_>>(), [1, 2, 3].map(Some));
    running.stop().await;
}

async fn a_key_can_be_held_until_a_person_decides<S: TestStore>() {
    let bench = Bench::default();
    bench.fail([0]);
    let Some((a, b, running, _)) = at_work::<S>(quick().hold(), &bench).await else { return };
    ask(&a, (0..3).map(|n| ping("k", n)).chain([ping("other", 9)])).await;
    bench.done.until(|all| all.len() == 1).await;
    b.until_count("select count(*) from malote.dead", 1).await;
    assert_eq!(b.count("select count(*) from malote.parked").await, 2);
    bench.mend();
    let act = act("it is mended");
    let done = b.redrive(&act, &Filter::default(), Redrive { dry: false, per_second: 0, although_newer: false }).await;
    assert_eq!(done.unwrap().done, 1);
    let all = bench.done.until(|all| all.len() == 4).await;
    running.stop().await;
    assert_eq!(numbers(&all).iter().filter(|n| **n != 9).collect::<Vec<_>>(), [&0, &1, &2], "the held one first");
}

fn act(reason: &str) -> Act {
    Act { actor: "tester".into(), reason: reason.into() }
}

async fn call(ping: Ping, _: malote::IdempotencyKey, bench: &Bench) -> Outcome<Ping> {
    if bench.fails(&ping) {
        return Err(Failure::retry("nobody answers"));
    }
    Ok(ping)
}

async fn keep<T: Transaction>(ping: Ping, _: &mut T) -> Outcome<Pong> {
    Ok(Pong { key: ping.key, n: ping.n })
}

async fn an_effect_that_fails_is_parked_with_its_key<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("caller").await) else { return };
    let (log, bench) = (log().await, Bench::default());
    bench.fail([0, 7]);
    let policy = Policy { attempts: 1000, ..quick() };
    let caller = Service::new("caller", b.clone(), log.clone())
        .effect(retrying(policy, with(bench.clone(), call)), keep::<S::Tx>);
    let running = start(Runtime::new().with(asker(&a, &log, &bench)).with(caller)).await;
    ask(&a, (0..20).map(|n| ping(["k", "l"][n as usize % 2], n))).await;
    bench.done.until(|all| all.len() == 3).await;
    b.until_count("select count(*) from malote.parked", 17).await;
    bench.mend();
    let heard = bench.done.until(|all| all.len() == 20).await;
    running.stop().await;
    for key in ["k", "l"] {
        let mine: Vec<i64> = heard.iter().filter(|pong| pong.key == key).map(|pong| pong.n).collect();
        assert!(mine.is_sorted() && mine.len() == 10, "{key}: {mine:?}");
    }
}

/// Puts off the numbers that fail.
async fn puts_off<T: Transaction>(ping: Ping, tx: &mut T, bench: &Bench) -> Outcome<Pong> {
    match work(ping, tx, bench).await {
        Err(failure) => Err(Failure::defer(Duration::from_millis(5), failure.to_string())),
        done => done,
    }
}

async fn calls_later(ping: Ping, key: malote::IdempotencyKey, bench: &Bench) -> Outcome<Ping> {
    call(ping, key, bench).await.map_err(|failure| Failure::defer(Duration::from_millis(5), failure.to_string()))
}

async fn what_is_put_off_is_no_attempt_and_says_what_it_waits_for<S: TestStore>() {
    let (Some(a), Some(b), Some(c)) = (S::fresh("asker").await, S::fresh("worker").await, S::fresh("caller").await)
    else {
        return;
    };
    let (log, working, calling) = (log().await, Bench::default(), Bench::default());
    working.fail([1]);
    calling.fail([1]);
    let worker =
        Service::new("worker", b.clone(), log.clone()).on(with(working.clone(), puts_off::<S::Tx>)).retry(quick());
    let caller = Service::new("caller", c.clone(), log.clone())
        .effect(retrying(quick(), with(calling.clone(), calls_later)), keep::<S::Tx>);
    let running = start(Runtime::new().with(asker(&a, &log, &working)).with(worker).with(caller)).await;
    ask(&a, [ping("k", 1), ping("k", 2)]).await;
    for (store, bench, why) in [(&b, &working, "1 fails"), (&c, &calling, "nobody answers")] {
        // far more often than its policy allows attempts
        bench.tried.until(|all| all.iter().filter(|ping| ping.n == 1).count() >= 9).await;
        let first = store.parked(&Filter::default(), 10).await.unwrap().remove(0);
        // one that runs right now is counted until it is put off, too
        assert!(first.error.as_deref() == Some(why) && first.attempts <= 1, "{first:?}");
        assert_eq!(store.count("select count(*) from malote.dead").await, 0);
        bench.mend();
    }
    let all = working.done.until(|all| all.len() == 4).await;
    assert_eq!(numbers(&all).iter().filter(|n| **n == 1).count(), 2);
    running.stop().await;
}

async fn panics<T: Transaction>(ping: Ping, _: &mut T, bench: &Bench) -> Outcome<Pong> {
    assert!(!bench.fails(&ping), "the handler trips over {}", ping.n);
    Ok(Pong { key: ping.key, n: ping.n })
}

async fn ac_012_a_handler_that_panics_is_a_failure<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("worker").await) else { return };
    let (log, bench) = (log().await, Bench::default());
    bench.fail([3]);
    let worker = Service::new("worker", b.clone(), log.clone()).on(with(bench.clone(), panics::<S::Tx>)).retry(quick());
    let running = start(Runtime::new().with(asker(&a, &log, &bench)).with(worker)).await;
    ask(&a, (0..6).map(|n| ping("k", n))).await;
    let all = bench.done.until(|all| all.len() == 5).await;
    running.stop().await;
    assert_eq!(numbers(&all), [0, 1, 2, 4, 5]);
    let dead = b.dead(&Filter::default(), 10).await.unwrap();
    assert!(dead.len() == 1 && dead[0].reason.contains("the handler trips over 3"), "{dead:?}");
}

async fn talks<T: Transaction>(ping: Ping, _: &mut T, bench: &Bench) -> Outcome<Pong> {
    match bench.fails(&ping) {
        true => Err(Failure::reject(format!("a{}", "🦀".repeat(512 << 10)))),
        false => Ok(Pong { key: ping.key, n: ping.n }),
    }
}

async fn ac_014_an_endless_error_is_cut<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("worker").await) else { return };
    let (log, bench) = (log().await, Bench::default());
    bench.fail([0]);
    let worker = Service::new("worker", b.clone(), log.clone()).on(with(bench.clone(), talks::<S::Tx>)).retry(quick());
    let running = start(Runtime::new().with(asker(&a, &log, &bench)).with(worker)).await;
    ask(&a, (0..2).map(|n| ping("k", n))).await;
    bench.done.until(|all| all.len() == 1).await;
    running.stop().await;
    let dead = b.dead(&Filter::default(), 10).await.unwrap();
    assert!(dead[0].reason.starts_with("a🦀") && dead[0].reason.len() <= 2048, "{} bytes", dead[0].reason.len());
}

async fn ac_016_bad_rows_do_not_starve_fresh_ones<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("worker").await) else { return };
    let (log, bench) = (log().await, Bench::default());
    bench.fail(0..300);
    let policy = Policy::default().attempts(10_000).backoff(Duration::from_millis(1), Duration::from_millis(50));
    let worker = Service::new("worker", b.clone(), log.clone())
        .on(with(bench.clone(), work::<S::Tx>))
        .batch(100)
        .retry(policy)
        .retry_budget(Budget { per_second: 1e6, burst: 1e6 });
    let running = start(Runtime::new().with(asker(&a, &log, &bench)).with(worker)).await;
    ask(&a, (0..300).map(|n| ping(&format!("bad{n}"), n))).await;
    b.until_count("select count(*) from malote.parked", 300).await;
    ask(&a, (300..1300).map(|n| ping(&format!("good{n}"), n))).await;
    bench.done.until(|all| all.len() == 1000).await;
    // and among the bad ones, each has its turn
    bench
        .tried
        .until(|all| {
            let mut turns: BTreeMap<i64, u32> = BTreeMap::new();
            all.iter().filter(|ping| ping.n < 300).for_each(|ping| *turns.entry(ping.n).or_default() += 1);
            turns.len() == 300 && turns.values().all(|n| *n > 2)
        })
        .await;
    running.stop().await;
}

async fn ac_047_a_redrive_after_newer_events_asks_first<S: TestStore>() {
    let bench = Bench::default();
    bench.fail([2]);
    let Some((a, b, running, _)) = at_work::<S>(quick(), &bench).await else { return };
    ask(&a, [ping("k", 1), ping("k", 2)]).await;
    b.until_count("select count(*) from malote.dead", 1).await;
    ask(&a, [ping("k", 3)]).await;
    bench.done.until(|all| all.len() == 2).await;
    bench.mend();
    let how = Redrive { dry: false, per_second: 0, although_newer: false };
    let stale = b.redrive(&act("try it"), &Filter::default(), how).await.unwrap();
    assert_eq!((stale.done, stale.refused.len()), (0, 1));
    assert!(stale.refused[0].stale, "{stale:?}");
    assert_eq!(b.count("select count(*) from malote.dead").await, 1);
    let refused = &b.audit(10).await.unwrap()[0];
    assert!(refused.act == "redrive" && refused.outcome.contains("stale"), "{refused:?}");
    let done = b.redrive(&act("I know"), &Filter::default(), Redrive { although_newer: true, ..how }).await.unwrap();
    assert_eq!(done.done, 1);
    let all = bench.done.until(|all| all.len() == 3).await;
    running.stop().await;
    assert_eq!(numbers(&all), [1, 3, 2]);
}

async fn ac_051_a_redriven_letter_comes_back_with_its_history<S: TestStore>() {
    let bench = Bench::default();
    bench.fail([5]);
    let Some((a, b, running, _)) = at_work::<S>(quick(), &bench).await else { return };
    ask(&a, [ping("k", 5)]).await;
    let how = Redrive { dry: false, per_second: 0, although_newer: false };
    for round in 1..=2 {
        b.until_count("select count(*) from malote.dead", 1).await;
        let dead = b.dead(&Filter::default(), 10).await.unwrap();
        let failures = dead[0].history.entries().iter().filter(|entry| entry.attempt.is_some()).count();
        assert_eq!(failures, 3 * round, "{:?}", dead[0].history);
        if round == 2 {
            bench.mend();
        }
        assert_eq!(b.redrive(&act("again"), &Filter::default(), how).await.unwrap().done, 1);
        if round == 1 {
            b.until_count("select count(*) from malote.inbox where state = 'dead'", 1).await;
        }
    }
    bench.done.until(|all| all.len() == 1).await;
    b.until_count("select count(*) from malote.inbox where state = 'done'", 1).await;
    running.stop().await;
    assert_eq!(bench.done.all().len(), 1);
    assert_eq!(b.count("select count(*) from malote.dead").await, 0);
    assert_eq!(b.count("select count(*) from malote.audit where act = 'redrive'").await, 2);
}

async fn dawdles<T: Transaction>(ping: Ping, _: &mut T, bench: &Bench) -> Outcome<Pong> {
    if bench.fails(&ping) {
        std::future::pending::<()>().await;
    }
    Ok(Pong { key: ping.key, n: ping.n })
}

async fn ac_052_a_handler_over_its_deadline_is_tried_again_and_given_up<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("worker").await) else { return };
    let (log, bench) = (log().await, Bench::default());
    bench.fail([1]);
    let policy = quick().deadline(Duration::from_millis(100));
    let worker = Service::new("worker", b.clone(), log.clone()).on(with(bench.clone(), dawdles::<S::Tx>)).retry(policy);
    let running = start(Runtime::new().with(asker(&a, &log, &bench)).with(worker)).await;
    ask(&a, (0..3).map(|n| ping("k", n))).await;
    let all = bench.done.until(|all| all.len() == 2).await;
    running.stop().await;
    assert_eq!(numbers(&all), [0, 2]);
    let dead = b.dead(&Filter::default(), 10).await.unwrap();
    assert!(dead[0].reason.contains("not done within 100ms") && dead[0].attempts == 3, "{dead:?}");
}

async fn a_budget_is_shared_by_all_processes<S: TestStore>() {
    let (Some(a), Some(b)) = (S::fresh("asker").await, S::fresh("worker").await) else { return };
    let (log, bench) = (log().await, Bench::default());
    bench.fail(0..200);
    let policy = Policy::default().attempts(10_000).backoff(Duration::from_millis(1), Duration::from_millis(1));
    let (rate, burst) = (50.0, 20.0);
    let worker = || {
        Service::new("worker", b.clone(), log.clone())
            .on(with(bench.clone(), work::<S::Tx>))
            .retry(policy)
            .retry_budget(Budget { per_second: rate, burst })
    };
    // four of them, as four processes would be
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(start(Runtime::new().with(worker())).await);
    }
    let running = start(Runtime::new().with(asker(&a, &log, &bench))).await;
    ask(&a, (0..200).map(|n| ping(&format!("k{n}"), n))).await;
    b.until_count("select count(*) from malote.parked", 200).await;
    let (began, before) = (Instant::now(), bench.tried.all().len());
    bench.tried.until(|all| all.len() > before + 400).await;
    let (made, within) = ((bench.tried.all().len() - before) as f64, began.elapsed().as_secs_f64());
    for worker in workers {
        worker.stop().await;
    }
    running.stop().await;
    // what each worker had claimed when the count began comes on top
    let claimed = 4.0 * 16.0;
    assert!(made <= claimed + burst + rate * (within + 0.5), "{made} attempts in {within:.1} s");
}

async fn what_is_scheduled_comes_when_it_is_due_and_once<S: TestStore>() {
    let bench = Bench::default();
    let Some((a, _, running, _)) = at_work::<S>(quick(), &bench).await else { return };
    let outbox = malote::Outbox::new("asker", a.clone());
    let mut tx = outbox.begin().await.unwrap();
    let mut ids = Vec::new();
    for (n, after) in [(0, 600), (1, 0), (2, 300), (3, 300)] {
        let envelope = tx.sealer().seal(malote::Message::of(&ping("k", n)).unwrap()).unwrap();
        ids.push(envelope.id);
        tx.schedule(Duration::from_millis(after).into(), envelope).await.unwrap();
    }
    tx.commit().await.unwrap();
    let began = Instant::now();
    let mut tx = outbox.begin().await.unwrap();
    assert!(tx.cancel(ids[3]).await.unwrap());
    tx.commit().await.unwrap();
    let first = bench.done.until(|all| !all.is_empty()).await;
    assert_eq!(first[0].n, 1);
    bench.done.until(|all| all.len() >= 2).await;
    assert!(began.elapsed() >= Duration::from_millis(290));
    let all = bench.done.until(|all| all.len() >= 3).await;
    assert!(began.elapsed() >= Duration::from_millis(590));
    let mut tx = outbox.begin().await.unwrap();
    assert!(!tx.cancel(ids[0]).await.unwrap(), "it has been sent");
    tx.rollback().await.unwrap();
    running.stop().await;
    assert_eq!(numbers(&all), [1, 2, 0]);
    assert_eq!(a.count("select count(*) from malote.scheduled").await, 0);
}
