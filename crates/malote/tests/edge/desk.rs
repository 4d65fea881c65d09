//! The bank's desk: a handler that does what the test asks of it.

use crate::bench::{Bank, LONG};
use axum::{extract::State, http::StatusCode, response::Response};
use malote::edge::{Attempt, Body, Problem};
use serde::Deserialize;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{Semaphore, watch};

/// What the handler does, instead of paying.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    #[default]
    Pay,
    /// A lasting no.
    Refuse,
    /// A no of the moment.
    Later,
    /// A fault that the handler tells itself.
    Fault,
    /// A fault of the database, after something was written.
    Broken,
    Panic,
    /// Success without a commit.
    Forget,
    /// A commit of a fault.
    CommitFault,
    /// A commit with an answer too large to be kept.
    Huge,
    /// No end.
    Stall,
    /// Committed, but the handler goes down before it can say so.
    PanicAfter,
    /// Committed, but the handler never says so.
    StallAfter,
}

#[derive(Deserialize)]
pub struct Order {
    pub amount: i64,
    /// What happens the first time.
    #[serde(default)]
    first: Act,
    /// Waits for the gate, before its transaction or inside.
    #[serde(default)]
    hold: Hold,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Hold {
    #[default]
    No,
    Before,
    Inside,
}

/// What the test and the handler share.
pub struct Desk {
    /// How many requests have come to the gate.
    pub waiting: watch::Sender<usize>,
    /// Opened by the test.
    pub gate: Semaphore,
    /// How often a handler ran.
    pub runs: watch::Sender<usize>,
    /// How many handlers are over, one way or another.
    pub over: watch::Sender<usize>,
    /// Called between the work and the commit.
    pub before_commit: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// How many requests `/busy` serves right now, and how many it served at most.
    pub busy: Mutex<(usize, usize)>,
    seen: Mutex<HashSet<String>>,
}

/// Counts a handler when it is dropped.
struct Over(Arc<Desk>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over.send_modify(|over| *over += 1);
    }
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            waiting: watch::Sender::new(0),
            gate: Semaphore::new(0),
            runs: watch::Sender::new(0),
            over: watch::Sender::new(0),
            before_commit: Mutex::new(None),
            busy: Mutex::default(),
            seen: Mutex::default(),
        }
    }
}

impl Desk {
    async fn wait(&self) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        self.gate.acquire().await.unwrap().forget();
    }
    /// Lets the next run of a key be its first.
    pub fn forget(&self, key: &str) {
        self.seen.lock().unwrap().remove(&format!("anonymous /payment {key}"));
    }
    pub async fn until_waiting(&self, many: usize) {
        let mut waiting = self.waiting.subscribe();
        let waited = tokio::time::timeout(LONG, waiting.wait_for(|waiting| *waiting >= many));
        waited.await.expect("nobody came to the gate").unwrap();
    }
}

pub async fn busy(State(desk): State<Arc<Desk>>) {
    let change = |by: isize| {
        let mut busy = desk.busy.lock().unwrap();
        busy.0 = busy.0.checked_add_signed(by).unwrap();
        busy.1 = busy.1.max(busy.0);
    };
    change(1);
    tokio::time::sleep(Duration::from_millis(10)).await;
    change(-1);
}

pub async fn pay<S: Bank>(
    State(desk): State<Arc<Desk>>,
    uri: axum::extract::OriginalUri,
    attempt: Attempt<S>,
    Body(order): Body<Order>,
) -> Result<Response, Problem> {
    let _over = Over(desk.clone());
    desk.runs.send_modify(|runs| *runs += 1);
    let (key, path, caller) = (attempt.key().to_owned(), uri.path().to_owned(), attempt.caller().to_owned());
    let first = desk.seen.lock().unwrap().insert(format!("{caller} {path} {key}"));
    let act = if first { order.first } else { Act::Pay };
    let hold = if first { order.hold } else { Hold::No };
    if hold == Hold::Before {
        desk.wait().await;
    }
    match act {
        Act::Refuse => return Err(Problem::new(StatusCode::CONFLICT, "The account is closed.").with("account", "a")),
        Act::Later => return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "Not now.")),
        Act::Fault => return Err(Problem::new(StatusCode::BAD_GATEWAY, "The other bank is away.")),
        Act::Forget => return Ok(Response::default()),
        _ => {}
    }
    let mut tx = attempt.begin().await?;
    S::pay(&mut tx, &key, &caller, &path).await?;
    if hold == Hold::Inside {
        desk.wait().await;
    }
    match act {
        Act::Broken => S::fail(&mut tx).await?,
        Act::Panic => panic!("as the test wants it"),
        Act::CommitFault => return Ok(attempt.commit(tx, StatusCode::BAD_GATEWAY).await),
        Act::Huge => return Ok(attempt.commit(tx, "x".repeat(2_000_000)).await),
        Act::Stall => std::future::pending().await,
        _ => {}
    }
    if let Some(call) = &*desk.before_commit.lock().unwrap() {
        call();
    }
    let answer = serde_json::json!({"id": uuid::Uuid::now_v7(), "caller": caller, "amount": order.amount});
    let location = [("location", format!("{path}/{key}"))];
    let response = attempt.commit(tx, (StatusCode::ACCEPTED, location, Body(answer))).await;
    match act {
        Act::PanicAfter => panic!("as the test wants it"),
        Act::StallAfter => std::future::pending().await,
        _ => Ok(response),
    }
}
