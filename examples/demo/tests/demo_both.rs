//! Both systems answer at one address, and both come to an end.
#![allow(missing_docs)]

use malote_testkit::servers;
use serde_json::{Value, json};
use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until the answer holds.
async fn until(http: &reqwest::Client, url: String, holds: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let answer: Option<Value> = match http.get(&url).send().await {
            Ok(answer) => answer.json().await.ok(),
            Err(_) => None,
        };
        if let Some(answer) = answer.as_ref().filter(|answer| holds(answer)) {
            return answer.clone();
        }
        assert!(Instant::now() < end, "in vain: {url}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
}

#[tokio::test]
async fn payments_and_orders_answer_at_one_address() {
    let (port, folder) = (servers::Port::claim().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env("MALOTE_HTTP", format!("127.0.0.1:{}", port.number())).env("MALOTE_DATA", folder.path());
    let _program = Program(servers::bound(&command).stdout(Stdio::null()).spawn().unwrap());
    let (http, base) = (reqwest::Client::new(), format!("http://127.0.0.1:{}", port.number()));
    until(&http, format!("{base}/ready"), |ready| ready["status"] == "ready").await;
    let post = async |path: &str, body: Value| -> String {
        let sent = http.post(format!("{base}{path}")).header("Idempotency-Key", path).json(&body).send().await.unwrap();
        assert_eq!(sent.status(), 202);
        sent.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned()
    };
    let payment = post("/payment", json!({"amount": 1500, "from": "alice", "to": "bob"})).await;
    let items = json!([{"sku": "book", "quantity": 1}]);
    let order = post("/orders", json!({"items": items, "card": "tok_ok", "address": "Rua das Flores 1"})).await;
    until(&http, format!("{base}/payment/{payment}"), |payment| payment["status"] != "CREATED").await;
    until(&http, format!("{base}/orders/{order}"), |order| order["outcome"] == "CONFIRMED").await;
}
