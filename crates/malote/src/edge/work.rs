//! From the claim to the answer.
//!
//! ```text
//!            ┌─ Done ──────▶ the first answer again
//!            ├─ Mismatch ──▶ 422
//!   claim ───┼─ Running ───▶ 409, Retry-After
//!            └─ Won ──▶ handler ─┬─ committed ───────────▶ its answer, kept
//!                                ├─ commit unknown ──────▶ looked up
//!                                ├─ claim lost ──────────▶ 409, nothing kept
//!                                ├─ 4xx, no commit ──────▶ its answer, kept
//!                                └─ 5xx, panic, too late ▶ released, nothing kept
//! ```

use super::{
    Idempotency, Problem,
    answer::{Whole, replay},
    attempt::{Claimed, Stage, Ticket, lost, unknown},
    problem::Fault,
};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::StatusCode;
use malote_core::{Claim, IdempotencyStore, RequestKey, planted};
use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use uuid::Uuid;

/// A request that may have been made before.
#[derive(Clone)]
pub(super) struct Work<S> {
    pub(super) edge: Arc<Idempotency<S>>,
    pub(super) request: RequestKey,
    pub(super) fingerprint: [u8; 32],
}

/// How a handler ended.
enum Ended {
    Answered(Response),
    Panicked,
    TooLate,
}

impl<S: IdempotencyStore> Work<S> {
    /// The answer to the request: an earlier one, a refusal, or what `handler` says.
    pub(super) async fn answer<F>(self, handler: impl FnOnce(Ticket<S>) -> F + Send) -> Response
    where
        F: Future<Output = Response> + Send,
    {
        if let Some(answer) = self.copy().await {
            return replay(answer);
        }
        let owner = Uuid::now_v7();
        match self.claim(owner).await {
            Ok(Claim::Mismatch) if !planted::is("edge-mismatch") => differs().into_response(),
            Ok(Claim::Running(_)) if planted::is("edge-running") => self.won(owner, handler).await,
            Ok(Claim::Running(left)) => running(left).into_response(),
            Ok(Claim::Mismatch) => running(Duration::ZERO).into_response(),
            Ok(Claim::Done(answer)) => {
                self.keep_copy(&answer);
                replay(answer)
            }
            Ok(Claim::Won) => self.won(owner, handler).await,
            Err(problem) => problem.into_response(),
        }
    }

    async fn won<F>(&self, owner: Uuid, handler: impl FnOnce(Ticket<S>) -> F + Send) -> Response
    where
        F: Future<Output = Response> + Send,
    {
        let claimed = Arc::new(Claimed::new(self.edge.clone(), self.request.clone(), owner));
        let ticket = Ticket(claimed.clone());
        let ended = self.watch(async move { handler(ticket).await }).await;
        match claimed.close().await {
            Stage::Committed(whole) => self.done(whole),
            Stage::Lost => lost().into_response(),
            Stage::Unknown => self.looked_up(owner, unknown().into_response()).await,
            Stage::Failed(class) => {
                self.release(owner).await;
                Problem::of_class(class).into_response()
            }
            Stage::Open | Stage::Closed | Stage::Committing => self.uncommitted(&claimed, ended).await,
        }
    }

    /// Waits for the handler, for as long as it may take.
    async fn watch(&self, handler: impl Future<Output = Response> + Send) -> Ended {
        let time = if planted::is("edge-work-time") { Duration::MAX } else { self.edge.limits.work_time };
        match tokio::time::timeout(time, AssertUnwindSafe(handler).catch_unwind()).await {
            Ok(Ok(response)) => Ended::Answered(response),
            Ok(Err(panic)) if planted::is("edge-panic") => std::panic::resume_unwind(panic),
            Ok(Err(_)) => Ended::Panicked,
            Err(_) => Ended::TooLate,
        }
    }

    /// The handler is over and has committed nothing.
    async fn uncommitted(&self, claimed: &Arc<Claimed<S>>, ended: Ended) -> Response {
        match ended {
            Ended::Answered(response) if is_final(response.status()) => self.keep(claimed, response).await,
            Ended::Answered(response) => {
                self.release(claimed.owner).await;
                self.passing(response)
            }
            Ended::Panicked => {
                tracing::error!(scope = self.request.scope, "a handler panicked");
                self.release(claimed.owner).await;
                Problem::internal().into_response()
            }
            Ended::TooLate => {
                tracing::warn!(scope = self.request.scope, "a handler took too long and was stopped");
                self.release(claimed.owner).await;
                let detail = "The request took too long, was stopped, and had no effect. Send it again a little later.";
                Problem::unavailable(detail).into_response()
            }
        }
    }

    /// Keeps a refusal that the handler gave without a commit, in a transaction of its own.
    async fn keep(&self, claimed: &Arc<Claimed<S>>, response: Response) -> Response {
        let whole = match Whole::of(response, self.edge.limits.work_time).await {
            Ok(whole) => whole,
            Err(problem) => {
                self.release(claimed.owner).await;
                return problem.into_response();
            }
        };
        let keeping = async {
            match self.edge.outbox.begin().await {
                Ok(tx) => claimed.finish(tx, whole.clone()).await,
                Err(error) => Stage::Failed(error.class),
            }
        };
        let stage = tokio::time::timeout(self.edge.limits.work_time, keeping).await.unwrap_or(Stage::Unknown);
        match stage {
            Stage::Committed(whole) => self.done(whole),
            Stage::Lost => lost().into_response(),
            Stage::Unknown => self.looked_up(claimed.owner, whole.into_response()).await,
            // nothing has happened, so the refusal is true whether or not it is kept
            _ => {
                self.release(claimed.owner).await;
                whole.into_response()
            }
        }
    }

    /// An answer that is not kept: a fault, a refusal of the moment, or a mistake in the handler.
    fn passing(&self, response: Response) -> Response {
        let status = response.status();
        if !status.is_client_error() && !status.is_server_error() {
            tracing::error!(
                scope = self.request.scope,
                status = status.as_u16(),
                "a handler answers with success but did not commit: end it with attempt.commit(tx, answer)"
            );
            return Problem::internal().into_response();
        }
        match response.extensions().get::<Fault>() {
            Some(Fault(error)) if status == StatusCode::INTERNAL_SERVER_ERROR => {
                Problem::of_class(self.edge.outbox.store().classify(error.as_ref())).into_response()
            }
            _ => response,
        }
    }

    /// The answer to a request whose commit's own answer was lost; `nothing` if it took no effect.
    async fn looked_up(&self, owner: Uuid, nothing: Response) -> Response {
        match self.look_up(owner).await {
            Some(Claim::Done(answer)) => self.done(answer.into()),
            Some(Claim::Won) => nothing,
            Some(Claim::Running(_) | Claim::Mismatch) => lost().into_response(),
            None => unknown().into_response(),
        }
    }

    fn done(&self, whole: Whole) -> Response {
        self.keep_copy(&whole.to_answer());
        whole.into_response()
    }

    #[cfg(feature = "redis")]
    async fn copy(&self) -> Option<malote_core::Answer> {
        let redis = self.edge.redis.as_ref()?;
        redis.get(&self.edge.service, &self.request, &self.fingerprint).await
    }

    #[cfg(not(feature = "redis"))]
    #[allow(clippy::unused_async)] // the same shape with and without Redis
    async fn copy(&self) -> Option<malote_core::Answer> {
        None
    }

    /// Puts a copy in front, beside the answer's way to the client.
    fn keep_copy(&self, answer: &malote_core::Answer) {
        #[cfg(feature = "redis")]
        if let Some(redis) = self.edge.redis.clone() {
            let (service, keep) = (self.edge.service.clone(), self.edge.limits.keep);
            let (request, fingerprint, answer) = (self.request.clone(), self.fingerprint, answer.clone());
            tokio::spawn(async move { redis.put(&service, &request, &fingerprint, &answer, keep).await });
        }
        #[cfg(not(feature = "redis"))]
        let _ = answer;
    }
}

/// Refusals that will be the same whenever they are asked for. Not among them: who may ask (401),
/// what the service knows how to do (405), and what is about the moment (408, 425, 429).
fn is_final(status: StatusCode) -> bool {
    let refusal = status.is_client_error() || (status.is_server_error() && planted::is("edge-keep-faults"));
    refusal && !matches!(status.as_u16(), 401 | 405 | 408 | 425 | 429)
}

fn differs() -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "This key was used for another request: other data, or the same data written differently. Repeat a request \
         byte for byte, and use a new key for a new one.",
    )
    .kind("urn:malote:problem:key-reused")
    .title("Idempotency key reused")
}

/// `left` is when it is certain to be over: it may be sooner, but not even a process that was killed
/// holds the key for longer.
fn running(left: Duration) -> Problem {
    let left = if planted::is("edge-retry-after") { Duration::ZERO } else { left };
    Problem::new(
        StatusCode::CONFLICT,
        "The first request with this key is still running, or the process that ran it has died. Send the request again \
         for its answer: after the time in Retry-After at the latest, it runs or has run.",
    )
    .kind("urn:malote:problem:request-running")
    .title("Request still running")
    .retry_after(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lasting_refusals_are_kept() {
        let kept: Vec<u16> = (100..600).filter(|s| StatusCode::from_u16(*s).is_ok_and(is_final)).collect();
        assert!(kept.iter().all(|s| (400..500).contains(s)));
        assert!([400, 403, 404, 409, 413, 422].iter().all(|s| kept.contains(s)));
        assert!([401, 405, 408, 425, 429].iter().all(|s| !kept.contains(s)));
    }
}
