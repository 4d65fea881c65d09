//! Stopping in order.

use crate::bench::{Bank, Bench, Front, LONG, Setup, until};
use malote::{edge::Server, sqlite::Sqlite};
use std::time::Duration;
use tokio::{io::AsyncWriteExt, net::TcpStream};

const HELD: &str = r#"{"amount": 5, "hold": "before"}"#;

async fn bench(grace: Duration) -> Bench<Sqlite> {
    let setup = Setup { server: Server { grace, ..Server::default() }, ..Setup::default() };
    Bench::with(Front::Alone, setup).await.expect("SQLite is always there")
}

async fn until_closed(bench: &Bench<Sqlite>) {
    until("the port is closed", || async { TcpStream::connect(bench.address).await.is_err() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_work_is_answered_and_the_port_is_closed() {
    let bench = bench(LONG).await;
    let idle = TcpStream::connect(bench.address).await.unwrap();
    let held = bench.pay_beside("k", HELD);
    bench.desk.until_waiting(1).await;
    bench.stop.cancel();
    until_closed(&bench).await;
    bench.desk.gate.add_permits(1);
    assert_eq!(held.await.unwrap().status, 202);
    tokio::time::timeout(LONG, bench.serving).await.expect("it stops").unwrap().unwrap();
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_without_its_client_is_waited_for() {
    let mut bench = bench(LONG).await;
    let mut client = TcpStream::connect(bench.address).await.unwrap();
    let request = format!(
        "POST /payment HTTP/1.1\r\nhost: bank\r\nidempotency-key: k\r\ncontent-length: {}\r\n\r\n{HELD}",
        HELD.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    bench.desk.until_waiting(1).await;
    drop(client);
    bench.until_connections(0).await;
    bench.stop.cancel();
    until_closed(&bench).await;
    tokio::select! {
        biased;
        () = tokio::task::yield_now() => {}
        _ = &mut bench.serving => panic!("it did not wait for the work"),
    }
    bench.desk.gate.add_permits(1);
    tokio::time::timeout(LONG, bench.serving).await.expect("it stops").unwrap().unwrap();
    assert_eq!(bench.store.payments("k").await, 1, "it did not wait for the work");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_outlasts_the_grace_time_is_cut() {
    let bench = bench(Duration::from_millis(100)).await;
    let held = bench.pay_beside("k", HELD);
    bench.desk.until_waiting(1).await;
    let mut half = TcpStream::connect(bench.address).await.unwrap();
    half.write_all(b"POST /payment HT").await.unwrap();
    bench.stop.cancel();
    // before the client itself gives up
    tokio::time::timeout(LONG / 2, bench.serving).await.expect("it stops").unwrap().unwrap();
    assert!(held.await.is_err(), "it was answered");
}
