//! The span of a request: the root of what it sets off, or the continuation of the caller's trace.

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::Response,
};
use malote_core::TraceContext;
use tracing::{Instrument, field::Empty};

/// Runs a request inside a span named after its method and route (HTTP semantic conventions).
pub(super) async fn request(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = request.method().as_str();
    let name = route.as_ref().map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
    let span = tracing::info_span!(
        "request",
        otel.name = name,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        url.path = request.uri().path(),
        http.response.status_code = Empty,
    );
    crate::telemetry::continue_from(&span, caller(&request).as_ref());
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

fn caller(request: &Request) -> Option<TraceContext> {
    let header = |name| request.headers().get(name)?.to_str().ok().map(str::to_owned);
    Some(TraceContext { parent: header("traceparent")?, state: header("tracestate") })
}
