//! Keys in every form in which clients send them, and routes that are not there.

use crate::bench::{Bench, Front, Reply};
use malote::{
    edge::{Idempotency, Limits},
    sqlite::Sqlite,
};
use std::time::Duration;

const PAY: &str = r#"{"amount": 5}"#;

async fn bench() -> Bench<Sqlite> {
    Bench::start(Front::Alone).await.expect("SQLite is always there")
}

async fn with(bench: &Bench<Sqlite>, headers: &[(&str, &[u8])]) -> Reply {
    let request =
        headers.iter().fold(bench.request("/payment"), |request, (name, value)| request.header(*name, *value));
    Reply::of(request.body(PAY)).await
}

#[tokio::test]
async fn one_key_in_all_its_forms() {
    let bench = bench().await;
    let first = with(&bench, &[("idempotency-key", b"k-1")]).await;
    assert_eq!((first.status, first.replayed), (202, false));
    for form in [
        &[("Idempotency-Key", &b"\"k-1\""[..])][..],
        &[("idempotency-key", b" k-1 ")],
        &[("x-idempotency-key", b"k-1")],
        &[("X-Idempotency-Key", b"\"k-1\"")],
        &[("idempotency-key", b"\"k-1\""), ("x-idempotency-key", b"k-1")],
    ] {
        assert_eq!(with(&bench, form).await, first.again(), "{form:?}");
    }
    assert_eq!(*bench.desk.runs.borrow(), 1);
}

#[tokio::test]
async fn a_key_that_cannot_be_read_without_a_doubt_is_refused() {
    let bench = bench().await;
    let long = [b'k'; 256];
    for (form, hint) in [
        (&[][..], "needs a key"),
        (&[("idempotency-key", &b""[..])], "empty"),
        (&[("idempotency-key", b"\"\"")], "empty"),
        (&[("idempotency-key", &long)], "longer than 255"),
        (&[("idempotency-key", b"a\tb")], "space"),
        (&[("idempotency-key", b"\"a\tb\"")], "control"),
        (&[("idempotency-key", "ação".as_bytes())], "ASCII"),
        (&[("idempotency-key", b"a, b")], "comma"),
        (&[("idempotency-key", b"\"a")], "quotes"),
        (&[("idempotency-key", b"a"), ("x-idempotency-key", b"b")], "two different"),
        (&[("idempotency-key", b"a"), ("idempotency-key", b"b")], "two different"),
    ] {
        with(&bench, form).await.problem(400, hint);
    }
    assert_eq!(*bench.desk.runs.borrow(), 0);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let bench = bench().await;
    Reply::of(bench.request("/nowhere")).await.problem(404, "nothing at /nowhere");
    let get = reqwest::get(format!("http://{}/read", bench.address)).await.unwrap();
    assert_eq!(get.headers()["allow"], "POST");
    assert_eq!(get.headers()["content-type"], "application/problem+json");
    assert_eq!(get.status(), 405);
}

#[tokio::test]
async fn a_lease_that_is_too_short_for_the_work_is_refused() {
    let store = bench().await.store;
    let limits = Limits { work_time: Duration::from_secs(16), ..Limits::default() };
    let refused = Idempotency::new(store, "bank").limits(limits).err().expect("refused");
    assert!(refused.to_string().contains("at least twice the work time"), "{refused}");
}
