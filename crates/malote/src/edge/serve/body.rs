//! A request body that must be complete in time.

use crate::edge::buffer::TooSlow;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use malote_core::planted;
use std::{
    error::Error,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Sleep;

/// Ends with an error when its time is over. Time counts from the request's header, so a client
/// that sends a byte now and then gains nothing.
pub(super) struct Timely {
    body: Incoming,
    end: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl Timely {
    pub(super) fn new(body: Incoming, time: Duration) -> Self {
        let empty = body.is_end_stream() || planted::is("edge-body-time");
        let end = (!empty).then(|| (Box::pin(tokio::time::sleep(time)), time));
        Self { body, end }
    }
}

impl Body for Timely {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((sleep, time)) = &mut self.end else { return Poll::Pending };
        let time = *time;
        ready!(sleep.as_mut().poll(cx));
        self.end = None;
        Poll::Ready(Some(Err(TooSlow(time).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
