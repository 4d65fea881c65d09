//! What stands still, and the people who mend it; what expires; what a database forbids.
#![allow(missing_docs)]

mod support;

use malote::{Outbox, inspect::Act, saga::Deed};
use orders::{app::Name, contracts::ExpireReservation, postgres, saga::Waits, sqlite};
use serde_json::{Value, json};
use support::{Services, Store, both, one, until};

const STOCK: &str = "SELECT available * 1000000 + reserved * 1000 + sold FROM items WHERE sku = 'globe'";

/// Somebody at a terminal of their own: another process than the one that leads the order.
async fn act(services: &Services, store: &Store, order: &str, deed: Deed) {
    let act = Act { actor: "ana".into(), reason: "the customer called".into() };
    let order = order.parse().expect("an id");
    let place = services.place(Name::Order);
    let outcome = match store {
        Store::Files => {
            let db = sqlite::open(&place, Name::Order).await.expect("opens");
            sqlite::order::sagas(db, Waits::default()).act(&act, order, &deed).await
        }
        Store::Postgres(_) => {
            let db = postgres::open(&place, Name::Order).await.expect("opens");
            postgres::order::sagas(db, Waits::default()).act(&act, order, &deed).await
        }
    };
    let outcome = outcome.expect("it is dealt with");
    assert!(!outcome.denied, "{}", outcome.says);
}

fn step<'a>(order: &'a Value, name: &str) -> &'a Value {
    order["steps"].as_array().expect("steps").iter().find(|step| step["step"] == name).expect("the step")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_that_fails_for_good_needs_attention_until_a_person_mends_it() {
    for store in both() {
        let services = Services::run(store.clone(), &[("MALOTE_PAYMENT_ASKS", "2")]).await;
        let id = services.placed(one("globe", "tok_refund_fails")).await;
        assert_eq!(services.settled(&id).await["outcome"], "CONFIRMED");
        act(&services, &store, &id, Deed::Compensate).await;
        let order = services.order_that(&id, |order| order["outcome"] == "NEEDS_ATTENTION").await;
        assert!(order["now"].as_str().unwrap().contains("capture payment"), "{order}");
        assert_eq!(step(&order, "capture payment")["state"], "undo failed");
        assert_eq!(step(&order, "capture payment")["reason"], "the card's bank takes no refunds");
        assert_eq!(step(&order, "request delivery")["state"], "undone");
        assert_eq!(services.book(Name::Inventory).await.number(STOCK).await, 3_000_000);
        // the bank comes round, and a person has it asked again
        services.faults(json!({"cards": false})).await;
        act(&services, &store, &id, Deed::Retry { step: Some("capture payment".into()) }).await;
        services.order_that(&id, |order| order["outcome"] == "REFUNDED").await;
        assert_eq!(services.effects_for(&id).await, ["authorise", "capture", "refund"]);
        let told = services.book(Name::Order).await;
        until("the customer is told, and told that it is over", || async {
            (told.texts("SELECT about FROM notices ORDER BY about").await == ["CONFIRMED", "CORRECTION"]).then_some(())
        })
        .await;
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_refused_after_the_money_was_taken_stands_still_and_is_shown() {
    for store in both() {
        let services = Services::run(store.clone(), &[]).await;
        let body = json!({"items": [{"sku": "book", "quantity": 2}], "card": "tok_ok", "address": "Nowhere 1"});
        let id = services.placed(body).await;
        let order = services.settled(&id).await;
        assert_eq!(order["outcome"], "NEEDS_ATTENTION", "{order}");
        assert_eq!(step(&order, "request delivery")["reason"], "nobody delivers there");
        act(&services, &store, &id, Deed::Compensate).await;
        services.order_that(&id, |order| order["outcome"] == "REFUNDED").await;
        assert_eq!(services.effects_for(&id).await, ["authorise", "capture", "refund"]);
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_expires_by_itself_and_nobody_pays_for_it() {
    for store in both() {
        let services = Services::run(store, &[("MALOTE_RESERVATION_MS", "200")]).await;
        services.faults(json!({"slow_ms": 3_000})).await;
        let id = services.placed(one("globe", "tok_slow")).await;
        let inventory = services.book(Name::Inventory).await;
        until("it expires", || async {
            (inventory.texts("SELECT status FROM reservations").await == ["EXPIRED"]).then_some(())
        })
        .await;
        assert_eq!(inventory.number(STOCK).await, 3_000_000);
        let order = services.settled(&id).await;
        assert_eq!((&order["outcome"], &order["reason"]), (&json!("CANCELLED"), &json!("OUT_OF_STOCK")), "{order}");
        assert_eq!(services.effects_for(&id).await, ["authorise", "void"]);
        let refused = "SELECT status || ' ' || version || ' ' || wanted FROM refused_changes";
        assert_eq!(inventory.texts(refused).await, ["EXPIRED 2 KEPT"]);
        assert_eq!(inventory.number(STOCK).await, 3_000_000);
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paid_for_does_not_expire_not_even_when_its_time_has_come_already() {
    for store in both() {
        let services = Services::run(store.clone(), &[]).await;
        let id = services.placed(one("globe", "tok_ok")).await;
        assert_eq!(services.settled(&id).await["outcome"], "CONFIRMED");
        let inventory = services.book(Name::Inventory).await;
        assert_eq!(inventory.number("SELECT count(*) FROM malote.scheduled").await, 0);
        // the expiry that was under way when the order was paid
        let (due, place) =
            (ExpireReservation { order: id.parse().unwrap(), version: 1 }, services.place(Name::Inventory));
        match &store {
            Store::Files => {
                let db = sqlite::open(&place, Name::Inventory).await.expect("opens");
                let mut tx = Outbox::new("inventory", db).begin().await.expect("begins");
                tx.publish(due).await.expect("said");
                tx.commit().await.expect("commits");
            }
            Store::Postgres(_) => {
                let db = postgres::open(&place, Name::Inventory).await.expect("opens");
                let mut tx = Outbox::new("inventory", db).begin().await.expect("begins");
                tx.publish(due).await.expect("said");
                tx.commit().await.expect("commits");
            }
        }
        let refused = "SELECT status || ' ' || version || ' ' || wanted FROM refused_changes";
        until("it is refused", || async { (inventory.texts(refused).await == ["KEPT 2 EXPIRED"]).then_some(()) }).await;
        assert_eq!(inventory.number(STOCK).await, 2_000_001);
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_orders_for_the_last_items_as_many_are_confirmed_as_there_are() {
    for store in both() {
        let services = Services::run(store, &[]).await;
        let orders = futures::future::join_all((0..8).map(|_| services.placed(one("globe", "tok_ok")))).await;
        let mut confirmed = 0;
        for id in &orders {
            let order = services.settled(id).await;
            match order["outcome"].as_str().unwrap() {
                "CONFIRMED" => confirmed += 1,
                outcome => assert_eq!((outcome, &order["reason"]), ("CANCELLED", &json!("OUT_OF_STOCK")), "{order}"),
            }
        }
        assert_eq!(confirmed, 3);
        assert_eq!(services.book(Name::Inventory).await.number(STOCK).await, 3);
        let captures = services.effects().await.into_iter().filter(|(kind, _)| kind == "capture").count();
        assert_eq!(captures, 3);
        services.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_databases_forbid_what_handlers_must_not_do() {
    for store in both() {
        let services = Services::run(store, &[]).await;
        let id = services.placed(one("globe", "tok_ok")).await;
        assert_eq!(services.settled(&id).await["outcome"], "CONFIRMED");
        let inventory = services.book(Name::Inventory).await;
        for overselling in [
            "UPDATE items SET available = available - 3, reserved = reserved + 3 WHERE sku = 'globe'".to_owned(),
            "UPDATE items SET sold = sold + 1 WHERE sku = 'globe'".to_owned(),
            format!("INSERT INTO reservations (order_id) VALUES ('{id}')"),
            format!("INSERT INTO reservation_lines (order_id, sku, quantity) VALUES ('{id}', 'globe', 1)"),
        ] {
            assert!(inventory.run(&overselling).await.is_err(), "{overselling}");
        }
        let billing = services.book(Name::Billing).await;
        billing
            .run("INSERT INTO payments (order_id, amount, status, authorisation) VALUES ('o', 1, 'AUTHORISED', 'a')")
            .await
            .expect("fine");
        for twice in [
            format!("INSERT INTO captures (order_id, authorisation, amount, key) VALUES ('{id}', 'b', 1, 'k')"),
            "INSERT INTO captures (order_id, authorisation, amount, key) SELECT 'o', authorisation, 1, 'k' FROM captures".to_owned(),
            "INSERT INTO captures (order_id, authorisation, amount, key) SELECT 'o', 'a', 1, key FROM captures".to_owned(),
            "INSERT INTO refunds (order_id, amount, fee, key) VALUES ('o', 1, 0, 'k')".to_owned(),
            format!("INSERT INTO payments (order_id, amount, status, authorisation) VALUES ('{id}', 1, 'AUTHORISED', 'c')"),
        ] {
            assert!(billing.run(&twice).await.is_err(), "{twice}");
        }
        services.stop().await;
    }
}
