//! Errors as clients read them: `application/problem+json` (RFC 9457).

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use malote_core::{Class, StoreError, chain};
use serde_json::{Map, Value};
use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

/// What went wrong, for the client.
///
/// Any error becomes one by `?`: a 503 with `Retry-After` where the store says that it may pass, a
/// 500 otherwise. The error itself goes to the log and never to the client.
///
/// ```
/// use malote::edge::Problem;
/// use http::StatusCode;
///
/// let refused = Problem::new(StatusCode::CONFLICT, "The account is closed.")
///     .kind("https://bank.example/problems/account-closed")
///     .title("Account closed")
///     .with("account", "alice");
/// ```
#[derive(Clone)]
pub struct Problem(Box<Parts>);

/// Boxed, so that a `Result` with a problem is small.
#[derive(Clone)]
struct Parts {
    status: StatusCode,
    kind: Cow<'static, str>,
    title: Option<Cow<'static, str>>,
    detail: Cow<'static, str>,
    members: Map<String, Value>,
    headers: HeaderMap,
    source: Option<Fault>,
}

/// The error behind a 5xx answer, left in the response's extensions: the [`Idempotency`](super::Idempotency)
/// layer knows the store and can tell what will pass from what will not.
#[derive(Clone)]
pub(super) struct Fault(pub(super) Arc<dyn Error + Send + Sync>);

impl Problem {
    /// A problem that its status names well enough (`type` is `about:blank`); `detail` says to a
    /// person what is wrong with this request and what would help.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Parts {
            status,
            kind: "about:blank".into(),
            title: None,
            detail: detail.into(),
            members: Map::new(),
            headers: HeaderMap::new(),
            source: None,
        }))
    }

    /// The `type`: a URI that names this kind of problem for programs.
    pub fn kind(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.0.kind = uri.into();
        self
    }

    /// The `title`: the same for every problem of the kind. The status' own phrase unless it is given.
    pub fn title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.0.title = Some(title.into());
        self
    }

    /// A further member. The five names of the standard are kept for their own use.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.into(), value.into());
        self
    }

    /// A header of the answer.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// Says when to try again: `Retry-After`, in whole seconds, at least 1.
    pub fn retry_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.header(header::RETRY_AFTER, seconds.max(1).into())
    }

    /// Says that the connection ends with this answer: the rest of the request was not read.
    pub(super) fn close(self) -> Self {
        self.header(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The text for a person.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// A fault on our side that may pass.
    pub(super) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(Duration::from_secs(1))
    }

    /// A fault on our side; what it is stays in the log.
    pub(super) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The request failed through no fault of yours and had no effect. It may be sent again.",
        )
    }

    /// The problem that an error of this class is to the client.
    pub(super) fn of_class(class: Class) -> Self {
        match class {
            Class::Conflict | Class::Transient | Class::Unknown => {
                Self::unavailable("The service cannot do this right now. Send the request again a little later.")
            }
            _ => Self::internal(),
        }
    }

    fn caused_by(mut self, error: Arc<dyn Error + Send + Sync>) -> Self {
        self.0.source = Some(Fault(error));
        self
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Problem {
    fn from(error: E) -> Self {
        let error: Arc<dyn Error + Send + Sync> = Arc::new(error);
        let class = error.downcast_ref::<StoreError>().map_or(Class::Final, |store| store.class);
        Self::of_class(class).caused_by(error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Parts { status, kind, title, detail, mut members, headers, source } = *self.0;
        if let Some(Fault(error)) = &source {
            tracing::error!(status = status.as_u16(), error = chain(error.as_ref()), "a request failed");
        }
        let title = title.unwrap_or(status.canonical_reason().unwrap_or("Error").into());
        members.insert("type".into(), kind.into());
        members.insert("title".into(), title.into());
        members.insert("status".into(), status.as_u16().into());
        members.insert("detail".into(), detail.into());
        let mut response = (status, Value::Object(members).to_string()).into_response();
        response.headers_mut().extend(headers);
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(fault) = source {
            response.extensions_mut().insert(fault);
        }
        response
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.status.as_u16(), self.0.kind, self.0.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_cannot_replace_those_of_the_standard() {
        let response =
            Problem::new(StatusCode::CONFLICT, "no").with("status", 200).with("account", "a").into_response();
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }

    #[test]
    fn waits_are_whole_seconds_and_never_none() {
        let header = |wait| Problem::unavailable("later").retry_after(wait).0.headers[header::RETRY_AFTER].clone();
        assert_eq!(header(Duration::ZERO), "1");
        assert_eq!(header(Duration::from_millis(1500)), "2");
    }
}
