//! The same services on PostgreSQL, Kafka and Redis: nothing but settings changes.

mod support;

use futures::{StreamExt, stream};
use malote_testkit::servers::{self, Kafka};
use support::{Book, books::Books, client::body, program::Program};

#[tokio::test]
async fn a_thousand_payments_settle_on_real_servers() {
    let (Some(postgres), Some(redis)) = (servers::postgres(), servers::redis()) else { return };
    // its own, since topics are named after their events
    let Some(kafka) = Kafka::start_or_skip() else { return };
    let ending = servers::unique("payments");
    let database = |service: &str| postgres.create_database(&format!("{service}_{ending}")).expect("a database");
    let [payment, fraud, ledger, notification] = ["payment", "fraud", "ledger", "notification"].map(database);
    let folder = tempfile::tempdir().expect("a folder");
    let settings = [
        ("MALOTE_STORE", postgres.url(&format!("{{service}}_{ending}"))),
        ("MALOTE_TRANSPORT", format!("kafka://{}", kafka.bootstrap())),
        ("MALOTE_REDIS", redis),
    ];
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let program = Program::start(folder.path(), &settings).await;

    let (client, ending) = (&program.client, &ending);
    let sent = stream::iter(0..1000).map(|number| async move {
        let (key, request) = (format!("{ending}-{number}"), body(1500, "alice", "bob"));
        let first = client.pay(&key, request.clone()).await.expect("an answer");
        assert_eq!(first.status, 202, "{first:?}");
        let again = client.pay(&key, request).await.expect("an answer");
        assert!(again.replayed && again.id() == first.id(), "{again:?}");
    });
    sent.buffer_unordered(32).collect::<Vec<_>>().await;
    let poor = client.accepted(999_999_999, "carol", "bob").await;
    let ended = client.ended(&poor).await;
    assert!(ended["reason"] == "INSUFFICIENT_FUNDS" || ended["reason"] == "RISK", "{ended}");

    let books = Books {
        payment: Book::url(&payment).await,
        fraud: Book::url(&fraud).await,
        ledger: Book::url(&ledger).await,
        notification: Book::url(&notification).await,
    };
    books.quiet(1001).await;
    books.check(1001).await;
    let approved = books.fraud.number("SELECT count(*) FROM decisions WHERE approved").await;
    assert!((650..=750).contains(&approved), "{approved} of 1001 approved");
    let (stopped, _) = program.signal("TERM").await;
    assert!(stopped.success(), "{stopped}");
}
