//! Reads a request whole, and hands it to a task that no client can cancel.

use super::{
    Idempotency, Problem,
    attempt::Ticket,
    buffer::{self, Buffered},
    key, name,
    serve::Works,
    work::Work,
};
use axum::{body::Body, extract::Request, response::IntoResponse, response::Response};
use futures::{FutureExt, future::BoxFuture};
use http::{Method, request::Parts};
use malote_core::{IdempotencyStore, planted};
use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::oneshot;
use tower::{Service, ServiceExt};
use tracing::Instrument;

/// What [`Idempotency`] makes of a service.
pub struct IdempotencyService<S, I> {
    edge: Arc<Idempotency<S>>,
    inner: I,
}

impl<S, I> IdempotencyService<S, I> {
    pub(super) fn new(edge: Arc<Idempotency<S>>, inner: I) -> Self {
        Self { edge, inner }
    }
}

impl<S, I: Clone> Clone for IdempotencyService<S, I> {
    fn clone(&self) -> Self {
        Self { edge: self.edge.clone(), inner: self.inner.clone() }
    }
}

impl<S, I> Service<Request> for IdempotencyService<S, I>
where
    S: IdempotencyStore,
    I: Service<Request, Error = Infallible> + Clone + Send + 'static,
    I::Response: IntoResponse,
    I::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // the inner service is asked where it is called, in the task
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (edge, inner) = (self.edge.clone(), self.inner.clone());
        if !matches!(*request.method(), Method::POST | Method::PATCH) {
            return inner.oneshot(request).map(|answer| answer.map(IntoResponse::into_response)).boxed();
        }
        async move {
            let answer = match read(edge, request).await {
                Ok((work, works, body)) => run(work, works, inner, body).await,
                Err(problem) => problem.into_response(),
            };
            Ok(answer)
        }
        .boxed()
    }
}

/// Everything that can be said against a request before anything is written.
async fn read<S: IdempotencyStore>(
    edge: Arc<Idempotency<S>>,
    request: Request,
) -> Result<(Work<S>, Works, Request), Problem> {
    let (mut parts, body) = request.into_parts();
    let key = key::of(&parts.headers)?;
    let caller = (edge.caller)(&parts)?;
    let body = buffer::whole(body, edge.limits.body_bytes, edge.limits.body_time).await?;
    let works = works_of(&parts);
    let work =
        Work { request: name::request(&parts, &caller, key), fingerprint: name::fingerprint(&parts, &body), edge };
    parts.extensions.insert(Buffered);
    Ok((work, works, Request::from_parts(parts, Body::from(body))))
}

fn works_of(parts: &Parts) -> Works {
    let counted = parts.extensions.get::<Works>().filter(|_| !planted::is("edge-works"));
    counted.cloned().unwrap_or_default()
}

/// Runs the work to its end, whether or not the client stays for it.
async fn run<S, I>(work: Work<S>, works: Works, inner: I, request: Request) -> Response
where
    S: IdempotencyStore,
    I: Service<Request, Error = Infallible> + Clone + Send + 'static,
    I::Response: IntoResponse,
    I::Future: Send,
{
    let handler = move |ticket: Ticket<S>| {
        let mut request = request;
        request.extensions_mut().insert(ticket);
        async move { inner.oneshot(request).await.map_or_else(|never| match never {}, IntoResponse::into_response) }
    };
    if planted::is("edge-spawn") {
        return work.answer(handler).await;
    }
    let (sender, answer) = oneshot::channel();
    let task = async move {
        // a client that has left does not take the answer; it is in the store
        let _ = sender.send(work.answer(handler).await);
    };
    works.0.spawn(task.instrument(tracing::Span::current()));
    // the sender is lost only if the task panicked, which is logged where it happened
    answer.await.unwrap_or_else(|_| Problem::internal().into_response())
}
