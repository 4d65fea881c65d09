//! Takes a body whole, within a size and a time.

use super::Problem;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use malote_core::planted;
use std::{error::Error, time::Duration};

/// Largest body taken unless another limit is set, in bytes.
pub(super) const BODY_BYTES: usize = 64 * 1024;
/// How long a body may take unless another limit is set.
pub(super) const BODY_TIME: Duration = Duration::from_secs(10);

/// Says, in a request's extensions, that its body is here already and within the limits.
#[derive(Clone, Copy)]
pub(super) struct Buffered;

/// The body took longer than it may; the [server](super::Server) raises it inside the body.
#[derive(Debug, thiserror::Error)]
#[error("the body took longer than {0:?}")]
pub(super) struct TooSlow(pub(super) Duration);

/// The whole body, or why not.
pub(super) async fn whole(body: Body, most: usize, time: Duration) -> Result<Bytes, Problem> {
    let most = if planted::is("edge-body-bytes") { usize::MAX } else { most };
    let time = if planted::is("edge-body-time") { Duration::from_secs(86_400) } else { time };
    match tokio::time::timeout(time, read(body, most)).await {
        Ok(read) => read,
        Err(_) => Err(too_slow(time)),
    }
}

async fn read(mut body: Body, most: usize) -> Result<Bytes, Problem> {
    use axum::body::HttpBody as _;
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        if whole.len() + data.len() > most {
            return Err(too_large(most));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

fn too_large(most: usize) -> Problem {
    let detail = format!("The body is larger than the {most} bytes that are allowed here.");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).with("limit", most).close()
}

fn too_slow(time: Duration) -> Problem {
    let detail = format!("The body did not arrive within {time:?}.");
    Problem::new(StatusCode::REQUEST_TIMEOUT, detail).close()
}

fn broken(error: &axum::Error) -> Problem {
    let mut inner: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = inner {
        if let Some(TooSlow(time)) = error.downcast_ref() {
            return too_slow(*time);
        }
        inner = error.source();
    }
    Problem::new(StatusCode::BAD_REQUEST, "The body ended before it was complete.").close()
}
