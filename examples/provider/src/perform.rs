//! The work itself: what is asked under a key, done once.

use crate::{Book, Faults};
use malote_core::planted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{Sqlite, Transaction};
use uuid::Uuid;

/// What a refund costs the merchant, in minor units.
const REFUND_FEE: i64 = 30;

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    Authorise(Authorise),
    Capture(Capture),
    Void(Undo),
    Refund(Undo),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Authorise {
    pub reference: String,
    pub amount: i64,
    pub card: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Capture {
    pub authorisation: String,
    pub amount: i64,
}

/// By the key under which it was done: whoever lost the answer knows no other name for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Undo {
    pub operation: String,
}

/// An answer, and whether the work was done just now.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Value,
    pub fresh: bool,
}

impl Answer {
    fn new(status: u16, body: Value) -> Self {
        Self { status, body, fresh: true }
    }

    pub fn refused(status: u16, code: &str, detail: &str) -> Self {
        Self::new(status, json!({"code": code, "detail": detail}))
    }
}

/// An effect that goes with an answer.
struct Done {
    kind: &'static str,
    authorisation: String,
    amount: i64,
    fee: i64,
    /// What the authorisation becomes, unless it is new.
    becomes: &'static str,
}

type Tx = Transaction<'static, Sqlite>;
type Decided = (Answer, Option<Done>);

type Row = (String, i64, String, String);

struct Authorisation {
    id: String,
    amount: i64,
    card: String,
    status: String,
}

impl From<Row> for Authorisation {
    fn from((id, amount, card, status): Row) -> Self {
        Self { id, amount, card, status }
    }
}

impl Book {
    /// Does what is asked, unless it was done under this key; answer and effect are one transaction.
    pub(crate) async fn perform(&self, key: &str, request: &Request, faults: &Faults) -> Result<Answer, sqlx::Error> {
        let mut tx = self.0.begin().await?;
        let hash = hash(request);
        let known = sqlx::query_as("SELECT request, status, answer FROM operations WHERE key = $1");
        let known: Option<(String, u16, String)> = known.bind(key).fetch_optional(&mut *tx).await?;
        if let Some((request, status, answer)) = known.filter(|_| !planted::is("provider-key-forgotten")) {
            return Ok(match request.is_empty() || request == hash {
                true => Answer { status, body: serde_json::from_str(&answer).unwrap_or_default(), fresh: false },
                false => Answer::refused(422, "KEY_REUSED", "the key was used for another request"),
            });
        }
        let (answer, done) = match request {
            Request::Authorise(asked) => authorise(asked, key, faults),
            Request::Capture(asked) => capture(&mut tx, asked).await?,
            Request::Void(asked) => void(&mut tx, asked).await?,
            Request::Refund(asked) => refund(&mut tx, asked, faults).await?,
        };
        write_operation(&mut tx, key, &hash, &answer).await?;
        if let Some(done) = done {
            write_effect(&mut tx, key, request, &done).await?;
        }
        tx.commit().await?;
        Ok(answer)
    }

    /// The card that a request is about, where it is known.
    pub(crate) async fn card(&self, request: &Request) -> Result<Option<String>, sqlx::Error> {
        let (by, name) = match request {
            Request::Authorise(asked) => return Ok(Some(asked.card.clone())),
            Request::Capture(asked) => ("SELECT card FROM authorisations WHERE id = $1", &asked.authorisation),
            Request::Void(asked) | Request::Refund(asked) => (
                "SELECT card FROM authorisations JOIN effects ON authorisation = id WHERE effects.key = $1",
                &asked.operation,
            ),
        };
        sqlx::query_scalar(by).bind(name).fetch_optional(&self.0).await
    }
}

/// Of what is asked, whatever the order of its members was.
fn hash(request: &Request) -> String {
    let digest = Sha256::digest(json!(request).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn write_operation(tx: &mut Tx, key: &str, hash: &str, answer: &Answer) -> Result<(), sqlx::Error> {
    let insert = match planted::is("provider-key-forgotten") {
        true => "INSERT OR REPLACE INTO operations (key, request, status, answer) VALUES ($1, $2, $3, $4)",
        false => "INSERT INTO operations (key, request, status, answer) VALUES ($1, $2, $3, $4)",
    };
    let insert = sqlx::query(insert).bind(key).bind(hash).bind(answer.status).bind(answer.body.to_string());
    insert.execute(&mut **tx).await.map(drop)
}

async fn write_effect(tx: &mut Tx, key: &str, request: &Request, done: &Done) -> Result<(), sqlx::Error> {
    let authorisation = match request {
        Request::Authorise(asked) => {
            sqlx::query("INSERT INTO authorisations (id, reference, amount, card, key) VALUES ($1, $2, $3, $4, $5)")
                .bind(&done.authorisation)
                .bind(&asked.reference)
                .bind(asked.amount)
                .bind(&asked.card)
                .bind(key)
        }
        _ => sqlx::query("UPDATE authorisations SET status = $2 WHERE id = $1")
            .bind(&done.authorisation)
            .bind(done.becomes),
    };
    authorisation.execute(&mut **tx).await?;
    sqlx::query("INSERT INTO effects (kind, authorisation, amount, fee, key) VALUES ($1, $2, $3, $4, $5)")
        .bind(done.kind)
        .bind(&done.authorisation)
        .bind(done.amount)
        .bind(done.fee)
        .bind(key)
        .execute(&mut **tx)
        .await
        .map(drop)
}

fn authorise(asked: &Authorise, key: &str, faults: &Faults) -> Decided {
    if asked.amount <= 0 {
        return (Answer::refused(422, "INVALID_AMOUNT", "the amount must be positive"), None);
    }
    if faults.declines(key) || (faults.cards && asked.card == "tok_declined") {
        return (Answer::refused(402, "DECLINED", "the card was declined"), None);
    }
    let id = format!("auth_{}", Uuid::now_v7().simple());
    let body = json!({"authorisation": id, "status": "AUTHORISED", "amount": asked.amount});
    let done = Done { kind: "authorise", authorisation: id, amount: asked.amount, fee: 0, becomes: "AUTHORISED" };
    (Answer::new(201, body), Some(done))
}

async fn capture(tx: &mut Tx, asked: &Capture) -> Result<Decided, sqlx::Error> {
    let find = sqlx::query_as("SELECT id, amount, card, status FROM authorisations WHERE id = $1");
    let found: Option<Row> = find.bind(&asked.authorisation).fetch_optional(&mut **tx).await?;
    Ok(match found.map(Authorisation::from) {
        Some(it) if it.status == "AUTHORISED" && it.amount == asked.amount => {
            let body = json!({"authorisation": it.id, "status": "CAPTURED", "amount": it.amount});
            let done = Done { kind: "capture", authorisation: it.id, amount: it.amount, fee: 0, becomes: "CAPTURED" };
            (Answer::new(201, body), Some(done))
        }
        Some(it) if it.status == "AUTHORISED" => {
            (Answer::refused(422, "NOT_CAPTURABLE", &format!("{} were authorised", it.amount)), None)
        }
        Some(it) => (Answer::refused(422, "NOT_CAPTURABLE", &format!("the authorisation is {}", it.status)), None),
        None => (Answer::refused(422, "NOT_CAPTURABLE", "there is no such authorisation"), None),
    })
}

async fn void(tx: &mut Tx, asked: &Undo) -> Result<Decided, sqlx::Error> {
    let Some(it) = done_under(tx, &asked.operation, "authorise").await? else {
        return nothing_done(tx, &asked.operation).await;
    };
    let body = |status: &str| json!({"authorisation": it.id, "status": status, "amount": it.amount});
    Ok(match it.status.as_str() {
        "AUTHORISED" => {
            let body = body("VOIDED");
            let done = Done { kind: "void", authorisation: it.id, amount: it.amount, fee: 0, becomes: "VOIDED" };
            (Answer::new(201, body), Some(done))
        }
        "CAPTURED" => (Answer::refused(422, "CAPTURED", "it was captured: refund it"), None),
        status => (Answer::new(201, body(status)), None), // nothing of it is left
    })
}

async fn refund(tx: &mut Tx, asked: &Undo, faults: &Faults) -> Result<Decided, sqlx::Error> {
    let Some(it) = done_under(tx, &asked.operation, "capture").await? else {
        return nothing_done(tx, &asked.operation).await;
    };
    let body = json!({"authorisation": it.id, "status": "REFUNDED", "amount": it.amount, "fee": REFUND_FEE});
    Ok(match it.status.as_str() {
        "CAPTURED" if faults.cards && it.card == "tok_refund_fails" => {
            (Answer::refused(422, "REFUND_FAILED", "the card's bank takes no refunds"), None)
        }
        "CAPTURED" => {
            let done =
                Done { kind: "refund", authorisation: it.id, amount: it.amount, fee: REFUND_FEE, becomes: "REFUNDED" };
            (Answer::new(201, body), Some(done))
        }
        _ => (Answer::new(201, body), None), // was refunded before
    })
}

/// The authorisation to which something was done under a key.
async fn done_under(tx: &mut Tx, key: &str, kind: &str) -> Result<Option<Authorisation>, sqlx::Error> {
    let find = "SELECT id, authorisations.amount, card, status FROM authorisations
                  JOIN effects ON authorisation = id WHERE effects.key = $1 AND kind = $2";
    let found: Option<Row> = sqlx::query_as(find).bind(key).bind(kind).fetch_optional(&mut **tx).await?;
    Ok(found.map(Authorisation::from))
}

/// Nothing was done under a key, and nothing will be: where it has not come yet, it is called off.
async fn nothing_done(tx: &mut Tx, key: &str) -> Result<Decided, sqlx::Error> {
    if !planted::is("provider-call-off-forgotten") {
        let off = Answer::refused(410, "CALLED_OFF", "it was undone before it came");
        let insert = "INSERT INTO operations (key, request, status, answer) VALUES ($1, '', $2, $3)
                      ON CONFLICT DO NOTHING";
        sqlx::query(insert).bind(key).bind(off.status).bind(off.body.to_string()).execute(&mut **tx).await?;
    }
    Ok((Answer::new(201, json!({"status": "NOTHING_DONE"})), None))
}
