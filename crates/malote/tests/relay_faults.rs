//! The relay when rows, destinations, the broker or the process itself are at fault.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Envelope, Message, Outbox, Runtime, Service, Transaction, Transport, Unfit, retry::Backoff, with};
use malote_core::MAX_ENVELOPE_BYTES;
use malote_testkit::faults::{Fate, Faulty};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinHandle};

on_each_store!(
    ac_010_an_unreadable_row_is_set_aside_and_holds_up_no_key,
    ac_011_a_start_sends_nothing_again_that_was_settled,
    ac_013_a_stop_at_any_moment_sends_nothing_twice,
    ac_013_a_transport_that_never_answers_does_not_keep_the_lease,
    ac_016_rows_that_always_fail_do_not_starve_good_ones,
    ac_017_a_row_that_is_too_large_is_refused_once,
    ac_020_a_topic_that_never_answers_holds_up_no_other,
    ac_021_a_batch_that_gets_nowhere_always_waits,
    what_is_sent_again_keeps_to_its_budget_whatever_the_number_of_replicas,
    ac_027_a_relay_that_dies_at_any_moment_passes_over_nothing,
    ac_048_a_duplicate_counts_as_published,
);

const QUICK: Backoff = Backoff { first: Duration::from_millis(5), most: Duration::from_millis(50) };
const DEAD: &str = "select count(*) from malote.dead where \"by\" = 'relay asker'";

fn number(envelope: &Envelope) -> i64 {
    match envelope.kind.as_str() {
        "ping.v1" => envelope.open::<Ping>().map_or(-1, |p| p.n),
        _ => envelope.open::<Pong>().map_or(-1, |p| p.n),
    }
}

/// What was handed over, in order.
type Seen = Arc<Mutex<Vec<(String, i64, Instant)>>>;

fn faulty(
    inner: Arc<dyn Transport>,
    decide: impl Fn(&Envelope) -> Fate + Send + Sync + 'static,
) -> (Arc<Faulty>, Seen) {
    let seen = Seen::default();
    let sent = seen.clone();
    let transport = Faulty::new(inner, move |envelope| {
        sent.lock().unwrap().push((envelope.kind.clone(), number(envelope), Instant::now()));
        decide(envelope)
    });
    (Arc::new(transport), seen)
}

/// So that rows are under way at any moment.
fn takes_its_time(_: &Envelope) -> Fate {
    std::thread::sleep(Duration::from_micros(500));
    Fate::Pass
}

/// How often each row was handed over.
fn times(seen: &Seen) -> HashMap<i64, usize> {
    seen.lock().unwrap().iter().fold(HashMap::new(), |mut times, (_, n, _)| {
        *times.entry(*n).or_default() += 1;
        times
    })
}

/// A service that only speaks.
fn asker<S: TestStore>(store: &S, transport: &Arc<Faulty>) -> Service<S> {
    let transport: Arc<dyn Transport> = transport.clone();
    Service::new("asker", store.clone(), transport).emits::<Ping>().emits::<Pong>().backoff(QUICK)
}

async fn listener<S: TestStore>(transport: &Arc<Faulty>, heard: &Log<Ping>) -> Option<Running> {
    let transport: Arc<dyn Transport> = transport.clone();
    let listener =
        Service::new("listener", S::fresh("listener").await?, transport).on(with(heard.clone(), note::<S::Tx>));
    Some(start(Runtime::new().with(listener)).await)
}

async fn note<T: Transaction>(ping: Ping, _: &mut T, log: &Log<Ping>) -> malote::Outcome {
    log.add(ping);
    Ok(())
}

/// A runtime that is not waited for.
struct Brief(oneshot::Sender<()>, JoinHandle<()>);

impl Brief {
    fn start<S: TestStore>(service: Service<S>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        // nothing is to be cut off, however slow the machine
        let runtime = Runtime::new().with(service).grace(LONG);
        Self(stop, tokio::spawn(async move { runtime.run_until(stopped).await.unwrap() }))
    }
    async fn stop(self) {
        drop(self.0);
        self.1.await.unwrap();
    }
}

/// A runtime that can be ended as a process is killed: with nothing finished and nothing handed back.
fn start_to_kill<S: TestStore>(service: Service<S>) -> JoinHandle<()> {
    let runtime = Runtime::new().with(service);
    tokio::spawn(async move { runtime.run_until(std::future::pending::<()>()).await.unwrap() })
}

async fn ac_010_an_unreadable_row_is_set_aside_and_holds_up_no_key<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let ((transport, _), heard) = (faulty(log().await, |_| Fate::Pass), Log::default());
    ask(&a, (1..=1000).map(|n| ping(&format!("k{n}"), n))).await;
    a.execute("update malote.outbox set topic = 'no such topic!' where seq = 500").await;
    let Some(listening) = listener::<S>(&transport, &heard).await else { return };
    let asking = start(Runtime::new().with(asker(&a, &transport))).await;
    let heard = heard.until(|all| all.len() == 999).await;
    a.until_count(DEAD, 1).await;
    asking.stop().await;
    listening.stop().await;
    assert!(heard.iter().all(|p| p.n != 500));
}

async fn ac_011_a_start_sends_nothing_again_that_was_settled<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let (transport, seen) = faulty(log().await, |_| Fate::Pass);
    let service = |lease| asker(&a, &transport).lease(Duration::from_secs(lease));
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(Brief::start(service(600)));
    }
    let mut n = 0;
    for _ in 0..10 {
        for _ in 0..3 {
            ask(&a, (n..n + 20).map(|n| ping(&format!("k{}", n % 7), n))).await;
            n += 20;
            running.remove(0).stop().await;
            running.push(Brief::start(service(600)));
        }
    }
    eventually("all is sent", || times(&seen).len() as i64 == n).await;
    for one in running {
        one.stop().await;
    }
    let again: Vec<_> = times(&seen).into_iter().filter(|(_, times)| *times > 1).collect();
    assert_eq!(again, [], "after clean stops");
    // a death: what was settled by then is not sent again
    let killed = start_to_kill(service(2));
    a.until_count("select count(*) from malote.relay where name = 'asker' and high = 600", 1).await;
    killed.abort();
    let next = Brief::start(service(2));
    ask(&a, [ping("k", n)]).await;
    eventually("the next one sends", || times(&seen).contains_key(&n)).await;
    next.stop().await;
    assert!(times(&seen).values().all(|times| *times == 1));
}

async fn ac_013_a_stop_at_any_moment_sends_nothing_twice<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let (transport, seen) = faulty(log().await, takes_its_time);
    let writing = AtomicBool::new(true);
    let write = async {
        let mut n = 0;
        while writing.load(SeqCst) {
            if n > seen.lock().unwrap().len() as i64 + 300 {
                tokio::time::sleep(Duration::from_millis(1)).await; // between two looks
                continue;
            }
            ask(&a, (n..n + 30).map(|n| ping(&format!("k{}", n % 7), n))).await;
            n += 30;
        }
        n
    };
    let stops = async {
        for _ in 0..25 {
            let before = seen.lock().unwrap().len();
            // a lease that would outlast the test if it were not given back
            let running = Brief::start(asker(&a, &transport).lease(Duration::from_secs(600)));
            eventually("it sends", || seen.lock().unwrap().len() > before).await;
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..20_000))).await; // a random moment
            running.stop().await;
        }
        writing.store(false, SeqCst);
    };
    let (n, ()) = tokio::join!(write, stops);
    let running = start(Runtime::new().with(asker(&a, &transport))).await;
    eventually("all is sent", || times(&seen).len() as i64 == n).await;
    running.stop().await;
    let again: Vec<_> = times(&seen).into_iter().filter(|(_, times)| *times > 1).collect();
    assert_eq!(again, [], "of {n} rows");
}

async fn ac_013_a_transport_that_never_answers_does_not_keep_the_lease<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let silent = Arc::new(AtomicBool::new(true));
    let is_silent = silent.clone();
    let (transport, seen) =
        faulty(log().await, move |_| if is_silent.load(SeqCst) { Fate::Silence } else { Fate::Pass });
    let service = || asker(&a, &transport).lease(Duration::from_secs(600));
    let running = start(Runtime::new().with(service()).grace(Duration::from_secs(1))).await;
    ask(&a, [ping("k", 1)]).await;
    eventually("it is handed over", || times(&seen).contains_key(&1)).await;
    running.stop().await;
    silent.store(false, SeqCst);
    let next = start(Runtime::new().with(service())).await;
    eventually("the next one sends it", || times(&seen)[&1] == 2).await;
    next.stop().await;
}

async fn ac_016_rows_that_always_fail_do_not_starve_good_ones<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let refuse = |e: &Envelope| if number(e) < 300 { Fate::Refuse("always".into()) } else { Fate::Pass };
    let (transport, seen) = faulty(log().await, refuse);
    ask(&a, (0..300).map(|n| ping(&format!("bad{n}"), n))).await;
    ask(&a, (300..1300).map(|n| ping(&format!("k{}", n % 10), n))).await;
    let running = start(Runtime::new().with(asker(&a, &transport))).await;
    a.until_count(DEAD, 300).await;
    eventually("good ones are out", || times(&seen).len() == 1300).await;
    running.stop().await;
    assert!(times(&seen).values().all(|times| *times == 1), "a refused row is handed over once");
}

async fn ac_017_a_row_that_is_too_large_is_refused_once<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    // the topic takes less than the writer was told
    let lowered = |e: &Envelope| if e.payload.len() > 900_000 { Fate::Refuse("too large".into()) } else { Fate::Pass };
    let (transport, seen) = faulty(log().await, lowered);
    let running = start(Runtime::new().with(asker(&a, &transport))).await;
    let mut tx = Outbox::new("asker", a.clone()).begin().await.unwrap();
    let limit = MAX_ENVELOPE_BYTES;
    let seal = |tx: &mut S::Tx, n: i64, size: usize| {
        let message = |fill: usize| Message { payload: padded(n, fill), ..Message::of(&ping("big", n)).unwrap() };
        let base = tx.sealer().seal(message(0)).unwrap().size();
        tx.sealer().seal(message(size - base))
    };
    let fits = [seal(&mut tx, 1, limit - 1).unwrap(), seal(&mut tx, 2, limit).unwrap()];
    assert_eq!(fits[1].size(), limit);
    assert!(matches!(seal(&mut tx, 3, limit + 1), Err(Unfit::Large { .. })), "found when it is written");
    // headers count, too; somebody wrote this one by hand
    let mut headed = seal(&mut tx, 4, 800_000).unwrap();
    headed.headers.push(("reason".into(), "y".repeat(300_000)));
    let mut all = fits.to_vec();
    all.push(headed);
    tx.append(all).await.unwrap();
    tx.commit().await.unwrap();
    ask(&a, (10..20).map(|n| ping(&format!("k{n}"), n))).await;
    a.until_count(DEAD, 3).await;
    eventually("the others are out", || (10..20).all(|n| times(&seen).contains_key(&n))).await;
    running.stop().await;
    let times = times(&seen);
    assert_eq!((times[&1], times[&2], times.get(&4)), (1, 1, None), "a refusal is final");
}

/// A ping with blanks behind it.
fn padded(n: i64, fill: usize) -> bytes::Bytes {
    let mut payload = serde_json::to_vec(&ping("big", n)).unwrap();
    payload.resize(payload.len() + fill, b' ');
    payload.into()
}

async fn ac_020_a_topic_that_never_answers_holds_up_no_other<S: TestStore>() {
    const ROWS: i64 = 13_000;
    let Some(a) = S::fresh("asker").await else { return };
    let silent = Arc::new(AtomicBool::new(true));
    let is_silent = silent.clone();
    let decide = move |e: &Envelope| {
        if e.kind == "ping.v1" && is_silent.load(SeqCst) { Fate::Silence } else { Fate::Pass }
    };
    let (transport, seen) = faulty(log().await, decide);
    for first in (0..ROWS).step_by(500) {
        let mut tx = Outbox::new("asker", a.clone()).begin().await.unwrap();
        let mut sealed = Vec::new();
        for n in first..first + 500 {
            sealed.push(tx.sealer().seal(Message::of(&ping("a", n)).unwrap()).unwrap());
            sealed.push(tx.sealer().seal(Message::of(&Pong { key: "b".into(), n }).unwrap()).unwrap());
        }
        tx.append(sealed).await.unwrap();
        tx.commit().await.unwrap();
    }
    let service = asker(&a, &transport).answered_within(Duration::from_secs(5)).resent_per_second(1_000_000);
    let running = Brief::start(service);
    let of = |kind: &str| {
        let seen = seen.lock().unwrap();
        seen.iter().filter(|row| row.0 == kind).map(|row| row.1).collect::<Vec<_>>()
    };
    eventually("the other topic is out", || of("pong.v1").len() as i64 == ROWS).await;
    assert!(of("pong.v1").is_sorted());
    silent.store(false, SeqCst);
    let last = || of("ping.v1").last() == Some(&(ROWS - 1));
    eventually("the silent one follows", || {
        last() && of("ping.v1").iter().collect::<HashSet<_>>().len() as i64 == ROWS
    })
    .await;
    running.stop().await;
    // after the last doubt, each once and in order
    let pings = of("ping.v1");
    let begun = pings.iter().rposition(|n| *n == 0).unwrap();
    assert_eq!(pings[begun..], (0..ROWS).collect::<Vec<_>>());
    assert_eq!(of("pong.v1").len() as i64, ROWS, "the other topic had no part in it");
}

async fn ac_021_a_batch_that_gets_nowhere_always_waits<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let (transport, _) = faulty(log().await, |_| Fate::Vanish);
    let begun = Instant::now();
    let waits = Backoff { first: Duration::from_millis(400), most: Duration::from_millis(400) };
    ask(&a, (0..100).map(|n| ping("k", n))).await;
    let service = asker(&a, &transport).backoff(waits).resent_per_second(1_000_000);
    let running = Brief::start(service);
    eventually("it was tried often", || transport.publishers() > 20).await;
    // the shortest wait is a tenth of the first bound
    let cycles = transport.publishers() as u32 - 1;
    assert!(begun.elapsed() >= waits.first / 10 * (cycles - 1), "{cycles} cycles in {:?}", begun.elapsed());
    running.stop().await;
}

async fn what_is_sent_again_keeps_to_its_budget_whatever_the_number_of_replicas<S: TestStore>() {
    const ROWS: usize = 1_500;
    const RATE: u32 = 1_000;
    let Some(a) = S::fresh("asker").await else { return };
    let away = Arc::new(AtomicBool::new(true));
    let is_away = away.clone();
    let (transport, seen) =
        faulty(log().await, move |_| if is_away.load(SeqCst) { Fate::LoseAnswer } else { Fate::Pass });
    ask(&a, (0..ROWS as i64).map(|n| ping(&format!("k{}", n % 5), n))).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(Brief::start(asker(&a, &transport).resent_per_second(RATE)));
    }
    let handed_over = || seen.lock().unwrap().len();
    eventually("the outage was met a few times", || handed_over() > ROWS && transport.publishers() > 3).await;
    away.store(false, SeqCst);
    a.until_count(&format!("select count(*) from malote.relay where name = 'asker' and high = {ROWS}"), 1).await;
    for one in running {
        one.stop().await;
    }
    let seen = seen.lock().unwrap();
    let (first, last) = (seen[0].2, seen[seen.len() - 1].2);
    let again = (seen.len() - ROWS) as f64;
    let allowed = (last - first).as_secs_f64() * f64::from(RATE) * 1.1 + f64::from(RATE) / 10.0;
    assert!(again >= ROWS as f64 && again <= allowed, "{again} sent again in {:?}", last - first);
}

async fn ac_027_a_relay_that_dies_at_any_moment_passes_over_nothing<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let (transport, seen) = faulty(log().await, takes_its_time);
    let writing = AtomicBool::new(true);
    let write = async {
        let (mut n, mut committed) = (0, HashSet::new());
        while writing.load(SeqCst) {
            let rows = fastrand::i64(1..=50);
            let mut tx = Outbox::new("asker", a.clone()).begin().await.unwrap();
            let sealed =
                (n..n + rows).map(|n| tx.sealer().seal(Message::of(&ping("k", n)).unwrap()).unwrap()).collect();
            tx.append(sealed).await.unwrap();
            match fastrand::u8(..) {
                0..30 => tx.rollback().await.unwrap(),
                _ => {
                    tx.commit().await.unwrap();
                    committed.extend(n..n + rows);
                }
            }
            n += rows;
        }
        committed
    };
    let deaths = async {
        for _ in 0..10 {
            let before = seen.lock().unwrap().len();
            let relay = start_to_kill(asker(&a, &transport).lease(Duration::from_millis(500)));
            eventually("it sends", || seen.lock().unwrap().len() > before).await;
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..60_000))).await; // a random moment
            relay.abort();
        }
        writing.store(false, SeqCst);
    };
    let (committed, ()) = tokio::join!(write, deaths);
    let running = start(Runtime::new().with(asker(&a, &transport).lease(Duration::from_millis(500)))).await;
    eventually("all that was committed is sent", || times(&seen).len() >= committed.len()).await;
    running.stop().await;
    let seen = seen.lock().unwrap();
    let mut first: BTreeMap<i64, usize> = BTreeMap::new();
    seen.iter().enumerate().for_each(|(place, (_, n, _))| {
        first.entry(*n).or_insert(place);
    });
    assert_eq!(first.keys().copied().collect::<HashSet<_>>(), committed);
    assert!(first.values().is_sorted(), "first occurrences keep their order");
}

async fn ac_048_a_duplicate_counts_as_published<S: TestStore>() {
    let Some(a) = S::fresh("asker").await else { return };
    let sent = Arc::new(Mutex::new(HashMap::<i64, usize>::new()));
    let decide = move |e: &Envelope| {
        let mut sent = sent.lock().unwrap();
        let times = sent.entry(number(e)).or_default();
        *times += 1;
        if *times == 1 { Fate::LoseAnswer } else { Fate::Duplicate }
    };
    let ((transport, seen), heard) = (faulty(log().await, decide), Log::default());
    let Some(listening) = listener::<S>(&transport, &heard).await else { return };
    ask(&a, [ping("k", 1)]).await;
    let asking = start(Runtime::new().with(asker(&a, &transport))).await;
    a.until_count("select count(*) from malote.relay where name = 'asker' and high = 1", 1).await;
    heard.until(|all| all.len() == 1).await;
    asking.stop().await;
    listening.stop().await;
    assert_eq!(times(&seen)[&1], 2, "and it is not tried any more");
}
