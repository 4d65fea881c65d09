//! The interface: takes a request, lets it suffer its faults, and answers.

use crate::{
    Book, Faults,
    perform::{Answer, Authorise, Capture, Request, Undo},
    serve::Lost,
};
use axum::{
    Json, Router,
    extract::{Query, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use malote_core::planted;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The provider: its book, and which keys are being worked on.
#[derive(Clone)]
pub struct Provider {
    book: Book,
    running: Arc<Mutex<HashSet<String>>>,
}

/// A key that is being worked on, until this is dropped.
struct Running(Arc<Mutex<HashSet<String>>>, String);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// What a client sees of a request.
enum Seen {
    Answer(Answer),
    /// The answer is lost.
    Nothing,
}

impl Provider {
    /// On this book.
    pub fn new(book: Book) -> Self {
        Self { book, running: Arc::default() }
    }

    fn enter(&self, key: &str) -> Option<Running> {
        let free = self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        (free || planted::is("provider-running-forgotten")).then(|| Running(self.running.clone(), key.to_owned()))
    }

    fn is_running(&self, key: &str) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// What became of a key; nothing where that is not told.
    async fn became(&self, key: &str) -> Result<Option<Value>, sqlx::Error> {
        let faults = self.book.faults().await?;
        if faults.mute_percent > 0 && !faults.tells(key, self.book.count(&format!("?{key}")).await?) {
            return Ok(None);
        }
        // in this order: what ends in between is found in the book
        let running = self.is_running(key);
        let found = self.book.operation(key).await?;
        Ok(Some(match running && found["state"] == "unknown" {
            true => json!({"key": key, "state": "running"}),
            false => found,
        }))
    }

    /// A request with everything that happens to it.
    async fn work(self, key: String, request: Request) -> Result<Seen, sqlx::Error> {
        let Some(running) = self.enter(&key) else {
            let detail = "a request under this key is still being worked on";
            return Ok(Seen::Answer(Answer::refused(409, "KEY_RUNNING", detail)));
        };
        let faults = self.book.faults().await?;
        let drawn = faults.draw(&key, self.book.count(&key).await?);
        let card = self.book.card(&request).await?.filter(|_| faults.cards).unwrap_or_default();
        if drawn.slow || card == "tok_slow" {
            tokio::time::sleep(Duration::from_millis(faults.slow_ms)).await;
        }
        if drawn.error {
            return Ok(Seen::Answer(Answer::refused(503, "UNAVAILABLE", "nothing was done; try again")));
        }
        let answer = self.book.perform(&key, &request, &faults).await?;
        drop(running); // the work is done; only its answer may be late
        if drawn.timeout || (card == "tok_timeout" && answer.fresh) {
            tokio::time::sleep(Duration::from_millis(faults.timeout_ms)).await;
            return Ok(Seen::Nothing);
        }
        if drawn.lose {
            return Ok(Seen::Nothing);
        }
        Ok(Seen::Answer(answer))
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body)).into_response()
    }
}

/// Everything that the provider answers.
pub fn router(provider: Provider) -> Router {
    Router::new()
        .route("/authorisations", post(authorise))
        .route("/captures", post(capture))
        .route("/voids", post(void))
        .route("/refunds", post(refund))
        .route("/operations", get(operation))
        .route("/book", get(book))
        .route("/faults", get(faults).put(set_faults))
        .route("/health", get(|| async { Json(json!({"status": "alive"})) }))
        .with_state(provider)
}

type Body<T> = Result<Json<T>, JsonRejection>;

async fn authorise(State(provider): State<Provider>, headers: HeaderMap, body: Body<Authorise>) -> Response {
    answer(provider, &headers, body, Request::Authorise).await
}

async fn capture(State(provider): State<Provider>, headers: HeaderMap, body: Body<Capture>) -> Response {
    answer(provider, &headers, body, Request::Capture).await
}

async fn void(State(provider): State<Provider>, headers: HeaderMap, body: Body<Undo>) -> Response {
    answer(provider, &headers, body, Request::Void).await
}

async fn refund(State(provider): State<Provider>, headers: HeaderMap, body: Body<Undo>) -> Response {
    answer(provider, &headers, body, Request::Refund).await
}

async fn answer<T: DeserializeOwned>(
    provider: Provider,
    headers: &HeaderMap,
    body: Body<T>,
    request: impl Fn(T) -> Request,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).filter(|key| !key.is_empty());
    let (key, body) = match (key, body) {
        (Some(key), Ok(Json(body))) => (key.to_owned(), request(body)),
        (None, _) => {
            return Answer::refused(400, "KEY_MISSING", "the header Idempotency-Key is missing").into_response();
        }
        (_, Err(bad)) => return Answer::refused(400, "BAD_REQUEST", &bad.body_text()).into_response(),
    };
    if matches!(&body, Request::Void(undo) | Request::Refund(undo) if undo.operation == key) {
        return Answer::refused(400, "BAD_REQUEST", "a request cannot undo itself: use a key of its own")
            .into_response();
    }
    // in a task of its own: a client that has gone away does not stop what it has asked for
    match tokio::spawn(provider.work(key, body)).await {
        Ok(Ok(Seen::Answer(answer))) => answer.into_response(),
        Ok(Ok(Seen::Nothing)) => Lost::response(),
        Ok(Err(error)) => broken(&error),
        Err(error) => broken(&error),
    }
}

/// The cause is for whoever runs the provider, not for its clients.
fn broken(error: &dyn std::error::Error) -> Response {
    eprintln!("provider: {error}");
    Answer::refused(500, "BROKEN", "it is not known whether anything was done; ask again under the same key")
        .into_response()
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

async fn operation(State(provider): State<Provider>, Query(Key { key }): Query<Key>) -> Response {
    match provider.became(&key).await {
        Ok(None) => Answer::refused(503, "UNAVAILABLE", "ask again").into_response(),
        Ok(Some(found)) => Json(found).into_response(),
        Err(error) => broken(&error),
    }
}

async fn book(State(provider): State<Provider>) -> Response {
    match provider.book.effects().await {
        Ok(effects) => Json(json!({"effects": effects})).into_response(),
        Err(error) => broken(&error),
    }
}

async fn faults(State(provider): State<Provider>) -> Response {
    match provider.book.faults().await {
        Ok(faults) => Json(faults).into_response(),
        Err(error) => broken(&error),
    }
}

/// What is not said is as when nothing is set.
async fn set_faults(State(provider): State<Provider>, body: Body<Value>) -> Response {
    let read = |Json(body)| serde_json::from_value::<Faults>(body).map_err(|error| error.to_string());
    let faults = body.map_err(|bad| bad.body_text()).and_then(read).and_then(|f| f.check().map(|()| f));
    match faults {
        Ok(faults) => match provider.book.set_faults(&faults).await {
            Ok(()) => Json(faults).into_response(),
            Err(error) => broken(&error),
        },
        Err(why) => Answer::refused(400, "BAD_FAULTS", &why).into_response(),
    }
}
