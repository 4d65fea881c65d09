//! An HTTP client that knows the payments' interface.

use super::until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// An answer, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub location: Option<String>,
    pub replayed: bool,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn id(&self) -> String {
        self.json()["id"].as_str().unwrap_or_else(|| panic!("no id: {self:?}")).to_owned()
    }
}

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    pub fn new(address: &str) -> Self {
        Self { http: reqwest::Client::new(), base: format!("http://{address}") }
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    /// A request with these headers; an error when there was no answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Result<Answer, reqwest::Error> {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await?;
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Answer {
            status: answer.status().as_u16(),
            content_type: header("content-type").unwrap_or_default(),
            location: header("location"),
            replayed: header("idempotency-replayed").is_some(),
            text: answer.text().await?,
        })
    }

    /// A payment under a key, as JSON.
    pub async fn pay(&self, key: &str, body: impl Into<reqwest::Body>) -> Result<Answer, reqwest::Error> {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send(Method::POST, "/payment", &headers, body).await
    }

    /// A payment under a fresh key that must be accepted; its id.
    pub async fn accepted(&self, amount: i64, from: &str, to: &str) -> String {
        let key = uuid::Uuid::now_v7().to_string();
        let answer = self.pay(&key, body(amount, from, to)).await.expect("an answer");
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.id()
    }

    pub async fn get(&self, path: &str) -> Result<Answer, reqwest::Error> {
        self.send(Method::GET, path, &[], "").await
    }

    /// The payment as it is.
    pub async fn payment(&self, id: &str) -> Value {
        self.get(&format!("/payment/{id}")).await.expect("an answer").json()
    }

    /// The payment, once it has ended.
    pub async fn ended(&self, id: &str) -> Value {
        until(&format!("payment {id} ends"), || async {
            let answer = self.get(&format!("/payment/{id}")).await.ok()?;
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            let payment = answer.json();
            (!["CREATED", "UNDER_REVIEW"].iter().any(|open| payment["status"] == *open)).then_some(payment)
        })
        .await
    }

    /// Waits until every part is at work.
    pub async fn ready(&self) {
        until("the services are ready", || async { self.get("/ready").await.ok().filter(|a| a.status == 200) }).await;
    }
}

pub fn body(amount: i64, from: &str, to: &str) -> String {
    json!({"amount": amount, "from": from, "to": to}).to_string()
}
