//! Answers: as they go to the client, and as they are kept for whoever asks again.

use super::{Problem, buffer};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use malote_core::Answer;
use std::time::Duration;

/// The largest answer that is kept, in bytes of its body.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Marks an answer that was given before. No standard names it; this name is in use.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What belongs to one connection or one moment, and what nobody but the first client should see.
const NOT_KEPT: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::SET_COOKIE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// An answer whose body is here whole.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Whole {
    /// Takes the body of a response, within a size and `time`.
    pub(super) async fn of(response: Response, time: Duration) -> Result<Self, Problem> {
        let (parts, body) = response.into_parts();
        let body = buffer::whole(body, MAX_ANSWER_BYTES, time).await.map_err(|problem| {
            tracing::error!(
                status = parts.status.as_u16(),
                why = problem.detail(),
                "an answer to an idempotent request could not be kept: answer with at most 1 MiB, without delay"
            );
            Problem::internal()
        })?;
        Ok(Self { status: parts.status, headers: parts.headers, body })
    }

    /// For the store.
    pub(super) fn to_answer(&self) -> Answer {
        let kept = self.headers.iter().filter(|(name, _)| !NOT_KEPT.contains(name));
        // a value that is no text cannot be kept; what handlers write is text
        let headers = kept.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        Answer { status: self.status.as_u16(), headers: headers.collect(), body: self.body.clone() }
    }

    /// For the client.
    pub(super) fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

impl From<Answer> for Whole {
    fn from(answer: Answer) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in answer.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.append(name, value);
            }
        }
        let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, headers, body: answer.body }
    }
}

/// The first answer again, marked as such.
pub(super) fn replay(answer: Answer) -> Response {
    let mut response = Whole::from(answer).into_response();
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
