//! The way to the outside payment provider.
//!
//! A call has a key, the operation's, and may be made again at will. When no answer comes, the provider is
//! asked what became of the key; when it does not say so either, the call is made again later. Only an
//! answer is an answer.

use malote::{Failure, IdempotencyKey, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The provider at an address.
#[derive(Clone, Debug)]
pub struct Provider {
    client: reqwest::Client,
    url: reqwest::Url,
}

/// A definite answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It was done.
    Done(Done),
    /// It was not, and will not be.
    Refused {
        /// For programs.
        code: String,
        /// For people.
        why: String,
    },
}

/// What was done; members that an answer does not have are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Done {
    /// The provider's name for what it holds.
    pub authorisation: String,
    /// How that stands now, or `NOTHING_DONE`.
    pub status: String,
    /// What it cost.
    pub fee: i64,
}

/// What became of a key.
#[derive(Deserialize)]
struct Became {
    state: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    answer: Value,
}

impl Provider {
    /// At an `http://` address; a call may take so long.
    pub fn new(url: reqwest::Url, patience: Duration) -> Result<Self, reqwest::Error> {
        Ok(Self { client: reqwest::Client::builder().timeout(patience).build()?, url })
    }

    /// Has an amount held on a card.
    pub async fn authorise(&self, key: &IdempotencyKey, order: &str, amount: i64, card: &str) -> Outcome<Said> {
        self.call("authorisations", key, json!({"reference": order, "amount": amount, "card": card})).await
    }

    /// Takes what is held.
    pub async fn capture(&self, key: &IdempotencyKey, authorisation: &str, amount: i64) -> Outcome<Said> {
        self.call("captures", key, json!({"authorisation": authorisation, "amount": amount})).await
    }

    /// Lets go what was authorised under the key `undone`, if anything was; then nothing ever will be.
    pub async fn void(&self, key: &IdempotencyKey, undone: &IdempotencyKey) -> Outcome<Said> {
        self.call("voids", key, json!({"operation": undone.0})).await
    }

    /// Gives back what was captured under the key `undone`, if anything was; then nothing ever will be.
    pub async fn refund(&self, key: &IdempotencyKey, undone: &IdempotencyKey) -> Outcome<Said> {
        self.call("refunds", key, json!({"operation": undone.0})).await
    }

    async fn call(&self, path: &str, key: &IdempotencyKey, body: Value) -> Outcome<Said> {
        let mut url = self.url.clone();
        url.set_path(path);
        let sent = self.client.post(url).header("Idempotency-Key", &key.0).json(&body).send().await;
        let answer = match sent {
            Ok(answer) => {
                let status = answer.status().as_u16();
                answer.json().await.map(|body| (status, body))
            }
            Err(silence) => Err(silence),
        };
        match answer {
            Ok((status, body)) => said(status, body),
            // the address may hold a secret
            Err(silence) => self.became(key, &silence.without_url().to_string()).await,
        }
    }

    /// Asks what became of a key that was not answered.
    async fn became(&self, key: &IdempotencyKey, silence: &str) -> Outcome<Said> {
        let mut url = self.url.clone();
        url.set_path("operations");
        let unknown = || Failure::retry(format!("the provider does not answer ({silence})"));
        let found = self.client.get(url).query(&[("key", &key.0)]).send().await.map_err(|_| unknown())?;
        let became: Became = found.json().await.map_err(|_| unknown())?;
        match became.state.as_str() {
            "done" => said(became.status, became.answer),
            "called off" => Ok(Said::Refused { code: "CALLED_OFF".into(), why: "it was undone before".into() }),
            state => Err(Failure::retry(format!("the provider did not answer ({silence}), and says: {state}"))),
        }
    }
}

fn said(status: u16, body: Value) -> Outcome<Said> {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    match status {
        201 => match Done::deserialize(&body) {
            Ok(done) => Ok(Said::Done(done)),
            Err(error) => Err(Failure::reject(format!("the provider's answer cannot be read: {error}"))),
        },
        402 | 410 => Ok(Said::Refused { code: text("code"), why: text("detail") }),
        422 if text("code") != "KEY_REUSED" => Ok(Said::Refused { code: text("code"), why: text("detail") }),
        400..=499 if !matches!(status, 408 | 409 | 425 | 429) => {
            Err(Failure::reject(format!("the provider answers {status} {}", text("code"))))
        }
        _ => Err(Failure::retry(format!("the provider answers {status} {}", text("code")))),
    }
}
