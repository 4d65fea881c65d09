//! What the services do with what they hear, said by their own or by a stranger.

mod support;

use payments::{
    app::Name,
    contracts::{PaymentApproved, PaymentFailed, PaymentSettled, Reason},
    money::MAX_BALANCE,
};
use support::{Services, books::mails, both, until};
use uuid::Uuid;

/// Everything that reaches fraud is approved, whatever its amount.
const TRUSTING: &[(&str, &str)] = &[
    ("MALOTE_FRAUD_APPROVE_PERCENT", "100"),
    ("MALOTE_FRAUD_LIMIT", "9223372036854775807"),
    ("MALOTE_MAX_AMOUNT", "9223372036854775807"),
];

fn approved(amount: i64, from: &str, to: &str) -> PaymentApproved {
    PaymentApproved { id: Uuid::now_v7(), amount, from: from.into(), to: to.into() }
}

#[tokio::test]
async fn a_payment_that_has_ended_refuses_another_end_and_records_it() {
    for store in both() {
        // without the others, so that the payment waits for its end
        let services = Services::run(store.clone(), &[Name::Payment], &[]).await;
        let id = services.client.accepted(1500, "alice", "bob").await;
        let stranger = services.stranger().await;
        let payment =
            PaymentSettled { id: id.parse().expect("a UUID"), amount: 1500, from: "alice".into(), to: "bob".into() };
        stranger.say(payment.clone()).await;
        let ended = services.client.ended(&id).await;
        assert_eq!(ended["status"], "SETTLED");

        let PaymentSettled { id: same, amount, from, to } = payment;
        stranger.say(PaymentFailed { id: same, amount, from, to, reason: Reason::UNKNOWN_ACCOUNT }).await;
        let book = services.book(Name::Payment).await;
        let recorded = "SELECT status || ' ' || wanted || ' ' || reason FROM refused_changes";
        let recorded = until("the refusal is recorded", || async {
            assert_eq!(services.client.ended(&id).await, ended);
            book.texts(recorded).await.pop()
        });
        assert_eq!(recorded.await, "SETTLED FAILED UNKNOWN_ACCOUNT");
        services.stop().await;
    }
}

#[tokio::test]
async fn a_payment_without_an_outcome_in_time_is_under_review_and_a_late_outcome_settles_it() {
    for store in both() {
        let soon = [("MALOTE_PAYMENT_DEADLINE_MS", "200")];
        let services = Services::run(store.clone(), &[Name::Payment], &soon).await;
        let id = services.client.accepted(1500, "alice", "bob").await;
        let under_review = || async {
            let payment = services.client.payment(&id).await;
            (payment["status"] == "UNDER_REVIEW").then_some(payment)
        };
        let payment = until("the payment is under review", under_review).await;
        assert!(payment["reason"].is_null() && payment["changed_at"] != payment["created_at"], "{payment}");
        let stranger = services.stranger().await;
        let id: Uuid = id.parse().expect("a UUID");
        stranger.say(PaymentSettled { id, amount: 1500, from: "alice".into(), to: "bob".into() }).await;
        assert_eq!(services.client.ended(&id.to_string()).await["status"], "SETTLED");
        services.stop().await;
    }
}

#[tokio::test]
async fn the_deadline_of_a_payment_that_has_ended_is_taken_back() {
    for store in both() {
        let services = Services::run(store.clone(), &Name::ALL, TRUSTING).await;
        let id = services.client.accepted(1500, "alice", "bob").await;
        let book = services.book(Name::Payment).await;
        assert_eq!(services.client.ended(&id).await["status"], "SETTLED");
        assert_eq!(book.number("SELECT count(*) FROM malote.scheduled").await, 0);
        services.stop().await;
    }
}

#[tokio::test]
async fn an_end_of_a_payment_that_nobody_made_is_set_aside() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Payment], &[]).await;
        let stranger = services.stranger().await;
        let PaymentApproved { id, amount, from, to } = approved(1, "alice", "bob");
        stranger.say(PaymentSettled { id, amount, from, to }).await;
        let book = services.book(Name::Payment).await;
        let reason =
            until("it is set aside", || async { book.texts("SELECT reason FROM malote.dead").await.pop() }).await;
        assert!(reason.contains("there is no payment"), "{reason}");
        services.client.accepted(1500, "alice", "bob").await;
        services.stop().await;
    }
}

#[tokio::test]
async fn the_ledger_says_why_it_moves_nothing() {
    for store in both() {
        let services = Services::run(store.clone(), &Name::ALL, TRUSTING).await;
        for (amount, from, to, reason) in [
            (1500, "alice", "alice", "SAME_ACCOUNT"),
            (1500, "alice", "nobody", "UNKNOWN_ACCOUNT"),
            (1500, "nobody", "alice", "UNKNOWN_ACCOUNT"),
            (1500, "ALICE", "bob", "UNKNOWN_ACCOUNT"),
            (1500, "'; DROP TABLE accounts; --", "bob", "UNKNOWN_ACCOUNT"),
            (500_001, "carol", "alice", "INSUFFICIENT_FUNDS"),
            (1_000_000_001, "alice", "carol", "INSUFFICIENT_FUNDS"),
        ] {
            let id = services.client.accepted(amount, from, to).await;
            let ended = services.client.ended(&id).await;
            assert_eq!((&ended["status"], &ended["reason"]), (&"FAILED".into(), &reason.into()), "{ended}");
        }
        let id = services.client.accepted(500_000, "carol", "alice").await;
        assert_eq!(services.client.ended(&id).await["status"], "SETTLED");
        let books = services.books().await;
        books.quiet(8).await;
        books.check(8).await;
        assert_eq!(books.ledger.number("SELECT balance FROM accounts WHERE name = 'carol'").await, 0);
        assert_eq!(mails(&services.path("mailbox")).len(), 8);
        services.stop().await;
    }
}

#[tokio::test]
async fn a_payment_that_is_approved_twice_moves_money_once() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Ledger], &[]).await;
        let stranger = services.stranger().await;
        let payment = approved(1500, "alice", "bob");
        stranger.say(payment.clone()).await;
        stranger.say(payment.clone()).await;
        // of another payment between the same accounts, so handled after both
        let last = PaymentApproved { id: payment.id, ..approved(0, "alice", "alice") };
        stranger.say(last).await;
        let book = services.book(Name::Ledger).await;
        until("all three are handled", || async {
            (book.number("SELECT count(*) FROM malote.inbox").await == 3).then_some(())
        })
        .await;
        let said = "SELECT count(*) FROM malote.outbox WHERE type = 'payment.settled.v1'";
        assert!(book.number(said).await <= 1, "said twice"); // or published and removed already
        assert_eq!(book.number("SELECT opening - balance FROM accounts WHERE name = 'alice'").await, 1500);
        assert_eq!(book.number("SELECT balance - opening FROM accounts WHERE name = 'bob'").await, 1500);
        services.stop().await;
    }
}

#[tokio::test]
async fn ac_075_a_negative_amount_on_the_topic_moves_nothing() {
    for store in both() {
        let services = Services::run(store.clone(), &[Name::Ledger], &[]).await;
        let (stranger, book) = (services.stranger().await, services.book(Name::Ledger).await);
        for amount in [-1500, 0, i64::MIN] {
            let payment = approved(amount, "alice", "bob");
            stranger.say(payment.clone()).await;
            let said = services.heard("payment.failed.v1", &payment.id.to_string()).await;
            assert!(said.contains("INVALID_AMOUNT"), "{said}");
        }
        assert_eq!(book.number("SELECT count(*) FROM entries").await, 0);
        assert_eq!(book.number("SELECT count(*) FROM accounts WHERE balance <> opening").await, 0);
        // and the database would not have it either
        let entry = "INSERT INTO entries (payment_id, side, account, amount) VALUES ('p', 'DEBIT', 'alice', -1500)";
        assert!(book.run(entry).await.is_err());
        services.stop().await;
    }
}

#[tokio::test]
async fn ac_074_a_sum_beyond_what_an_account_holds_fails_the_payment() {
    for store in both() {
        let services = Services::run(store.clone(), &Name::ALL, TRUSTING).await;
        let book = services.book(Name::Ledger).await;
        assert_eq!(MAX_BALANCE, 1_000_000_000_000_000_000);
        let rich = "INSERT INTO accounts (name, opening, balance) VALUES
        ('full', 999999999999999990, 999999999999999990), ('whale', 1000000000000000000, 1000000000000000000)";
        book.run(rich).await.expect("written");
        for (amount, from, to, reason) in [
            (11, "alice", "full", "BALANCE_TOO_LARGE"),
            (1_000_000_000_000_000_000, "whale", "full", "BALANCE_TOO_LARGE"),
            (i64::MAX, "whale", "full", "INSUFFICIENT_FUNDS"),
            (i64::MAX, "alice", "bob", "INSUFFICIENT_FUNDS"),
        ] {
            let id = services.client.accepted(amount, from, to).await;
            let ended = services.client.ended(&id).await;
            assert_eq!((&ended["status"], &ended["reason"]), (&"FAILED".into(), &reason.into()), "{ended}");
        }
        // the consumers are alive, and what fits goes through
        let id = services.client.accepted(10, "alice", "full").await;
        assert_eq!(services.client.ended(&id).await["status"], "SETTLED");
        services.books().await.check_money().await;
        services.stop().await;
    }
}

#[tokio::test]
async fn ac_073_large_amounts_keep_every_digit() {
    for store in both() {
        let services = Services::run(store.clone(), &Name::ALL, TRUSTING).await;
        let books = services.books().await;
        let whale = "INSERT INTO accounts (name, opening, balance) VALUES
        ('whale', 1000000000000000000, 1000000000000000000)";
        books.ledger.run(whale).await.expect("written");
        // 2^53 + 1: the first whole number that a double cannot hold
        let amount = 9_007_199_254_740_993;
        let id = services.client.accepted(amount, "whale", "bob").await;
        assert_eq!(services.client.ended(&id).await["status"], "SETTLED");
        let answer = services.client.get(&format!("/payment/{id}")).await.expect("an answer");
        assert!(answer.text.contains("\"amount\":9007199254740993,"), "{answer:?}");
        books.quiet(1).await;
        books.check_money().await;
        assert_eq!(books.ledger.number("SELECT min(amount) FROM entries").await, amount);
        assert_eq!(books.ledger.number("SELECT max(amount) FROM entries").await, amount);
        assert_eq!(books.fraud.number("SELECT amount FROM decisions").await, amount);
        for topic in ["payment.received.v1", "payment.approved.v1", "payment.settled.v1"] {
            let said = services.heard(topic, &id).await;
            assert!(said.contains("\"amount\":9007199254740993,"), "{said}");
        }
        let mails = mails(&services.path("mailbox"));
        assert!(mails[0].contains("90071992547409.93 from whale to bob"), "{mails:?}");
        services.stop().await;
    }
}

#[tokio::test]
async fn fraud_counts_what_an_account_pays_within_a_minute() {
    for store in both() {
        let settings = [("MALOTE_FRAUD_APPROVE_PERCENT", "100"), ("MALOTE_FRAUD_PER_MINUTE", "0")];
        let services = Services::run(store.clone(), &Name::ALL, &settings).await;
        let id = services.client.accepted(1500, "alice", "bob").await;
        let ended = services.client.ended(&id).await;
        assert_eq!((&ended["status"], &ended["reason"]), (&"REJECTED".into(), &"VELOCITY".into()), "{ended}");
        let books = services.books().await;
        books.quiet(1).await;
        books.check(1).await;
        services.stop().await;
    }
}
