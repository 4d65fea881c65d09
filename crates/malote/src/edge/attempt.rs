//! A handler's part in it: one transaction that holds what the request does and how it was answered.

use super::{Idempotency, Problem, answer::Whole, name};
use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use malote_core::{Class, IdempotencyKey, IdempotencyStore, RequestKey, Transaction, planted};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tracing::Instrument;
use uuid::Uuid;

/// This attempt at a request, of which there may be several; one of them takes effect.
///
/// An extractor for handlers behind an [`Idempotency`] layer. It begins the transaction in which
/// the request does its work, and ends it together with the answer.
pub struct Attempt<S: IdempotencyStore>(Arc<Claimed<S>>);

impl<S: IdempotencyStore> Attempt<S> {
    /// Begins the request's transaction. What it publishes belongs to the trace of the current span.
    pub async fn begin(&self) -> Result<S::Tx, Problem> {
        Ok(self.0.edge.outbox.begin().await?)
    }

    /// Writes down the answer in `tx` and commits both, apart from the connection: a client that
    /// leaves, or a handler that is dropped, stops nothing half-way.
    ///
    /// What is committed is what the client gets, now and when it asks again. When the claim is no
    /// longer this attempt's (it outlived its lease and another took over), nothing is committed and
    /// the client gets 409. A 5xx answer is never committed: `tx` is rolled back and the key is free.
    pub async fn commit(self, tx: S::Tx, answer: impl IntoResponse) -> Response {
        let response = answer.into_response();
        if response.status().is_server_error() {
            drop(tx);
            return response;
        }
        match Whole::of(response, self.0.edge.limits.work_time).await {
            Ok(whole) => self.0.commit(tx, whole).await.as_response(),
            Err(problem) => problem.into_response(),
        }
    }

    /// Who asks, as the layer identified them.
    pub fn caller(&self) -> &str {
        &self.0.request.caller
    }

    /// The key that the caller chose.
    pub fn key(&self) -> &str {
        &self.0.request.key
    }

    /// What a provider outside is given, so that it too recognises a repeat: the same for every
    /// attempt at this request.
    pub fn operation(&self) -> IdempotencyKey {
        name::operation(&self.0.edge.service, &self.0.request)
    }
}

impl<S: IdempotencyStore, R: Sync> FromRequestParts<R> for Attempt<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &R) -> Result<Self, Problem> {
        // removed, so that one request has one attempt
        parts.extensions.remove::<Ticket<S>>().map(|ticket| Self(ticket.0)).ok_or_else(|| {
            tracing::error!(
                path = parts.uri.path(),
                "a handler asks for an Attempt, but no Idempotency layer over the same kind of store lies before it"
            );
            Problem::internal()
        })
    }
}

/// Carries the claim from the layer to the handler.
pub(super) struct Ticket<S: IdempotencyStore>(pub(super) Arc<Claimed<S>>);

impl<S: IdempotencyStore> Clone for Ticket<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// How far the transaction of an attempt has come.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// No commit has begun.
    Open,
    /// No commit has begun, and none may: the layer has decided otherwise.
    Closed,
    /// On its way.
    Committing,
    /// It took effect.
    Committed(Whole),
    /// It took none: the claim was no longer ours.
    Lost,
    /// It took none: the store refused.
    Failed(Class),
    /// The commit's own answer was lost.
    Unknown,
}

impl Stage {
    fn as_response(&self) -> Response {
        match self {
            Self::Committed(whole) => whole.clone().into_response(),
            Self::Lost | Self::Closed => lost().into_response(),
            Self::Failed(class) => Problem::of_class(*class).into_response(),
            // the layer finds out and answers in place of this
            Self::Open | Self::Committing | Self::Unknown => unknown().into_response(),
        }
    }
}

/// For an attempt that came too late.
pub(super) fn lost() -> Problem {
    let detail = "This attempt took too long and another one took over. Send the request again for its answer.";
    Problem::new(StatusCode::CONFLICT, detail)
        .kind("urn:malote:problem:attempt-superseded")
        .title("Attempt superseded")
        .retry_after(Duration::from_secs(1))
}

/// For an attempt of which nobody knows, right now, whether it took effect.
pub(super) fn unknown() -> Problem {
    Problem::unavailable(
        "It is not known yet whether the request took effect. Send it again with the same key: it takes effect once.",
    )
}

/// A claim that was won, and what has become of it.
pub(super) struct Claimed<S: IdempotencyStore> {
    pub(super) edge: Arc<Idempotency<S>>,
    pub(super) request: RequestKey,
    pub(super) owner: Uuid,
    stage: watch::Sender<Stage>,
}

impl<S: IdempotencyStore> Claimed<S> {
    pub(super) fn new(edge: Arc<Idempotency<S>>, request: RequestKey, owner: Uuid) -> Self {
        Self { edge, request, owner, stage: watch::Sender::new(Stage::Open) }
    }

    /// Lets no commit begin any more; how far one has come that did.
    pub(super) async fn close(&self) -> Stage {
        self.stage.send_if_modified(|stage| {
            let open = matches!(stage, Stage::Open);
            if open {
                *stage = Stage::Closed;
            }
            open
        });
        if planted::is("edge-committing") {
            return self.stage.borrow().clone();
        }
        self.settled().await
    }

    /// Writes the answer and commits, in a task of its own.
    pub(super) async fn commit(self: &Arc<Self>, tx: S::Tx, whole: Whole) -> Stage {
        let begins = self.stage.send_if_modified(|stage| {
            let open = matches!(stage, Stage::Open);
            if open {
                *stage = Stage::Committing;
            }
            open
        });
        if !begins {
            drop(tx);
            return Stage::Closed;
        }
        let claimed = self.clone();
        let work = async move {
            let stage = claimed.finish(tx, whole).await;
            claimed.stage.send_replace(stage);
        };
        tokio::spawn(work.instrument(tracing::Span::current()));
        self.settled().await
    }

    /// Waits for a commit that is on its way; no longer than the lease, for then others take over.
    async fn settled(&self) -> Stage {
        let mut stage = self.stage.subscribe();
        let settled = stage.wait_for(|stage| !matches!(stage, Stage::Committing));
        match tokio::time::timeout(self.edge.limits.lease, settled).await {
            Ok(Ok(stage)) => stage.clone(),
            _ => Stage::Unknown,
        }
    }

    /// Writes the answer and commits, here and now.
    pub(super) async fn finish(&self, mut tx: S::Tx, whole: Whole) -> Stage {
        let store = self.edge.outbox.store();
        match store.finish(&mut tx, &self.request, self.owner, &whole.to_answer()).await {
            Ok(ours) if ours || planted::is("edge-owner") => match tx.commit().await {
                Ok(()) => Stage::Committed(whole),
                Err(error) => {
                    tracing::error!(error = malote_core::chain(&error), "a request's commit failed");
                    match error.class {
                        class @ (Class::Conflict | Class::Final) => Stage::Failed(class),
                        _ => Stage::Unknown,
                    }
                }
            },
            Ok(_) => {
                tracing::warn!(scope = self.request.scope, "a request outlived its lease; nothing was committed");
                rolled_back(tx, Stage::Lost).await
            }
            Err(error) => {
                tracing::error!(error = malote_core::chain(&error), "a request's answer could not be written");
                rolled_back(tx, Stage::Failed(error.class)).await
            }
        }
    }
}

async fn rolled_back(tx: impl Transaction, stage: Stage) -> Stage {
    if let Err(error) = tx.rollback().await {
        // the database does it too, as soon as it sees that the connection is gone
        tracing::warn!(error = malote_core::chain(&error), "a request could not be rolled back in order");
    }
    stage
}
