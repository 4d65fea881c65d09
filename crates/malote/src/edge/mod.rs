//! The HTTP edge: a request takes effect once, however often it is sent.
//!
//! Clients time out, networks lose answers, people press the button again. So a client names its
//! request with a key and may repeat it at will; the edge sees to it that one attempt takes effect
//! and that every other one gets the same answer.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")] mod example {
//! use axum::{Router, http::StatusCode, response::Response, routing::post};
//! use malote::edge::{self, Attempt, Body, Idempotency, Problem};
//! use malote::sqlite::Sqlite;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Transfer { amount: i64, to: String }
//!
//! async fn create(attempt: Attempt<Sqlite>, Body(transfer): Body<Transfer>) -> Result<Response, Problem> {
//!     if transfer.amount <= 0 {
//!         return Err(Problem::new(StatusCode::BAD_REQUEST, "The amount must be positive."));
//!     }
//!     let mut tx = attempt.begin().await?;
//!     sqlx::query("insert into transfers (amount, receiver) values ($1, $2)")
//!         .bind(transfer.amount).bind(&transfer.to).execute(&mut *tx).await?;
//!     // tx.publish(event).await?; belongs here: state, event and answer commit together
//!     Ok(attempt.commit(tx, StatusCode::ACCEPTED).await)
//! }
//!
//! async fn run(store: Sqlite, stop: tokio_util::sync::CancellationToken) -> std::io::Result<()> {
//!     let router = Router::new().route("/transfers", post(create)).route_layer(Idempotency::new(store, "bank"));
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//!     edge::serve(listener, edge::with_fallbacks(router), stop).await
//! }
//! # }
//! ```
//!
//! A request is first *claimed*, in a short transaction of its own: so a second one can be told that
//! the first still runs (409) or was another (422), and so a claim whose process died can be taken
//! over when its lease ends. Then the handler runs, in a task that no client can cancel. Its
//! transaction ends by writing the answer beside the claim, if the claim is still its own: an
//! attempt that was overtaken commits nothing. What clients see of it is in `docs/http.md`.
//!
//! Handlers say no with a [`Problem`]; a lasting no (4xx) is kept and repeated like any answer. A
//! handler must not answer with success unless it has committed: that is a 500.

mod answer;
mod attempt;
mod buffer;
mod claims;
mod idempotency;
mod json;
mod key;
mod name;
mod problem;
#[cfg(feature = "redis")]
mod redis;
mod serve;
mod service;
mod trace;
mod work;

#[cfg(feature = "redis")]
pub use self::redis::{Redis, RedisUrl};
pub use attempt::Attempt;
pub use idempotency::{Idempotency, Limits, Unsound};
pub use json::Body;
pub use problem::Problem;
pub use serve::{Server, serve, with_fallbacks};
pub use service::IdempotencyService;
