//! Whatever a client sends: it is told what is wrong, and nothing is half-written.

mod support;

use payments::app::Name;
use reqwest::Method;
use support::{
    Services, both,
    client::{Answer, Client, body},
};

/// Refuses a body under a fresh key.
async fn refused(client: &Client, request: impl Into<Vec<u8>>) -> Answer {
    let key = uuid::Uuid::now_v7().to_string();
    let answer = client.pay(&key, request.into()).await.expect("an answer");
    assert_eq!(answer.content_type, "application/problem+json", "{answer:?}");
    let problem = answer.json();
    assert_eq!(problem["status"], answer.status, "{answer:?}");
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{answer:?}");
    answer
}

/// The services wrote nothing: no payment, no event.
async fn nothing_written(services: &Services) {
    let book = services.book(Name::Payment).await;
    assert_eq!(book.number("SELECT count(*) FROM payments").await, 0);
    assert_eq!(book.number("SELECT count(*) FROM malote.outbox").await, 0);
}

fn with_amount(amount: &str) -> String {
    format!(r#"{{"amount": {amount}, "from": "alice", "to": "bob"}}"#)
}

fn with_name(name: &str) -> String {
    body(1500, name, "bob")
}

#[tokio::test]
async fn a_body_that_is_none_is_told_what_it_lacks() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Payment], &[]).await;
        for (request, status, said) in [
            ("", 400, "empty"),
            ("amount=1500&from=alice&to=bob", 400, "not JSON"),
            (r#"{"amount": 1500, "from": "alice", "to": "#, 400, "not JSON"),
            ("[]", 400, "but no object"),
            (r#"[1500, "alice", "bob"]"#, 400, "but no object"),
            ("null", 400, "but no object"),
            ("1500", 400, "but no object"),
            ("{}", 400, "missing field `amount`"),
            (r#"{"from": "alice", "to": "bob"}"#, 400, "missing field `amount`"),
            (r#"{"amount": 1500, "to": "bob"}"#, 400, "missing field `from`"),
            (r#"{"amount": 1500, "from": "alice"}"#, 400, "missing field `to`"),
            (r#"{"amount": 1500, "from": 7, "to": "bob"}"#, 400, "invalid type"),
            (r#"{"amount": 1500, "from": null, "to": "bob"}"#, 400, "invalid type"),
            (r#"{"amount": 1500, "from": ["alice"], "to": "bob"}"#, 400, "invalid type"),
            (r#"{"amount": 1500, "from": "alice", "to": "bob", "iff": "rich"}"#, 400, "unknown field `iff`"),
            (r#"{"amount": 1500, "amount": 1, "from": "alice", "to": "bob"}"#, 400, "duplicate field"),
        ] {
            let answer = refused(&services.client, request).await;
            assert!(answer.status == status && answer.text.contains(said), "{request}: {answer:?}");
        }
        let bytes = [br#"{"amount": 1500, "from": ""#.as_slice(), &[0xff, 0xfe], br#"", "to": "bob"}"#].concat();
        assert_eq!(refused(&services.client, bytes).await.status, 400);
        let large = format!(r#"{{"amount": 1500, "from": "{}", "to": "bob"}}"#, "a".repeat(1 << 20));
        assert_eq!(refused(&services.client, large).await.status, 413);
        // deep enough to overflow a parser that follows it, small enough to be read
        let deep = format!(r#"{{"amount": 1500, "from": {}, "to": "bob"}}"#, "[".repeat(60_000));
        assert_eq!(refused(&services.client, deep).await.status, 400);
        let deeper = "[".repeat(100_000);
        assert!([400, 413].contains(&refused(&services.client, deeper).await.status));
        nothing_written(&services).await;
        services.stop().await;
    }
}

#[tokio::test]
async fn names_are_taken_as_they_come_or_refused() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Payment], &[]).await;
        for (name, status, said) in [
            ("", 422, "`from` is empty"),
            ("alice\u{0}", 400, "NUL"),
            ("alice\nbob", 400, "control character U+000A"),
            ("al\u{1b}[31mice", 400, "control character U+001B"),
            ("al\u{85}ice", 400, "control character U+0085"),
            ("alice\u{202e}", 400, "control character U+202E"),
            ("al\u{200b}ice", 400, "control character U+200B"),
            ("\u{feff}alice", 400, "control character U+FEFF"),
            ("\u{2066}alice\u{2069}", 400, "control character U+2066"),
            (" alice", 422, "white space"),
            ("alice\u{a0}", 422, "white space"),
            ("   ", 422, "white space"),
            (&"a".repeat(65), 422, "65 characters"),
        ] {
            let answer = refused(&services.client, with_name(name)).await;
            assert!(answer.status == status && answer.text.contains(said), "{name:?}: {answer:?}");
        }
        let both = refused(&services.client, body(0, "", " bob")).await.json();
        let fields: Vec<_> = both["errors"].as_array().expect("a list").iter().map(|e| e["field"].clone()).collect();
        assert_eq!(fields, ["amount", "from", "to"]);
        nothing_written(&services).await;

        // odd, and nobody's: the ledger says so
        for name in ["<script>alert(1)</script>", "'; DROP TABLE accounts; --", "é".repeat(64).as_str(), "ALICE"] {
            services.client.accepted(1500, name, "bob").await;
        }
        services.stop().await;
    }
}

#[tokio::test]
async fn keys_paths_and_methods_that_are_wrong_are_told() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Payment], &[]).await;
        let request = body(1500, "alice", "bob");
        let long = "k".repeat(256);
        let keys = [
            vec![],
            vec![("idempotency-key", "")],
            vec![("idempotency-key", &*long)],
            vec![("idempotency-key", "\"a")],
        ];
        for headers in keys.iter().chain([&vec![("idempotency-key", "a"), ("x-idempotency-key", "b")]]) {
            let answer =
                services.client.send(Method::POST, "/payment", headers, request.clone()).await.expect("an answer");
            assert_eq!(
                (answer.status, &*answer.content_type),
                (400, "application/problem+json"),
                "{headers:?} {answer:?}"
            );
        }
        let xml = [("content-type", "application/xml"), ("idempotency-key", "x")];
        let answer = services.client.send(Method::POST, "/payment", &xml, "<a/>").await.expect("an answer");
        assert_eq!((answer.status, &*answer.content_type), (415, "application/problem+json"), "{answer:?}");
        for (method, path, status) in [
            (Method::GET, "/payment/7", 400),
            (Method::GET, "/payment/%ff", 400),
            (Method::GET, "/payments/0197a6b0-8c1e-7d5b-9b3f-2a4c6e8f0a1b", 404),
            (Method::GET, "/payment", 405),
            (Method::DELETE, "/payment/0197a6b0-8c1e-7d5b-9b3f-2a4c6e8f0a1b", 405),
            (Method::GET, "/nothing", 404),
        ] {
            let answer = services.client.send(method.clone(), path, &[], "").await.expect("an answer");
            let found = (answer.status, &*answer.content_type);
            assert_eq!(found, (status, "application/problem+json"), "{method} {path} {answer:?}");
        }
        nothing_written(&services).await;
        services.stop().await;
    }
}

#[tokio::test]
async fn ac_075_amounts_that_are_not_positive_whole_numbers_are_refused() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Payment], &[]).await;
        for amount in ["0", "-1", "-1500", "-9223372036854775808", "1000000000000001"] {
            let answer = refused(&services.client, with_amount(amount)).await;
            assert_eq!(answer.status, 422, "{amount}: {answer:?}");
            assert!(answer.text.contains("must be from 1 to 1000000000000000 minor units"), "{answer:?}");
        }
        for amount in ["1.5", "1500.0", "1e3", "-0", "\"1500\"", "\"\"", "\"NaN\"", "null", "true", "[1]", "{}"] {
            let answer = refused(&services.client, with_amount(amount)).await;
            assert_eq!(answer.status, 400, "{amount}: {answer:?}");
            assert!(
                answer.text.contains("an amount in whole minor units (cents) such as 1500"),
                "{amount}: {answer:?}"
            );
        }
        for amount in ["NaN", "Infinity", "+1", "01", "0x10", "1_000", ".5", "1,5"] {
            let answer = refused(&services.client, with_amount(amount)).await;
            assert!(answer.status == 400 && answer.text.contains("not JSON"), "{amount}: {answer:?}");
        }
        nothing_written(&services).await;
        services.stop().await;
    }
}

#[tokio::test]
async fn ac_074_amounts_beyond_the_range_of_numbers_are_refused() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Payment], &[]).await;
        for (amount, status, said) in [
            ("9007199254740992", 422, "must be from 1 to"),
            ("9223372036854775807", 422, "must be from 1 to"),
            ("9223372036854775808", 400, "larger than any that can be paid"),
            ("18446744073709551615", 400, "larger than any that can be paid"),
            ("18446744073709551616", 400, "whole minor units"),
            ("99999999999999999999", 400, "whole minor units"),
            ("1e400", 400, "number out of range"),
        ] {
            let answer = refused(&services.client, with_amount(amount)).await;
            assert!(answer.status == status && answer.text.contains(said), "{amount}: {answer:?}");
        }
        nothing_written(&services).await;
        services.stop().await;
    }
}
