//! A thousand orders while one process after another is killed with its own work in flight, the payment
//! provider fails at one request in five, records come twice and answers in another order. Judged by a
//! checker that shares no code with any of it.
//!
//! `make test` shares them out among both stores; `MALOTE_SOAK_MINUTES=n` takes all of them on each, and begins
//! anew until the time is over.
#![allow(missing_docs)]

mod client;
mod mischief;
mod provider;
mod shop;

use client::Client;
use orders_checker::{Asked, Books, Topics, judge, read_kafka, read_log};
use shop::{Kind, Shop};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long anything may take that has to happen: far more than it does. Where a protection is taken
/// out, it is expected not to happen, and need not be waited for as long.
fn patience() -> Duration {
    let planted = std::env::var("MALOTE_PLANTED").is_ok_and(|switch| !switch.is_empty());
    Duration::from_secs(if planted { 45 } else { 180 })
}

/// More are sent when no more orders than this are under way: customers who do not get through are no test.
const UNDER_WAY: usize = 12;
/// Kills that meet work of the killed process in flight.
const KILLS: usize = 30;

/// Runs the provider, where this is one of the test's processes.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    if let Some(words) = malote_testkit::child::told() {
        provider::run(&words).await;
    }
}

/// The same at a small size: each process is killed once.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_orders_end_well_while_each_process_is_killed() {
    run(Kind::Files, 40, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_every_order_ends_well_while_processes_are_killed_on_files() {
    soak(Kind::files, 700).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_every_order_ends_well_while_processes_are_killed_on_servers() {
    soak(Kind::servers, 300).await;
}

/// Once with `few` orders, or with a thousand as often as the time allows.
async fn soak(kind: fn() -> Option<Kind>, few: usize) {
    let long = std::env::var(malote_testkit::soak::MINUTES_ENV).is_ok();
    let end = Instant::now() + malote_testkit::soak::duration(Duration::ZERO);
    loop {
        let Some(kind) = kind() else { return };
        run(kind, if long { 1000 } else { few }, KILLS).await;
        if Instant::now() >= end {
            return;
        }
    }
}

/// So many orders or a few more, over so many kills that meet work in flight.
async fn run(kind: Kind, orders: usize, kills: usize) {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = TURN.lock().await; // beside each other they would only be slower
    let began = Instant::now();
    let mut shop = Shop::open(kind).await;
    let stock = shop.stock(orders).await;
    let mischief = shop.mischief();
    let client = Client::new(shop.door());
    let (mut placing, mut sent) = (JoinSet::new(), 0);
    let (mut hits, mut rounds, mut reordered) = (0, 0, 0);
    while hits < kills {
        shop.few_under_way().await;
        // after a kill that met nothing, too: otherwise there would be nothing left to meet
        for number in sent..sent + orders.div_ceil(kills) {
            placing.spawn(client.clone().place(number));
        }
        sent += orders.div_ceil(kills);
        let victim = rounds % shop.fleet.size();
        let busy = shop.busy(victim).await;
        shop.fleet.kill9(victim);
        // what it was asked is still asked: the kill has met it
        hits += usize::from(busy && shop.waits_for(victim).await);
        reordered += shop.reorder_answers(victim).await;
        shop.fleet.restart(victim);
        shop.fleet.ready(victim).await;
        client.send_back(&shop).await;
        rounds += 1;
        assert!(rounds < 5 * kills, "{hits} kills of {rounds} met work in flight\n{}", shop.fleet.logs());
    }
    while let Some(placed) = placing.join_next().await {
        placed.expect("every order is accepted");
    }
    shop.quiet("all orders end").await;
    let returned = client.send_back(&shop).await;
    let repeated = mischief.stop().await;
    shop.quiet("everything is sent back").await;
    let books = Books::read(&shop.places).await.expect("the databases are there");
    let topics = read_topics(&shop);
    let asked = Asked { accepted: client.accepted(), stock };
    let wrong = judge(&asked, &books, &topics.await);
    println!(
        "{sent} orders, {hits} kills with the process's work in flight of {rounds}, {repeated} records repeated, \
         {reordered} answers in another order, {returned} orders sent back, in {:?}: {}",
        began.elapsed(),
        books.summary()
    );
    assert!(wrong.is_empty(), "{} faults:\n{}\n{}", wrong.len(), wrong.join("\n"), shop.fleet.logs());
}

async fn read_topics(shop: &Shop) -> Topics {
    match &shop.kind {
        Kind::Files => read_log(&shop.log()).await.expect("the log is there"),
        Kind::Servers { kafka, .. } => read_kafka(kafka.bootstrap()).expect("Kafka is up"),
    }
}
