//! The customers: each sends an order under its key until it is accepted; some call it off at once, and
//! some send back what they got.

use crate::{patience, shop::Shop};
use orders_checker::Placed;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    door: String,
    accepted: Arc<Mutex<BTreeMap<String, Placed>>>,
    unwanted: Arc<Mutex<Vec<String>>>,
}

impl Client {
    pub fn new(door: String) -> Self {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().expect("a client");
        Self { http, door, accepted: Arc::default(), unwanted: Arc::default() }
    }

    pub async fn place(self, number: usize) {
        let key = format!("kills-{number}");
        let (lines, card) = wanted(number);
        let items: Vec<Value> = lines.iter().map(|(sku, quantity)| json!({"sku": sku, "quantity": quantity})).collect();
        let body = json!({"items": items, "card": card, "address": "Rua das Flores 1, Porto"});
        let what = format!("order {number} is accepted");
        let answer = self.until(&what, || {
            let request = self.http.post(format!("{}/orders", self.door));
            (request.header("Idempotency-Key", &key).json(&body), [202].as_slice())
        });
        let id = answer.await["id"].as_str().expect("an id").to_owned();
        let placed = Placed { id: id.clone(), lines };
        let before = self.accepted.lock().expect("no panic").insert(key, placed);
        assert_eq!(before.map(|it| it.id), None, "one key, two orders");
        match number % 20 {
            7 => self.call_off(&id).await,
            3 | 13 => self.unwanted.lock().expect("no panic").push(id),
            _ => {}
        }
    }

    /// Possible or not: there is an answer. The order may not be written down yet when it is asked for.
    async fn call_off(&self, id: &str) {
        let url = format!("{}/orders/{id}/cancel", self.door);
        self.until("the order can be called off", || (self.http.post(&url), [200, 202, 409].as_slice())).await;
    }

    async fn until<'a>(&self, what: &str, ask: impl Fn() -> (reqwest::RequestBuilder, &'a [u16])) -> Value {
        let end = Instant::now() + patience();
        loop {
            let (request, good) = ask();
            if let Ok(answer) = request.send().await
                && good.contains(&answer.status().as_u16())
                && let Ok(body) = answer.json().await
            {
                return body;
            }
            assert!(Instant::now() < end, "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await; // a client's own pause
        }
    }

    /// Has those orders taken back that are confirmed and not wanted; how many were asked for so far.
    pub async fn send_back(&self, shop: &Shop) -> usize {
        let unwanted = self.unwanted.lock().expect("no panic").clone();
        shop.take_back(&unwanted).await
    }

    pub fn accepted(&self) -> BTreeMap<String, Placed> {
        self.accepted.lock().expect("no panic").clone()
    }
}

/// What is ordered, always the same: one or two items, and a card; every third card has its ways.
fn wanted(number: usize) -> (BTreeMap<String, i64>, &'static str) {
    let mut dice = fastrand::Rng::with_seed(number as u64);
    let lines = (0..dice.usize(1..=2)).map(|_| (item(dice.usize(..ITEMS)), dice.i64(1..=2))).collect();
    let card = match number % 30 {
        1 | 11 | 21 => "tok_declined",
        5 | 15 => "tok_timeout",
        9 | 19 => "tok_slow",
        23 => "tok_refund_fails",
        _ => "tok_ok",
    };
    (lines, card)
}

/// How many items there are.
pub const ITEMS: usize = 50;

/// An item's name.
pub fn item(number: usize) -> String {
    format!("item-{number:02}")
}
