//! Bodies that are not what they should be.

use crate::bench::{Bench, Front, Reply};
use malote::sqlite::Sqlite;

async fn bench() -> Bench<Sqlite> {
    Bench::start(Front::Alone).await.expect("SQLite is always there")
}

/// Through the layer and its handler, and through the extractor alone.
async fn both(bench: &Bench<Sqlite>, kind: Option<&str>, body: impl Into<reqwest::Body> + Clone) -> [Reply; 2] {
    let send = async |path: &str, key: String| {
        let request = bench.request(path).header("idempotency-key", key).body(body.clone());
        Reply::of(kind.into_iter().fold(request, |request, kind| request.header("content-type", kind))).await
    };
    [send("/payment", uuid::Uuid::now_v7().to_string()).await, send("/read", "unused".into()).await]
}

#[tokio::test]
async fn json_under_the_names_that_clients_give_it() {
    let bench = bench().await;
    let kinds = ["application/json", "application/json; charset=utf-8", "application/x-www-form-urlencoded"];
    for kind in [None, Some("application/merge-patch+json")].into_iter().chain(kinds.map(Some)) {
        let [paid, read] = both(&bench, kind, r#"{"amount": 9007199254740993}"#).await;
        assert_eq!(paid.status, 202, "{kind:?}: {paid:?}");
        assert!(paid.body.contains("9007199254740993"), "digits were lost: {}", paid.body);
        assert_eq!(read.body, r#"{"amount":9007199254740993}"#);
    }
    for kind in ["text/plain", "application/xml", "multipart/form-data; boundary=x", "json"] {
        for reply in both(&bench, Some(kind), r#"{"amount": 5}"#).await {
            reply.problem(415, "Content-Type: application/json");
        }
    }
}

#[tokio::test]
async fn each_bad_body_is_told_what_is_wrong() {
    let bench = bench().await;
    let deep = "[".repeat(30_000);
    for (body, hint) in [
        (&b""[..], "empty"),
        (b"amount=5", "not JSON"),
        (b"{\"amount\": 5", "not JSON"),
        (b"{\"amount\": \"\xff\"}", "not UTF-8"),
        (b"{\"amount\": 5, \"note\": \"a\\u0000b\"}", "NUL"),
        (b"{\"amount\": 5, \"note\": \"a\0b\"}", "NUL"),
        (deep.as_bytes(), "nested more than 64"),
    ] {
        for reply in both(&bench, None, body.to_vec()).await {
            reply.problem(400, hint);
        }
    }
    for (body, hint) in [
        ("{}", "missing field `amount`"),
        ("{\"amount\": \"5\"}", "invalid type: string"),
        ("{\"amount\": 5.5}", "invalid type: floating point"),
        ("{\"amount\": 9223372036854775808}", "invalid value"),
        ("{\"amount\": 5}x", "trailing"),
        ("[5]", "but no object"),
    ] {
        both(&bench, None, body).await[0].problem(400, hint);
    }
    assert_eq!(*bench.desk.runs.borrow(), 0);
}

/// With room for it: the nesting is refused before anything is parsed by recursion.
#[tokio::test]
async fn a_hundred_thousand_levels_are_refused() {
    let bench = bench().await;
    let nested = format!("{{\"amount\": 5, \"more\": {}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    for reply in both(&bench, None, nested).await {
        reply.problem(400, "nested more than 64");
    }
    for reply in both(&bench, None, "[".repeat(100_000)).await {
        reply.problem(413, "larger than");
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_however_it_is_sent() {
    let bench = bench().await;
    let padded = |bytes: usize| format!("{{\"amount\": 5{}}}", " ".repeat(bytes - 13));
    let at_the_limit = padded(64 * 1024);
    assert_eq!(both(&bench, None, at_the_limit).await.map(|reply| reply.status), [202, 200]);
    for bytes in [64 * 1024 + 1, 1024 * 1024] {
        for reply in both(&bench, None, padded(bytes)).await {
            reply.problem(413, "larger than the 65536 bytes");
        }
    }
    // without a length, and without an end
    let blank = || Ok::<_, std::io::Error>(hyper::body::Frame::data(bytes::Bytes::from_static(&[b' '; 4096])));
    let endless = http_body_util::StreamBody::new(futures::stream::repeat_with(blank));
    let request = bench.request("/payment").header("idempotency-key", "endless");
    Reply::of(request.body(reqwest::Body::wrap(endless))).await.problem(413, "larger than");
}

#[tokio::test]
async fn a_compressed_body_is_refused_in_words() {
    let bench = bench().await;
    let send = async |key: &str, coding: &str| {
        let request = bench.request("/payment").header("idempotency-key", key).header("content-encoding", coding);
        Reply::of(request.body("{\"amount\": 5}")).await
    };
    send("a", "gzip").await.problem(415, "compressed");
    assert_eq!(send("b", "identity").await.status, 202);
}
