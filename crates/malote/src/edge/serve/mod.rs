//! A server that a slow or vanished client cannot hold up.
//!
//! `axum::serve` waits for ever for a header or a body that never ends. This one gives every part of
//! a connection a time: the header (and the pause between two requests), the body, and the client's
//! taking of the answer; and it stops in order within a grace time.

mod body;
mod io;
mod refusal;

use self::{body::Timely, io::Impatient};
use axum::{Router, body::Body, extract::ConnectInfo, response::IntoResponse};
use http::{Method, StatusCode, Uri};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use malote_core::planted;
use std::{convert::Infallible, io::Result, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use super::Problem;

/// How long to wait before accepting again when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` until `stop`, with the default limits of [`Server`].
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> Result<()> {
    Server::default().serve(listener, router, stop).await
}

/// Answers unknown paths (404) and methods (405) with a [`Problem`]. Call it last, on the outermost router.
pub fn with_fallbacks(router: Router) -> Router {
    router.fallback(not_found).method_not_allowed_fallback(method_not_allowed)
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("There is nothing at {}.", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}. The header Allow says what it takes.", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// An HTTP/1.1 server with limits.
///
/// Handlers find the client's address as [`ConnectInfo<SocketAddr>`]. What cannot be read as a request
/// gets a [`Problem`] like everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// How long a request's header may take, and how long a connection may lie idle before the next. 10 s.
    pub header_time: Duration,
    /// How long a request's body may take. 30 s.
    pub body_time: Duration,
    /// How long a client may take nothing of an answer. 30 s.
    pub write_time: Duration,
    /// How long requests in work may go on after `stop`, whether or not their client is still there. 5 s.
    pub grace: Duration,
    /// How many connections are open at once; further ones wait to be accepted. 1,024.
    pub connections: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            connections: 1_024,
        }
    }
}

/// Where work is counted that goes on without its client, so that the server can wait for it.
#[derive(Clone, Default)]
pub(super) struct Works(pub(super) TaskTracker);

/// What all connections share.
struct Shared {
    server: Server,
    router: Router,
    works: Works,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Server {
    /// Serves until `stop`; then closes the listener and idle connections at once, and the others
    /// when their request is answered or the grace time is over.
    pub async fn serve(self, listener: TcpListener, router: Router, stop: CancellationToken) -> Result<()> {
        let cut = CancellationToken::new();
        // on the routes, not around the router: the span is named after the route
        let router = router.layer(axum::middleware::from_fn(super::trace::request));
        let shared = Arc::new(Shared { server: self, router, works: Works::default(), stop, cut: cut.clone() });
        let connections = TaskTracker::new();
        let cap = if planted::is("edge-connections") { Semaphore::MAX_PERMITS } else { self.connections };
        let places = Arc::new(Semaphore::new(cap));
        while let Some((stream, peer, place)) = next(&listener, &places, &shared.stop).await {
            connections.spawn(connection(stream, peer, place, shared.clone()));
        }
        drop(listener);
        connections.close();
        shared.works.0.close();
        let ended = async {
            connections.wait().await;
            shared.works.0.wait().await;
        };
        let grace = if planted::is("edge-grace") { Duration::MAX } else { self.grace };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!(connections = connections.len(), works = shared.works.0.len(), "the grace time is over");
            cut.cancel();
            connections.wait().await;
        }
        Ok(())
    }
}

/// The next connection, or nothing after `stop`.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let accept = async {
        let place = places.clone().acquire_owned().await.ok()?; // never closed
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => return Some((stream, peer, place)),
                // the client gave up before it was accepted, or there are too many open files: both pass
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        accepted = accept => accepted,
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, _place: OwnedSemaphorePermit, shared: Arc<Shared>) {
    let server = shared.server;
    // an answer is one write; waiting for more would only delay it
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Impatient::new(stream, server.write_time));
    let service = hyper::service::service_fn({
        let shared = shared.clone();
        move |request| answer(request, peer, shared.clone())
    });
    let mut http = http1::Builder::new();
    if !planted::is("edge-header-time") {
        http.timer(TokioTimer::new()).header_read_timeout(server.header_time);
    } else {
        http.header_read_timeout(None);
    }
    let mut serving = std::pin::pin!(http.serve_connection(io, service));
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = shared.stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                served = serving => served,
                () = shared.cut.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        // a client that left or was too slow: its own affair
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

async fn answer(
    request: http::Request<Incoming>,
    peer: SocketAddr,
    shared: Arc<Shared>,
) -> std::result::Result<axum::response::Response, Infallible> {
    let time = shared.server.body_time;
    let mut request = request.map(|body| Body::new(Timely::new(body, time)));
    request.extensions_mut().insert(shared.works.clone());
    request.extensions_mut().insert(ConnectInfo(peer));
    shared.router.clone().call(request).await.map(|answer| refusal::worded(answer.into_response()))
}
