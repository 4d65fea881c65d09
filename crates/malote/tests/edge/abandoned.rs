//! Clients that leave.

use crate::bench::{Bank, Bench, Front};
use futures::{StreamExt, stream};
use std::{net::SocketAddr, time::Duration};
use tokio::{io::AsyncWriteExt, net::TcpStream};

on_each_edge!(
    ac_072_a_client_that_leaves_gets_its_payment_and_its_answer,
    ac_072_a_client_that_leaves_at_any_moment_locks_nothing,
    a_client_that_leaves_inside_its_body_has_asked_for_nothing,
);

const CLIENTS: usize = 300;

/// Sends a whole request, or its beginning.
async fn send(address: SocketAddr, key: &str, body: &str, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST /payment HTTP/1.1\r\nhost: bank\r\nidempotency-key: {key}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let end = request.len().min(bytes);
    stream.write_all(&request.as_bytes()[..end]).await.unwrap();
    stream
}

async fn ac_072_a_client_that_leaves_gets_its_payment_and_its_answer<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let body = r#"{"amount": 5, "hold": "inside"}"#;
    let client = send(bench.address, "k", body, usize::MAX).await;
    bench.desk.until_waiting(1).await;
    drop(client);
    // only once the server has seen that the client is gone does the work go on
    bench.until_connections(0).await;
    bench.desk.gate.add_permits(1);
    let answer = bench.pay_to_the_end("k", body).await;
    assert_eq!((answer.status, answer.replayed), (202, true), "{answer:?}");
    assert_eq!(bench.store.payments("k").await, 1);
    bench.store.until_nobody_is_inside().await;
}

async fn ac_072_a_client_that_leaves_at_any_moment_locks_nothing<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let body = r#"{"amount": 5}"#;
    let abandon = async |client: usize| {
        let connection = send(bench.address, &format!("k{client}"), body, usize::MAX).await;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=50))).await;
        drop(connection);
    };
    stream::iter(0..CLIENTS).map(abandon).buffer_unordered(32).collect::<Vec<()>>().await;
    let retry = async |client: usize| bench.pay_to_the_end(&format!("k{client}"), body).await;
    let replies: Vec<_> = stream::iter(0..CLIENTS).map(retry).buffer_unordered(8).collect().await;
    assert!(replies.iter().all(|reply| reply.status == 202), "{replies:?}");
    let twice = "select count(*) from (select key from payment group by key having count(*) <> 1) as wrong";
    assert_eq!(bench.store.count(twice).await, 0, "keys that did not make one payment");
    assert_eq!(bench.store.count("select count(*) from payment").await, i64::try_from(CLIENTS).unwrap());
    bench.store.until_nobody_is_inside().await;
}

async fn a_client_that_leaves_inside_its_body_has_asked_for_nothing<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let body = r#"{"amount": 5}"#;
    drop(send(bench.address, "k", body, 90).await);
    bench.until_connections(0).await;
    let first = bench.pay("k", body).await;
    assert_eq!((first.status, first.replayed), (202, false));
    assert_eq!(*bench.desk.runs.borrow(), 1);
}
