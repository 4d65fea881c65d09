//! Orders from end to end, on both stores, with the provider's real HTTP.
#![allow(missing_docs)]

mod support;

use orders::app::Name;
use reqwest::Method;
use serde_json::{Value, json};
use support::{Services, both, one, until};

const STOCK: &str = "SELECT available * 1000000 + reserved * 1000 + sold FROM items WHERE sku = 'globe'";

#[tokio::test(flavor = "multi_thread")]
async fn a_good_order_is_confirmed_paid_once_and_delivered() {
    for store in both() {
        let services = Services::run(store, &[]).await;
        let id = services.placed(one("globe", "tok_ok")).await;
        let order = services.settled(&id).await;
        assert_eq!(order["outcome"], "CONFIRMED", "{order}");
        assert!(order["steps"].as_array().unwrap().iter().all(|step| step["state"] == "done"), "{order}");
        assert_eq!(services.effects_for(&id).await, ["authorise", "capture"]);
        assert_eq!(services.book(Name::Inventory).await.number(STOCK).await, 2_000_001);
        let orders = services.book(Name::Order).await;
        until("the customer is told", || async {
            (orders.texts("SELECT about FROM notices").await == ["CONFIRMED"]).then_some(())
        })
        .await;
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_card_rejects_the_order_and_frees_the_stock() {
    for store in both() {
        let services = Services::run(store, &[]).await;
        let id = services.placed(one("globe", "tok_declined")).await;
        let order = services.settled(&id).await;
        assert_eq!((&order["outcome"], &order["reason"]), (&json!("REJECTED"), &json!("DECLINED")), "{order}");
        assert_eq!(services.book(Name::Inventory).await.number(STOCK).await, 3_000_000);
        assert_eq!(services.effects_for(&id).await, Vec::<String>::new());
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_stock_the_order_is_cancelled_and_nobody_pays() {
    for store in both() {
        let services = Services::run(store, &[]).await;
        let body = json!({"items": [{"sku": "pen", "quantity": 1}, {"sku": "globe", "quantity": 4}],
                          "card": "tok_ok", "address": "Rua das Flores 1, Porto"});
        let id = services.placed(body).await;
        let order = services.settled(&id).await;
        assert_eq!((&order["outcome"], &order["reason"]), (&json!("CANCELLED"), &json!("OUT_OF_STOCK")), "{order}");
        assert!(order["steps"].as_array().unwrap().iter().all(|step| step["state"] != "waiting"), "{order}");
        assert_eq!(services.effects().await, []);
        let inventory = services.book(Name::Inventory).await;
        assert_eq!(inventory.number(STOCK).await, 3_000_000);
        assert_eq!(inventory.number("SELECT count(*) FROM items WHERE available <> total").await, 0);
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_whose_answer_is_lost_is_asked_for_by_its_key_and_done_once() {
    for store in both() {
        let services = Services::run(store, &[("MALOTE_PROVIDER_MS", "500")]).await;
        let id = services.placed(one("book", "tok_timeout")).await;
        assert_eq!(services.settled(&id).await["outcome"], "CONFIRMED");
        assert_eq!(services.effects_for(&id).await, ["authorise", "capture"]);
        // nor is it told what became of the key
        services.faults(json!({"lose_percent": 100, "mute_percent": 100})).await;
        let id = services.placed(one("book", "tok_ok")).await;
        until("it is done, and nobody knows", || async { (!services.effects_for(&id).await.is_empty()).then_some(()) })
            .await;
        services.faults(json!({})).await;
        assert_eq!(services.settled(&id).await["outcome"], "CONFIRMED");
        assert_eq!(services.effects_for(&id).await, ["authorise", "capture"]);
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_may_call_an_order_off_until_it_is_paid() {
    for store in both() {
        let services = Services::run(store, &[]).await;
        services.faults(json!({"slow_ms": 2_000})).await;
        let id = services.placed(one("globe", "tok_slow")).await;
        services.order_that(&id, |order| order["now"] == "payment in progress").await;
        let cancel = format!("/orders/{id}/cancel");
        let (status, order) = services.send(Method::POST, &cancel, None, Value::Null).await;
        assert_eq!(status, 202, "{order}");
        let order = services.settled(&id).await;
        assert_eq!((&order["outcome"], &order["reason"]), (&json!("CANCELLED"), &json!("CUSTOMER")), "{order}");
        assert_eq!(services.book(Name::Inventory).await.number(STOCK).await, 3_000_000);
        let held = services.effects_for(&id).await;
        assert!(held.is_empty() || held == ["authorise", "void"], "{held:?}");
        let (status, again) = services.send(Method::POST, &cancel, None, Value::Null).await;
        assert_eq!((status, &again["outcome"]), (200, &json!("CANCELLED")));
        let id = services.placed(one("book", "tok_ok")).await;
        services.settled(&id).await;
        let (status, no) = services.send(Method::POST, &format!("/orders/{id}/cancel"), None, Value::Null).await;
        assert_eq!(status, 409, "{no}");
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_takes_an_order_once_and_says_what_is_wrong_with_one() {
    for store in both() {
        let services = Services::run(store, &[]).await;
        let post = async |key, body| services.send(Method::POST, "/orders", key, body).await;
        let (status, first) = post(Some("k1"), one("book", "tok_ok")).await;
        assert_eq!(status, 202, "{first}");
        assert_eq!(post(Some("k1"), one("book", "tok_ok")).await, (202, first));
        assert_eq!(post(Some("k1"), one("pen", "tok_ok")).await.0, 422);
        assert_eq!(post(None, one("book", "tok_ok")).await.0, 400);
        let (status, unknown) = post(Some("k2"), one("unicorn", "tok_ok")).await;
        assert!(status == 422 && unknown["detail"].as_str().unwrap().contains("not sold here"), "{unknown}");
        let nobody = uuid::Uuid::nil();
        assert_eq!(services.send(Method::GET, &format!("/orders/{nobody}"), None, Value::Null).await.0, 404);
        assert_eq!(services.send(Method::GET, "/orders/x", None, Value::Null).await.0, 400);
        assert_eq!(services.book(Name::Order).await.number("SELECT count(*) FROM orders").await, 1);
        services.stop().await;
    }
}
