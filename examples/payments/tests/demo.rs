//! The demonstration as a newcomer meets it: one process, nothing installed.

mod support;

use futures::{StreamExt, stream};
use reqwest::Method;
use support::{
    books::{Books, mails},
    client::{Client, body},
    program::Program,
};

const FIRST: &str = "11111111-1111-1111-1111-111111111111";
const SECOND: &str = "33333333-3333-3333-3333-333333333333";

/// The two requests of the description, as curl sends them.
async fn two_requests(client: &Client) -> [String; 2] {
    let headers = [("content-type", "application/json"), ("x-idempotency-key", FIRST)];
    let request = r#"{"amount": 1500, "from": "alice", "to": "bob"}"#;
    let first = client.send(Method::POST, "/payment", &headers, request).await.expect("an answer");
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("x-idempotency-key", SECOND)];
    let request = r#"{"amount": 999999999, "from": "carol", "to": "bob"}"#;
    let second = client.send(Method::POST, "/payment", &headers, request).await.expect("an answer");
    for answer in [&first, &second] {
        assert_eq!((answer.status, answer.content_type.as_str()), (202, "application/json"), "{answer:?}");
        assert_eq!(answer.json()["status"], "CREATED");
        assert_eq!(answer.location, Some(format!("/payment/{}", answer.id())));
    }
    let ended = client.ended(&first.id()).await;
    assert!(ended["status"] == "SETTLED" || (ended["status"] == "REJECTED" && ended["reason"] == "RISK"), "{ended}");
    let ended = client.ended(&second.id()).await;
    let failed = ended["status"] == "FAILED" && ended["reason"] == "INSUFFICIENT_FUNDS";
    assert!(failed || (ended["status"] == "REJECTED" && ended["reason"] == "RISK"), "{ended}");
    [first.id(), second.id()]
}

#[tokio::test]
async fn the_two_requests_end_and_the_next_start_remembers_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = Program::start(folder.path(), &[]).await;
    for said in ["\"amount\": 1500", "\"amount\": 999999999", "(edge)", "payment.approved.v1", "mailbox"] {
        assert!(program.banner.contains(said), "{}", program.banner);
    }
    let ids = two_requests(&program.client).await;
    let before = [program.client.ended(&ids[0]).await, program.client.ended(&ids[1]).await];
    let (ended, printed) = program.signal("INT").await;
    assert!(ended.success() && printed.contains("stopped"), "{ended} {printed}");

    let program = Program::start(folder.path(), &[]).await;
    assert_eq!([program.client.ended(&ids[0]).await, program.client.ended(&ids[1]).await], before);
    let again =
        program.client.pay(FIRST, r#"{"amount": 1500, "from": "alice", "to": "bob"}"#).await.expect("an answer");
    assert!(again.replayed && again.id() == ids[0], "{again:?}");
    let books = Books::files(folder.path()).await;
    books.quiet(2).await;
    books.check(2).await;
    assert_eq!(mails(&folder.path().join("mailbox")).len(), 2);
    let (ended, _) = program.signal("TERM").await;
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn a_thousand_payments_settle_as_they_should() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = Program::start(folder.path(), &[]).await;
    thousand(&program.client).await;
    let books = Books::files(folder.path()).await;
    books.quiet(1000).await;
    books.check(1000).await;
    let approved = books.fraud.number("SELECT count(*) FROM decisions WHERE approved").await;
    assert!((650..=750).contains(&approved), "{approved} of 1000 approved");
    assert_eq!(mails(&folder.path().join("mailbox")).len(), 1000);
}

#[tokio::test]
async fn four_processes_do_what_one_does() {
    let folder = tempfile::tempdir().expect("a folder");
    // each with its own port; the events go through one log
    let mut programs = Vec::new();
    for service in ["notification", "ledger", "fraud", "payment"] {
        let program = Program::start_one(service, folder.path(), &[]).await;
        program.client.ready().await;
        assert_eq!(program.client.get("/health").await.expect("an answer").status, 200);
        programs.push(program);
    }
    two_requests(&programs[3].client).await;
    let books = Books::files(folder.path()).await;
    books.quiet(2).await;
    books.check(2).await;
    for program in programs {
        let (ended, _) = program.signal("TERM").await;
        assert!(ended.success(), "{ended}");
    }
}

/// A thousand payments under fresh keys, every tenth sent twice at once.
async fn thousand(client: &Client) {
    let sent = stream::iter(0..1000).map(|number| async move {
        let (key, request) = (uuid::Uuid::now_v7().to_string(), body(1500, "alice", "bob"));
        let first = client.pay(&key, request.clone());
        if number % 10 != 0 {
            return assert_eq!(first.await.expect("an answer").status, 202);
        }
        let (first, second) = futures::join!(first, client.pay(&key, request.clone()));
        let statuses = [first.expect("an answer").status, second.expect("an answer").status];
        assert!(statuses.contains(&202) && statuses.iter().all(|s| [202, 409].contains(s)), "{statuses:?}");
        let again = client.pay(&key, request).await.expect("an answer");
        assert!(again.status == 202 && again.replayed, "{again:?}");
    });
    sent.buffer_unordered(32).collect::<Vec<_>>().await;
}

#[tokio::test]
async fn one_key_is_one_payment() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = Program::start(folder.path(), &[("MALOTE_FRAUD_APPROVE_PERCENT", "100")]).await;
    let request = body(1500, "alice", "bob");
    let first = program.client.pay("key", request.clone()).await.expect("an answer");
    let again = program.client.pay("\"key\"", request).await.expect("an answer");
    assert_eq!((first.id(), first.replayed, again.id(), again.replayed), (first.id(), false, first.id(), true));
    let other = program.client.pay("key", body(1501, "alice", "bob")).await.expect("an answer");
    assert_eq!((other.status, other.content_type.as_str()), (422, "application/problem+json"), "{other:?}");
    assert_eq!(program.client.ended(&first.id()).await["status"], "SETTLED");
    let books = Books::files(folder.path()).await;
    books.quiet(1).await;
    books.check(1).await;
}
