//! The program of `docs/first-service.md`, compiled and run.
#![allow(missing_docs)]

#[path = "common/pages.rs"]
mod pages;

use malote::sqlite::Sqlite;
use std::env;

#[rustfmt::skip]
mod shown {
// <<< EVENTS
use malote::{prelude::*, retry::Policy, retrying};
use malote::sqlite::{Embedded, Sqlite, Tx};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

#[derive(Serialize, Deserialize)]
pub struct OrderPlaced { pub id: String, pub email: String, pub copies: i64 }
impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed.v1";
    fn key(&self) -> String { self.id.clone() } // events of one key keep their order
}

#[derive(Serialize, Deserialize)]
pub struct OrderPacked { pub id: String, pub email: String }
impl Event for OrderPacked {
    const TYPE: &'static str = "order.packed.v1";
    fn key(&self) -> String { self.id.clone() }
}
// >>>
// <<< EDGE
pub async fn place(outbox: &Outbox<Sqlite>, order: OrderPlaced) -> Outcome {
    let mut tx = outbox.begin().await?;
    sqlx::query("INSERT INTO orders (id, copies) VALUES ($1, $2)")
        .bind(&order.id).bind(order.copies).execute(&mut *tx).await?;
    tx.publish(order).await?;
    tx.commit().await?;
    Ok(())
}
// >>>
// <<< HANDLER
pub async fn pack(order: OrderPlaced, tx: &mut Tx) -> Outcome<OrderPacked> {
    if order.copies < 1 {
        return Err(Failure::reject("an order has at least one copy")); // never better: a dead letter
    }
    let taken = sqlx::query("UPDATE shelf SET copies = copies - $1 WHERE copies >= $1")
        .bind(order.copies).execute(&mut **tx).await?; // the store knows which errors pass by themselves
    if taken.rows_affected() == 0 {
        return Err(Failure::retry("not enough on the shelf")); // tried again, a bounded number of times
    }
    Ok(OrderPacked { id: order.id, email: order.email })
}
// >>>
// <<< EFFECT
/// Calls the outside. No transaction is open; whoever is called knows a repeat by the key.
pub async fn announce(packed: OrderPacked, key: IdempotencyKey, post: &Post) -> Outcome<String> {
    post.send(&packed.email, &key.to_string()).await?; // goes into its Idempotency-Key header, say
    Ok(packed.id)
}

/// Writes down what came of it, once.
pub async fn announced(id: String, tx: &mut Tx) -> Outcome {
    sqlx::query("UPDATE orders SET announced = true WHERE id = $1").bind(id).execute(&mut **tx).await?;
    Ok(())
}
// >>>
/// What is not shown: somebody outside who does not answer at first.
#[derive(Clone, Default)]
pub struct Post(Arc<std::sync::Mutex<Vec<(String, String)>>>);
impl Post {
    async fn send(&self, email: &str, key: &str) -> Result<(), std::io::Error> {
        let mut asked = self.0.lock().expect("whole");
        asked.push((email.to_owned(), key.to_owned()));
        if asked.len() == 1 { Err(std::io::Error::other("no answer")) } else { Ok(()) }
    }
    pub fn asked(&self) -> Vec<(String, String)> { self.0.lock().expect("whole").clone() }
}
// <<< RUN
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(Post::default()).await
}

pub async fn run(post: Post) -> Result<(), Box<dyn std::error::Error>> {
    let (orders, shelf) = (Sqlite::open("orders.db").await?, Sqlite::open("shelf.db").await?);
    orders.migrate().await?; // malote's own tables, beside yours
    shelf.migrate().await?;
    let log = Arc::new(Embedded::open("log.db").await?);

    let quick = Policy::default().attempts(5).backoff(Duration::from_millis(50), Duration::from_secs(5));
    let warehouse = Service::new("warehouse", shelf, log.clone()).on(retrying(quick, pack));
    let shop = Service::new("shop", orders, log)
        .emits::<OrderPlaced>() // an edge says it, no handler
        .effect(retrying(quick, with(post, announce)), announced)
        .effects_at_once(32);
    let customers = shopping(shop.outbox(), warehouse.outbox());
    Runtime::new().with(warehouse).with(shop).run_until(customers).await?; // or ctrl_c()
    Ok(())
}
// >>>
async fn shopping(shop: Outbox<Sqlite>, warehouse: Outbox<Sqlite>) {
    shopped(&shop, &warehouse).await.unwrap_or_else(|why| panic!("{why}"));
}

async fn shopped(shop: &Outbox<Sqlite>, warehouse: &Outbox<Sqlite>) -> Outcome {
    let mut tx = warehouse.begin().await?;
    sqlx::query("CREATE TABLE shelf (copies INTEGER)").execute(&mut *tx).await?;
    sqlx::query("INSERT INTO shelf VALUES (10)").execute(&mut *tx).await?;
    tx.commit().await?;
    let mut tx = shop.begin().await?;
    sqlx::query("CREATE TABLE orders (id TEXT PRIMARY KEY, copies INTEGER, announced BOOL DEFAULT false)").execute(&mut *tx).await?;
    tx.commit().await?;
    let order = |id: &str, copies| OrderPlaced { id: id.into(), email: "reader@example.org".into(), copies };
    place(shop, order("a", 0)).await?;
    place(shop, order("b", 3)).await?;
    while sqlx::query("SELECT 1 FROM orders WHERE announced").fetch_optional(shop.store().pool()).await?.is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
    Ok(())
}
}

#[test]
fn the_page_shows_what_is_compiled_here() {
    let parts = ["EVENTS", "EDGE", "HANDLER", "EFFECT", "RUN"];
    pages::show("docs/first-service.md", include_str!("first_service.rs"), &parts);
}

#[test]
fn the_program_does_what_the_page_says() {
    use malote::inspect::{Filter, Inspect as _};
    let folder = tempfile::tempdir().expect("a folder");
    // the only one of these tests that looks at files by a relative path
    env::set_current_dir(folder.path()).expect("there");
    let post = shown::Post::default();
    tokio::runtime::Runtime::new().expect("started").block_on(async {
        tokio::time::timeout(std::time::Duration::from_secs(60), shown::run(post.clone()))
            .await
            .expect("in time")
            .expect("it runs");
        let shelf = Sqlite::open("shelf.db").await.expect("opened");
        let left: i64 = sqlx::query_scalar("SELECT copies FROM shelf").fetch_one(shelf.pool()).await.expect("counted");
        assert_eq!(left, 7);
        let dead = shelf.dead(&Filter::default(), 10).await.expect("listed");
        let reasons: Vec<&str> = dead.iter().map(|row| row.reason.as_str()).collect();
        assert_eq!(reasons, ["an order has at least one copy"]);
    });
    let asked = post.asked();
    assert_eq!(asked.len(), 2, "the first call had no answer: {asked:?}");
    assert_eq!(asked[0], asked[1], "one key for both");
    let _ = shown::main; // what the page shows of it
}
