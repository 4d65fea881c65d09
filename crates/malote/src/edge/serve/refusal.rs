//! What hyper answers by itself to a request that is none, with a body that says so.
//!
//! hyper refuses a head that it cannot read with a bare status and offers no place to add to that. So
//! its refusal is recognised on its way out: no other answer leaves with one of these statuses and
//! without a body, for [`worded`] gives it one.

use crate::edge::Problem;
use axum::{
    body::HttpBody as _,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::StatusCode;
use malote_core::planted;
use serde_json::json;

/// The statuses of hyper's own refusals, with what each means.
const REFUSALS: [(StatusCode, &str); 3] = [
    (
        StatusCode::BAD_REQUEST,
        "The request cannot be read as HTTP/1.1: its first line or one of its headers is malformed.",
    ),
    (StatusCode::URI_TOO_LONG, "The address of the request is too long."),
    (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers of the request are too large, or too many."),
];

/// The whole answer to send in place of `head`, if that is a refusal of hyper's own.
pub(super) fn in_place_of(head: &[u8]) -> Option<Bytes> {
    let line = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let status = StatusCode::from_bytes(line.get(..3)?).ok()?;
    let (_, detail) = REFUSALS.iter().find(|(refusal, _)| *refusal == status)?;
    let text = std::str::from_utf8(head).ok()?;
    if !text.ends_with("\r\n\r\n") || !text.contains("\r\ncontent-length: 0\r\n") || planted::is("edge-bare-refusal") {
        return None;
    }
    let title = status.canonical_reason().unwrap_or("Error");
    let body = json!({"type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail}).to_string();
    let answer = format!(
        "HTTP/1.1 {} {title}\r\nconnection: close\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\r\n{body}",
        status.as_u16(),
        body.len()
    );
    Some(answer.into())
}

/// A bare refusal of a handler's gets a body, too.
pub(super) fn worded(response: Response) -> Response {
    let status = response.status();
    let bare = response.body().size_hint().exact() == Some(0);
    if bare && REFUSALS.iter().any(|(refusal, _)| *refusal == status) {
        return Problem::new(status, "The service does not take this request.").into_response();
    }
    response
}
