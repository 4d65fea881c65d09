//! The programs of `docs/tutorial-saga.md` and `docs/testing-sagas.md`, compiled and run.
#![allow(missing_docs)]

#[path = "common/pages.rs"]
mod pages;

use malote::{
    inspect::Inspect as _,
    saga::{SagaFilter, Status},
    sqlite::Sqlite,
};
use std::env;

#[rustfmt::skip]
mod shown {
// <<< SAGA
use malote::{prelude::*, saga::{Answer, Command, Never, Saga, Sagas, step}};
use malote::sqlite::{Embedded, Sqlite, Tx};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc, time::Duration};
use uuid::Uuid;

/// What the saga knows, and what its messages say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order { pub id: Uuid, pub cents: i64 }

macro_rules! messages { ($($name:ident = $type:literal on $topic:literal,)*) => { $(
    #[derive(Debug, Serialize, Deserialize)]
    pub struct $name(pub Order);
    impl Event for $name {
        const TYPE: &'static str = $type;
        fn topic() -> &'static str { $topic }
        fn key(&self) -> String { self.0.id.to_string() }
    }
)* } }
messages! {
    ReserveStock = "stock.reserve.v1" on "stock.commands", ReleaseStock = "stock.release.v1" on "stock.commands",
    StockReserved = "stock.reserved.v1" on "shop.replies", StockReleased = "stock.released.v1" on "shop.replies",
    OutOfStock = "stock.none-left.v1" on "shop.replies",
    ChargeCard = "card.charge.v1" on "card.commands", CardCharged = "card.charged.v1" on "shop.replies",
    CardDeclined = "card.declined.v1" on "shop.replies",
    SendParcel = "parcel.send.v1" on "parcel.commands", ParcelSent = "parcel.sent.v1" on "shop.replies",
}
/// A refusal says why: people read it in the saga's history.
impl fmt::Display for OutOfStock { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("none is left") } }
impl fmt::Display for CardDeclined { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("declined") } }

impl Command for ReserveStock { type Done = StockReserved; type Refused = OutOfStock; }
impl Command for ReleaseStock { type Done = StockReleased; type Refused = Never; }
impl Command for ChargeCard { type Done = CardCharged; type Refused = CardDeclined; }
impl Command for SendParcel { type Done = ParcelSent; type Refused = Never; }

pub fn buy() -> Saga<Order> {
    Saga::named("buy", 1)
        .step(step("reserve stock", |o: &Order| ReserveStock(o.clone())).compensate(|o| ReleaseStock(o.clone())))
        .step(step("charge card", |o: &Order| ChargeCard(o.clone())).pivot())
        .step(step("send parcel", |o: &Order| SendParcel(o.clone())))
}

async fn reserve(ReserveStock(order): ReserveStock, tx: &mut Tx) -> Outcome<Answer<ReserveStock>> {
    let sql = "INSERT INTO reserved SELECT $1 WHERE (SELECT count(*) FROM reserved) < 2"; // two are in the shop
    let rows = sqlx::query(sql).bind(order.id.to_string()).execute(&mut **tx).await?.rows_affected();
    Ok(if rows == 1 { Ok(StockReserved(order)) } else { Err(OutOfStock(order)) })
}
async fn release(ReleaseStock(order): ReleaseStock, tx: &mut Tx) -> Outcome<Answer<ReleaseStock>> {
    sqlx::query("DELETE FROM reserved WHERE id = $1").bind(order.id.to_string()).execute(&mut **tx).await?;
    Ok(Ok(StockReleased(order)))
}
async fn charge(ChargeCard(order): ChargeCard, _: &mut Tx) -> Outcome<Answer<ChargeCard>> {
    Ok(if order.cents <= 100_000 { Ok(CardCharged(order)) } else { Err(CardDeclined(order)) })
}
async fn send(SendParcel(order): SendParcel, _: &mut Tx) -> Outcome<Answer<SendParcel>> {
    Ok(Ok(ParcelSent(order)))
}
// >>>
// <<< RUN
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Sqlite::open("shop.db").await?;
    store.migrate().await?;
    let log = Arc::new(Embedded::open("log.db").await?);
    let sagas = Sagas::new("shop", store.clone()).define(buy());
    let shop = Service::new("shop", store, log).sagas(sagas.clone())
        .command(reserve).command(release).command(charge).command(send);
    let outbox = shop.outbox();
    let customers = async move {
        if let Err(why) = shopping(&sagas, &outbox).await { eprintln!("{why}") }
    };
    Runtime::new().with(shop).run_until(customers).await?; // or ctrl_c()
    Ok(())
}

async fn shopping(sagas: &Sagas<Sqlite>, outbox: &Outbox<Sqlite>) -> Outcome {
    let orders = [4_200, 999_900].map(|cents| Order { id: Uuid::now_v7(), cents });
    let mut tx = outbox.begin().await?; // your own changes go into it, too
    sqlx::query("CREATE TABLE IF NOT EXISTS reserved (id TEXT PRIMARY KEY)").execute(&mut *tx).await?;
    for order in &orders { sagas.start(&mut tx, "buy", order.id, order).await?; }
    tx.commit().await?;
    for order in orders {
        let status = loop {
            match sagas.find(order.id).await? {
                Some(saga) if saga.status.is_final() => break saga.status,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        println!("order {}: {}", order.id, status.as_str());
    }
    Ok(())
}
// >>>
}

#[rustfmt::skip]
mod tested {
use super::shown::*;
use malote::saga::Saga;
use uuid::Uuid;
// <<< STORIES
use malote::saga::{Deed, Outline, Status};
use malote_testkit::saga::{Answers, given, laws};
use std::time::Duration;

fn order() -> Order {
    Order { id: Uuid::from_u128(7), cents: 4_200 }
}

#[test]
fn a_declined_card_gives_the_stock_back() {
    given(&buy(), order())
        .then_asks_that::<ReserveStock>(|command| command.0.cents == 4_200)
        .when::<ReserveStock>(Ok(StockReserved(order())))
        .then_asks::<ChargeCard>()
        .when::<ChargeCard>(Err(CardDeclined(order())))
        .then_asks::<ReleaseStock>()
        .then(Status::Compensating)
        .when::<ReleaseStock>(Ok(StockReleased(order())))
        .then(Status::Compensated);
}
// >>>
// <<< TIME
#[test]
fn a_silent_warehouse_is_undone_since_nobody_knows() {
    given(&buy(), order())
        .then_asks::<ReserveStock>()
        .when_time_passes(Duration::from_secs(30))
        .then_step("reserve stock", "undoing")
        .then_asks::<ReleaseStock>()
        .then(Status::Compensating);
}
// >>>
// <<< PEOPLE
#[test]
fn a_silent_card_is_never_undone_and_a_person_decides() {
    let saga = buy();
    let mut story = given(&saga, order());
    story.when::<ReserveStock>(Ok(StockReserved(order()))).then_asks::<ReserveStock>();
    let due = story.pass(Duration::from_secs(24 * 3600)); // everything that came due, with its time
    assert!(due.iter().filter(|due| !due.decision.sends.is_empty()).count() >= 2, "asked again");
    for _ in 0..story.asked(malote::saga::Direction::Do) - 1 {
        story.then_asks::<ChargeCard>();
    }
    story
        .then(Status::Stuck)
        .when_person(Deed::Compensate)
        .then_denied("nothing says how to undo")
        .when_person(Deed::Retry { step: Some("charge card".into()) })
        .then_asks::<ChargeCard>()
        .when::<ChargeCard>(Ok(CardCharged(order())))
        .then_asks::<SendParcel>()
        .then(Status::Running);
}
// >>>
// <<< LAWS
#[test]
fn it_keeps_the_laws_of_all_sagas() {
    let answers = Answers::new()
        .to::<ReserveStock>(|c| StockReserved(c.0), |c| OutOfStock(c.0))
        .always::<ReleaseStock>(|c| StockReleased(c.0))
        .to::<ChargeCard>(|c| CardCharged(c.0), |c| CardDeclined(c.0))
        .always::<SendParcel>(|c| ParcelSent(c.0));
    laws(&buy(), [order()], &answers);
}
// >>>
// <<< VERSIONS
/// What `include_str!("buy.v1.json")` gives in your own test. Write that file once, with this very line.
fn kept() -> String {
    serde_json::to_string(&buy().outline()).unwrap()
}

/// Somebody takes a step out.
fn changed() -> Saga<Order> {
    Saga::named("buy", 1)
        .step(malote::saga::step("charge card", |o: &Order| ChargeCard(o.clone())).pivot())
        .step(malote::saga::step("send parcel", |o: &Order| SendParcel(o.clone())))
}

#[test]
fn instances_under_way_survive_what_the_definition_is_now() {
    let kept: Outline = serde_json::from_str(&kept()).unwrap();
    assert_eq!(kept.differences(&buy().outline()), Vec::<String>::new());
    assert!(kept.differences(&changed().outline())[0].contains("\"reserve stock\" is gone"));
}
// >>>
}

#[test]
fn the_pages_show_what_is_compiled_here() {
    let here = include_str!("tutorial_saga.rs");
    pages::show("docs/tutorial-saga.md", here, &["SAGA", "RUN"]);
    pages::show("docs/testing-sagas.md", here, &["STORIES", "TIME", "PEOPLE", "LAWS", "VERSIONS"]);
}

#[test]
fn a_first_saga_is_short() {
    let lines = pages::part(include_str!("tutorial_saga.rs"), "SAGA").lines().count();
    assert!(lines < 60, "{lines} lines");
}

#[test]
fn the_program_does_what_the_page_says() {
    let folder = tempfile::tempdir().expect("a folder");
    // the only one of these tests that looks at files by a relative path
    env::set_current_dir(folder.path()).expect("there");
    shown::main().expect("it runs");
    let looked = async {
        let store = Sqlite::open("shop.db").await.expect("opened");
        let mut sagas = store.sagas(&SagaFilter::default(), 10).await.expect("listed");
        sagas.sort_by_key(|saga| saga.id);
        sagas.into_iter().map(|saga| saga.status).collect::<Vec<_>>()
    };
    let statuses = tokio::runtime::Runtime::new().expect("started").block_on(looked);
    assert_eq!(statuses, [Status::Completed, Status::Compensated]);
}
