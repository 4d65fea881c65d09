//! Looks into the services' databases by plain SQL, and checks what must hold when all is quiet.

use super::{Book, until};
use std::path::Path;

/// The databases of the four services.
pub struct Books {
    pub payment: Book,
    pub fraud: Book,
    pub ledger: Book,
    pub notification: Book,
}

impl Books {
    /// Those of services that keep SQLite files in a folder.
    pub async fn files(folder: &Path) -> Self {
        let file = |name: &str| folder.join(format!("{name}.db"));
        Self {
            payment: Book::file(&file("payment")).await,
            fraud: Book::file(&file("fraud")).await,
            ledger: Book::file(&file("ledger")).await,
            notification: Book::file(&file("notification")).await,
        }
    }

    /// Waits until every payment has ended and every end was told.
    pub async fn quiet(&self, payments: i64) {
        until("every payment ends", || async {
            let open =
                self.payment.number("SELECT count(*) FROM payments WHERE status IN ('CREATED', 'UNDER_REVIEW')").await;
            (open == 0).then_some(())
        })
        .await;
        until("every end is told", || async {
            let told = self.notification.number("SELECT count(*) FROM notifications").await;
            (told >= payments).then_some(())
        })
        .await;
    }

    /// What must hold when all is quiet, `payments` having been accepted.
    pub async fn check(&self, payments: i64) {
        let all = "SELECT count(*) FROM payments";
        assert_eq!(self.payment.number(all).await, payments, "a payment was lost or made twice");
        assert_eq!(
            self.payment.number("SELECT count(*) FROM payments WHERE status IN ('CREATED', 'UNDER_REVIEW')").await,
            0
        );
        assert_eq!(self.payment.number("SELECT count(*) FROM refused_changes").await, 0);
        assert_eq!(self.fraud.number("SELECT count(*) FROM decisions").await, payments);
        self.check_agreement().await;
        self.check_money().await;
        let told = "SELECT count(DISTINCT payment_id) FROM notifications";
        assert_eq!(self.notification.number(told).await, payments, "an end was not told");
        assert_eq!(self.notification.number("SELECT count(*) FROM notifications").await, payments, "told twice");
    }

    /// The services agree on what became of each payment.
    async fn check_agreement(&self) {
        let rejected = "SELECT id FROM payments WHERE status = 'REJECTED' ORDER BY id";
        let refused = "SELECT payment_id FROM decisions WHERE NOT approved ORDER BY payment_id";
        assert_eq!(self.payment.texts(rejected).await, self.fraud.texts(refused).await);
        let settled = "SELECT id FROM payments WHERE status = 'SETTLED' ORDER BY id";
        let booked = "SELECT payment_id FROM entries WHERE side = 'DEBIT' ORDER BY payment_id";
        assert_eq!(self.payment.texts(settled).await, self.ledger.texts(booked).await);
    }

    /// No money came or went; each payment that was booked has two entries that sum to zero; each
    /// account holds what its entries say.
    pub async fn check_money(&self) {
        let changed = "SELECT CAST(sum(balance) - sum(opening) AS BIGINT) FROM accounts";
        assert_eq!(self.ledger.number(changed).await, 0, "money came or went");
        let halves = "SELECT count(*) FROM (SELECT payment_id FROM entries GROUP BY payment_id
             HAVING count(*) <> 2 OR sum(CASE side WHEN 'DEBIT' THEN -amount ELSE amount END) <> 0) AS halves";
        assert_eq!(self.ledger.number(halves).await, 0, "a payment without its two entries");
        let wrong = "SELECT count(*) FROM accounts WHERE balance <> opening + (
             SELECT coalesce(sum(CASE side WHEN 'DEBIT' THEN -amount ELSE amount END), 0)
               FROM entries WHERE account = accounts.name)";
        assert_eq!(self.ledger.number(wrong).await, 0, "a balance that its entries do not explain");
    }
}

/// The mails in a mailbox folder, by their text; nothing half-written among them.
pub fn mails(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a mailbox").map(|entry| entry.expect("readable").path());
    let mails = entries.filter(|path| path.extension().is_some_and(|ending| ending == "txt"));
    mails.map(|path| std::fs::read_to_string(path).expect("readable")).collect()
}
