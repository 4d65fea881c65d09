//! A JSON body as a value, and a helpful answer to every body that is none.

use super::{
    Problem,
    buffer::{self, Buffered},
};
use axum::{
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use malote_core::planted;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::error::Category;

/// How deep arrays and objects may lie in each other.
const MAX_DEPTH: usize = 64;

/// A request's JSON body, and, returned from a handler, a JSON answer.
///
/// Takes `application/json` and `application/*+json`; a missing content type and
/// `application/x-www-form-urlencoded`, which curl sends unless told otherwise, count as JSON too.
/// Everything else that is wrong with a body gets a [`Problem`]: 400 with the place of the fault,
/// 408 when it does not arrive (10 s), 413 when it is too large (64 KiB), 415 for another media
/// type or a compressed body. Behind an [`Idempotency`](super::Idempotency) layer the layer's limits count.
///
/// Refused besides what is not JSON: more than 64 levels of nesting, and NUL characters, which
/// PostgreSQL cannot store in text. Whole numbers are read exactly, up to the range of the type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        check_type(request.headers())?;
        check_coding(request.headers())?;
        let bytes = match request.extensions().get() {
            Some(Buffered) => buffer::whole(request.into_body(), usize::MAX, buffer::BODY_TIME).await?,
            None => buffer::whole(request.into_body(), buffer::BODY_BYTES, buffer::BODY_TIME).await?,
        };
        parse(&bytes).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Body<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or("?").split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let structured = essence.starts_with("application/") && essence.ends_with("+json");
    if matches!(essence.as_str(), "" | "application/json" | "application/x-www-form-urlencoded") || structured {
        return Ok(());
    }
    let detail = "The body's media type is not JSON. Send JSON, and the header Content-Type: application/json.";
    let json = HeaderValue::from_static("application/json");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).header(header::ACCEPT, json))
}

/// Unpacking a body would make its size anybody's guess.
fn check_coding(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter().map(HeaderValue::as_bytes);
    if codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")) || planted::is("edge-coding")
    {
        return Ok(());
    }
    let detail =
        "The body is compressed, which is not taken here. Send it as it is, without the header Content-Encoding.";
    let plain = HeaderValue::from_static("identity");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).header(header::ACCEPT_ENCODING, plain))
}

fn bad(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// Reads a whole body as a value.
fn parse<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let detail = format!("The body is not UTF-8: {}.", place(bytes, error.valid_up_to()));
        bad(detail)
    })?;
    if text.trim().is_empty() {
        return Err(bad("The body is empty. Send a JSON object.".into()));
    }
    scan(text.as_bytes())?;
    // serde would take an array's members in their order; nobody who is asked for an object means that
    let is_array = text.trim_start().starts_with('[') && !planted::is("edge-array");
    match serde_json::from_str(text) {
        Ok(_) if is_array => Err(not_an_object()),
        Ok(value) => Ok(value),
        // the error's text speaks of what the client itself has sent, and names the place
        Err(error) if error.classify() != Category::Data => Err(bad(format!("The body is not JSON: {error}."))),
        Err(_) if !text.trim_start().starts_with('{') => Err(not_an_object()),
        Err(error) => {
            let detail = format!("The body is JSON, but not what is expected here: {}.", in_terms_of_json(&error));
            Err(bad(detail))
        }
    }
}

fn not_an_object() -> Problem {
    bad("The body is JSON, but no object. Send a JSON object, which names its members.".into())
}

/// What is expected is an object to a client, and not the type that holds it here.
fn in_terms_of_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let Some((before, expected)) = text.rsplit_once("expected struct ") else { return text };
    let after = expected.split_once(' ').map_or("", |(_, after)| after);
    format!("{before}expected an object {after}")
}

/// Finds, without recursion, what the parser would overflow on or let through.
fn scan(text: &[u8]) -> Result<(), Problem> {
    let (mut depth, mut in_string, mut at) = (0usize, false, 0);
    while at < text.len() {
        match (in_string, text[at]) {
            (true, b'\\') => {
                if text[at + 1..].starts_with(b"u0000") && !planted::is("edge-nul") {
                    return Err(nul(text, at));
                }
                at += 1; // whatever is escaped ends no string
            }
            (_, b'"') => in_string = !in_string,
            (_, 0) => return Err(nul(text, at)),
            (false, b'[' | b'{') => {
                depth += 1;
                if depth > MAX_DEPTH && !planted::is("edge-nesting") {
                    let place = place(text, at);
                    return Err(bad(format!("The body is nested more than {MAX_DEPTH} levels deep: {place}.")));
                }
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn nul(text: &[u8], at: usize) -> Problem {
    bad(format!("The body holds a NUL character, which cannot be stored: {}. Leave it out.", place(text, at)))
}

/// Line and column, counted from 1 and in bytes, as the parser counts them.
fn place(text: &[u8], at: usize) -> String {
    let before = &text[..at];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
    format!("line {line} column {column}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)] // read by their being there
    struct Order {
        amount: i64,
        to: String,
    }

    fn refusal(body: impl Into<Bytes>) -> String {
        let problem = parse::<Order>(&body.into()).expect_err("refused");
        assert_eq!(problem.status(), 400);
        problem.detail().to_owned()
    }

    #[test]
    fn an_array_is_not_taken_for_an_object() {
        for body in [r#" [1500, "bob"]"#, "[]", "null", " 5", "true", "\"amount\""] {
            assert!(refusal(body).contains("no object. Send a JSON object"), "{body}: {}", refusal(body));
        }
        assert!(refusal("[1, }").contains("not JSON"));
    }

    #[test]
    fn a_client_hears_of_json_and_not_of_types() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code)]
        struct Orders {
            orders: Vec<Order>,
        }
        let problem = parse::<Orders>(&Bytes::from_static(b"{\"orders\": [null]}")).expect_err("refused");
        assert!(
            problem.detail().ends_with("invalid type: null, expected an object at line 1 column 16."),
            "{problem:?}"
        );
    }

    #[test]
    fn numbers_are_exact_and_unknown_members_are_passed_over() {
        let body = Bytes::from_static(br#"{"amount": 9007199254740993, "to": "bob", "note": {"a": ["\\u0000"]}}"#);
        assert_eq!(parse::<Order>(&body).map_err(|p| format!("{p:?}")).expect("fine").amount, 9_007_199_254_740_993);
    }

    #[test]
    fn each_fault_is_told_with_its_place() {
        for (body, said) in [
            ("", "empty"),
            (" \n", "empty"),
            ("amount=5", "not JSON: expected value at line 1 column 1"),
            ("{\"amount\": 1,\n \"to\": }", "not JSON: expected value at line 2 column 8"),
            ("{\"amount\": 1", "not JSON: EOF"),
            ("{} {}", "missing field `amount` at line 1 column 2"),
            ("{\"amount\": 1, \"to\": \"b\"} x", "not JSON: trailing characters"),
            ("{\"amount\": 1}", "missing field `to`"),
            ("{\"amount\": \"1\", \"to\": \"b\"}", "invalid type: string"),
            ("{\"amount\": 1.5, \"to\": \"b\"}", "invalid type: floating point"),
            ("{\"amount\": 9223372036854775808, \"to\": \"b\"}", "invalid value"),
            ("{\"amount\": NaN, \"to\": \"b\"}", "not JSON"),
            ("{\"amount\": 1, \"amount\": 2, \"to\": \"b\"}", "duplicate field"),
            ("{\"amount\": 1, \"to\": \"b\\u0000\"}", "NUL character, which cannot be stored: line 1 column 23"),
            ("{\"amount\": 1, \"to\": \"b\0\"}", "NUL character"),
            ("{\"amount\": 1, \"to\": \"\\ud800\"}", "not JSON"),
        ] {
            let told = refusal(body);
            assert!(told.contains(said), "{body:?}: {told}");
        }
        assert!(refusal(&b"{\"to\": \"\xff\"}"[..]).contains("not UTF-8: line 1 column 9"));
    }

    #[test]
    fn nesting_is_bounded_wherever_it_lies() {
        let deep = "[".repeat(100_000);
        assert!(refusal(deep.clone()).contains("nested more than 64"));
        assert!(refusal(format!("{{\"amount\": 1, \"to\": \"b\", \"more\": {deep}")).contains("nested more than 64"));
        let closed = format!("{{\"more\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(refusal(closed).contains("nested more than 64"));
        assert!(refusal("{\"to\": \"[[[[").contains("EOF"), "brackets in a string do not count");
    }
}
