//! Clients that never come to an end.

use crate::bench::{Bench, Front, Setup};
use malote::{
    edge::{Limits, Server},
    sqlite::Sqlite,
};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const SHORT: Duration = Duration::from_millis(300);
/// A client that is still there after this will be there for ever.
const PATIENCE: Duration = Duration::from_secs(20);

async fn bench(server: Server, limits: Limits) -> Bench<Sqlite> {
    let setup = Setup { server, limits, ..Setup::default() };
    Bench::with(Front::Alone, setup).await.expect("SQLite is always there")
}

/// Everything the server says until it closes the connection, which it must.
async fn until_cut(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    // a reset is an end too
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("the connection stays open");
    String::from_utf8_lossy(&said).into_owned()
}

/// Sends a byte now and then, as long as somebody takes it.
async fn dribble(mut stream: tokio::net::tcp::OwnedWriteHalf) {
    while stream.write_all(b"x").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn send(bench: &Bench<Sqlite>, begin: &str) -> TcpStream {
    let mut stream = TcpStream::connect(bench.address).await.unwrap();
    stream.write_all(begin.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_header_that_never_ends_is_cut() {
    let bench = bench(Server { header_time: SHORT, ..Server::default() }, Limits::default()).await;
    for begin in ["", "POST /payment HTTP/1.1\r\nhost: bank\r\nx-slow: "] {
        until_cut(send(&bench, begin).await).await;
        let (mut read, write) = send(&bench, begin).await.into_split();
        let dribbling = tokio::spawn(dribble(write));
        let cut = tokio::time::timeout(PATIENCE, read.read_to_end(&mut Vec::new())).await;
        assert!(cut.is_ok(), "a client that dribbles stays");
        dribbling.abort();
    }
}

/// What is no HTTP never comes to a handler, and is told what is wrong all the same.
#[tokio::test]
async fn what_cannot_be_read_as_a_request_is_a_problem_too() {
    let bench = bench(Server::default(), Limits::default()).await;
    let many = format!("GET /x HTTP/1.1\r\nhost: bank\r\n{}\r\n", "x-many: 1\r\n".repeat(200));
    let long = format!("GET /{} HTTP/1.1\r\nhost: bank\r\n\r\n", "x".repeat(70_000));
    for (begin, status) in [
        ("hello\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nhost: bank\r\nno colon\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nbad\0name: 1\r\n\r\n", 400),
        ("POST /payment HTTP/1.1\r\nhost: bank\r\ncontent-length: many\r\n\r\n", 400),
        (&*many, 431),
        (&*long, 414),
    ] {
        let said = until_cut(send(&bench, begin).await).await;
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{begin:.40}: {said}"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{begin:.40}: {said}");
        assert!(head.contains("content-type: application/problem+json"), "{said}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 20), "{problem}");
    }
}

#[tokio::test]
async fn a_connection_that_lies_idle_is_cut() {
    let bench = bench(Server { header_time: SHORT, ..Server::default() }, Limits::default()).await;
    let said = until_cut(send(&bench, "GET /nowhere HTTP/1.1\r\nhost: bank\r\n\r\n").await).await;
    assert!(said.starts_with("HTTP/1.1 404"), "{said}");
}

const BEGIN: &str = "POST /payment HTTP/1.1\r\nhost: bank\r\nidempotency-key: k\r\ncontent-length: 5000\r\n\r\n{";
const ALONE: &str = "POST /read HTTP/1.1\r\nhost: bank\r\ncontent-length: 5000\r\n\r\n{";

/// By the layer's limit, and by the server's where there is no layer.
#[tokio::test]
async fn a_body_that_never_ends_is_cut() {
    for (begin, server, limits) in [
        (BEGIN, Server::default(), Limits { body_time: SHORT, ..Limits::default() }),
        (BEGIN, Server { body_time: SHORT, ..Server::default() }, Limits::default()),
        (ALONE, Server { body_time: SHORT, ..Server::default() }, Limits::default()),
    ] {
        let bench = bench(server, limits).await;
        let said = until_cut(send(&bench, begin).await).await;
        assert!(said.starts_with("HTTP/1.1 408") && said.contains("did not arrive"), "{said}");
        let (mut read, write) = send(&bench, begin).await.into_split();
        let dribbling = tokio::spawn(dribble(write));
        let cut = tokio::time::timeout(PATIENCE, read.read_to_end(&mut Vec::new())).await;
        assert!(cut.is_ok(), "a client that dribbles stays");
        dribbling.abort();
        assert_eq!(*bench.desk.runs.borrow(), 0);
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut() {
    let server = Server { write_time: SHORT, connections: 1, ..Server::default() };
    let bench = bench(server, Limits::default()).await;
    let greedy = send(&bench, "GET /large HTTP/1.1\r\nhost: bank\r\n\r\n").await;
    // there is room for one, so the next is served once the first is gone
    let next = tokio::time::timeout(PATIENCE, bench.pay("k", r#"{"amount": 5}"#)).await;
    assert_eq!(next.expect("the first keeps its place").status, 202);
    drop(greedy);
}

#[tokio::test]
async fn connections_above_the_cap_wait() {
    let bench = bench(Server { connections: 2, ..Server::default() }, Limits::default()).await;
    let clients = (0..30).map(|_| async {
        let begin = "GET /busy HTTP/1.1\r\nhost: bank\r\nconnection: close\r\n\r\n";
        let said = until_cut(send(&bench, begin).await).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    });
    futures::future::join_all(clients).await;
    assert_eq!(bench.desk.busy.lock().unwrap().1, 2, "connections served at once");
}
