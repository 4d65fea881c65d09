//! A process that is killed again and again under load loses nothing and does nothing twice.

mod support;

use malote_testkit::servers::Port;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use support::{
    books::{Books, mails},
    client::{Client, body},
    program::Program,
    until,
};
use tokio::task::JoinSet;

const PAYMENTS: usize = 400;
const CLIENTS: usize = 8;
const KILLS: usize = 6;

/// Sends one client's share, each payment under its key until it is accepted; their ids.
async fn share(client: Client, mine: usize, accepted: Arc<AtomicUsize>) -> Vec<String> {
    let mut ids = Vec::new();
    for number in (mine..PAYMENTS).step_by(CLIENTS) {
        let (key, request) = (format!("kill-{number}"), body(1500, "alice", "bob"));
        let answer = until("the payment is accepted", || async {
            // whatever went wrong: again, under the same key
            client.pay(&key, request.clone()).await.ok().filter(|answer| answer.status == 202)
        });
        ids.push(answer.await.id());
        accepted.fetch_add(1, Ordering::Relaxed);
    }
    ids
}

#[tokio::test]
async fn kills_under_load_lose_nothing_and_repeat_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = Port::claim().expect("a port");
    let address = format!("127.0.0.1:{}", port.number());
    let settings = [("MALOTE_HTTP", &*address), ("MALOTE_LEASE_MS", "500"), ("MALOTE_REQUEST_MS", "700")];
    let mut program = Program::start(folder.path(), &settings).await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for mine in 0..CLIENTS {
        clients.spawn(share(Client::new(&address), mine, accepted.clone()));
    }
    for kill in 1..=KILLS {
        // somewhere within the next stretch of the load, so that work is in flight
        let reached = kill * PAYMENTS / (KILLS + 1) + fastrand::usize(..PAYMENTS / (KILLS + 1) / 2);
        until("the load goes on", || async { (accepted.load(Ordering::Relaxed) >= reached).then_some(()) }).await;
        program.kill().await;
        program = Program::start(folder.path(), &settings).await;
    }
    let ids: HashSet<String> = clients.join_all().await.into_iter().flatten().collect();
    assert_eq!(ids.len(), PAYMENTS, "two keys got one payment");

    let payments = i64::try_from(PAYMENTS).expect("few");
    let books = Books::files(folder.path()).await;
    books.quiet(payments).await;
    books.check(payments).await;
    let known: HashSet<String> = books.payment.texts("SELECT id FROM payments").await.into_iter().collect();
    assert_eq!(known, ids, "what was accepted is what is there");
    assert_eq!(mails(&folder.path().join("mailbox")).len(), PAYMENTS);
    let (ended, _) = program.signal("TERM").await;
    assert!(ended.success(), "{ended}");
}
