//! What every service answers over HTTP: whether it lives, whether it is ready, and its metrics.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use malote::{
    Health, State as Part,
    edge::{self, Body, Problem},
    telemetry::metrics::{self, Metrics},
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::watch;

/// Adds `/health`, `/ready` and, where they are recorded, `/metrics` to a service's own routes, and an
/// answer to everything else.
pub fn whole(routes: Router, health: Health) -> Router {
    let mut states = Router::new().route("/health", get(alive)).route("/ready", get(ready)).with_state(health);
    if let Some(metrics) = metrics::installed() {
        states = states.route("/metrics", get(measured).with_state(metrics));
    }
    edge::with_fallbacks(routes.merge(states))
}

async fn measured(State(metrics): State<Metrics>) -> Response {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.render()).into_response()
}

/// What is answered while the services are being opened: the process lives, and waits for something.
pub fn opening(waiting: watch::Receiver<String>) -> Router {
    let states = Router::new().route("/health", get(alive)).route("/ready", get(waits));
    states.fallback(waits).with_state(waiting)
}

async fn waits(State(waiting): State<watch::Receiver<String>>) -> Problem {
    let what = waiting.borrow().clone();
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("Not ready yet: waiting for the {what}."));
    problem.with("parts", json!({ what: "starting" })).retry_after(Duration::from_secs(1))
}

async fn alive() -> Body<Value> {
    Body(json!({"status": "alive"}))
}

async fn ready(State(health): State<Health>) -> Response {
    let parts: Map<_, _> = health.parts().into_iter().map(|(part, state)| (part, words(&state).into())).collect();
    if health.is_ready() {
        return Body(json!({"status": "ready", "parts": parts})).into_response();
    }
    let detail = "Not every part is at work; `parts` says which, and the log says why.";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with("parts", parts).into_response()
}

/// A state in a word. Why a part fails is in the log: it may name what nobody outside should know.
fn words(state: &Part) -> &'static str {
    match state {
        Part::Starting => "starting",
        Part::Working => "working",
        Part::Standby => "standby",
        Part::Failing(_) => "failing",
    }
}
