//! A server that can lose an answer: the connection closes, and not a byte comes back.

use axum::{Router, body::Body, response::Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{fmt, io};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Marks an answer that is not to be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is lost")
    }
}

impl std::error::Error for Lost {}

impl Lost {
    pub fn response() -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Self);
        response
    }
}

/// Serves until `stop`; whoever is being answered then is left without an answer.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, router.clone(), stop.clone()))),
            // the client gave up, or there are too many open files: both pass
            Err(error) => {
                eprintln!("provider: a connection could not be accepted: {error}");
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    let _ = stream.set_nodelay(true); // an answer is one write
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut router = router.clone();
        async move {
            let Ok(response) = tower_call(&mut router, request).await;
            match response.extensions().get::<Lost>() {
                Some(lost) => Err(*lost),
                None => Ok(response),
            }
        }
    });
    tokio::select! {
        () = stop.cancelled() => {}
        // how a connection ends is the client's affair
        _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
    }
}

async fn tower_call(
    router: &mut Router,
    request: hyper::Request<Incoming>,
) -> Result<Response, std::convert::Infallible> {
    tower::Service::call(router, request.map(Body::new)).await
}
