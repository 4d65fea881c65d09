//! What stands in the four databases.

use sqlx::{Connection, PgConnection, Row, postgres::PgRow};
use std::collections::BTreeMap;

/// What stands in the four databases.
#[derive(Debug, Default)]
pub struct Books {
    /// Status by payment.
    pub payments: BTreeMap<String, String>,
    /// Whether fraud approved, by payment.
    pub decisions: BTreeMap<String, bool>,
    /// Signed amounts, by payment: credits above zero.
    pub entries: BTreeMap<String, Vec<i64>>,
    /// Opening, balance, and the sum of the entries, by account.
    pub accounts: BTreeMap<String, [i64; 3]>,
    /// Notifications by payment.
    pub notices: BTreeMap<String, i64>,
    /// Outcomes that came to a payment which had one.
    pub refused: i64,
    /// Ids in the outboxes.
    pub outbox: Vec<String>,
    /// What was set aside, with the reason.
    pub dead: Vec<String>,
}

impl Books {
    /// Reads the databases; `url` gives a database's URL by the service's name.
    pub async fn read(url: impl Fn(&str) -> String) -> Result<Self, sqlx::Error> {
        let mut books = Self::default();
        let mut payment = PgConnection::connect(&url("payment")).await?;
        books.payments = map(&mut payment, "SELECT id, status FROM payments").await?;
        books.refused = sqlx::query_scalar("SELECT count(*) FROM refused_changes").fetch_one(&mut payment).await?;
        let mut fraud = PgConnection::connect(&url("fraud")).await?;
        books.decisions = map(&mut fraud, "SELECT payment_id, approved FROM decisions").await?;
        let mut ledger = PgConnection::connect(&url("ledger")).await?;
        let signed = "CASE side WHEN 'CREDIT' THEN amount ELSE -amount END";
        let entries = format!("SELECT payment_id, {signed} AS amount FROM entries");
        for row in rows(&mut ledger, &entries).await? {
            books.entries.entry(row.get(0)).or_default().push(row.get(1));
        }
        let accounts = format!(
            "SELECT name, opening, balance, coalesce(sum({signed}), 0)::bigint FROM accounts \
             LEFT JOIN entries ON account = name GROUP BY name, opening, balance"
        );
        for row in rows(&mut ledger, &accounts).await? {
            books.accounts.insert(row.get(0), [row.get(1), row.get(2), row.get(3)]);
        }
        let mut notification = PgConnection::connect(&url("notification")).await?;
        let notices = "SELECT payment_id, count(*) FROM notifications GROUP BY payment_id";
        books.notices = map(&mut notification, notices).await?;
        for database in [&mut payment, &mut fraud, &mut ledger, &mut notification] {
            let ids: Vec<String> =
                sqlx::query_scalar("SELECT id::text FROM malote.outbox").fetch_all(&mut *database).await?;
            books.outbox.extend(ids);
            let dead = "SELECT \"by\" || ': ' || what || ': ' || reason FROM malote.dead";
            books.dead.extend(sqlx::query_scalar::<_, String>(dead).fetch_all(&mut *database).await?);
        }
        Ok(books)
    }

    /// How many payments have not come to an end and been told of.
    pub async fn open(url: impl Fn(&str) -> String) -> Result<i64, sqlx::Error> {
        let mut payment = PgConnection::connect(&url("payment")).await?;
        let mut notification = PgConnection::connect(&url("notification")).await?;
        let all: i64 = sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut payment).await?;
        let created = "SELECT count(*) FROM payments WHERE status IN ('CREATED', 'UNDER_REVIEW')";
        let created: i64 = sqlx::query_scalar(created).fetch_one(&mut payment).await?;
        let told = "SELECT count(DISTINCT payment_id) FROM notifications";
        let told: i64 = sqlx::query_scalar(told).fetch_one(&mut notification).await?;
        Ok(created.max(all - told))
    }
}

async fn rows(db: &mut PgConnection, query: &str) -> Result<Vec<PgRow>, sqlx::Error> {
    sqlx::query(sqlx::AssertSqlSafe(query.to_owned())).fetch_all(db).await
}

async fn map<V>(db: &mut PgConnection, query: &'static str) -> Result<BTreeMap<String, V>, sqlx::Error>
where
    for<'r> V: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    Ok(rows(db, query).await?.iter().map(|row| (row.get(0), row.get(1))).collect())
}
