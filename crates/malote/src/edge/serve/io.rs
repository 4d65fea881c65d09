//! A stream that gives up on a peer that takes nothing.

use super::refusal;
use bytes::{Buf, Bytes};
use malote_core::planted;
use std::{
    future::Future,
    io::{Error, ErrorKind, IoSlice, Result},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// Fails a write for which the peer makes no room for `time`: its buffers are full and it does not
/// read. Without that, its connection, and the answer waiting for it, would stay for ever.
pub(super) struct Impatient<T> {
    stream: T,
    time: Duration,
    /// What is sent in place of something that was taken already.
    instead: Bytes,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<T> Impatient<T> {
    pub(super) fn new(stream: T, time: Duration) -> Self {
        Self { stream, time, instead: Bytes::new(), waiting: None }
    }

    /// Passes on what is ready; looks at the time otherwise.
    fn bounded<R>(&mut self, cx: &mut Context<'_>, poll: Poll<Result<R>>) -> Poll<Result<R>> {
        if poll.is_ready() || planted::is("edge-write-time") {
            self.waiting = None;
            return poll;
        }
        let end = Instant::now() + self.time;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client takes nothing of its answer")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Impatient<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> Impatient<T> {
    /// Sends what is sent in place of something else.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.instead.is_empty() {
            let poll = Pin::new(&mut self.stream).poll_write(cx, &self.instead);
            let sent = ready!(self.bounded(cx, poll))?;
            if sent == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            self.instead.advance(sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Whether `bytes` are taken to be replaced; what replaces them goes out with the next flush.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        let instead = refusal::in_place_of(bytes);
        self.instead = instead.unwrap_or_default();
        !self.instead.is_empty()
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Impatient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        ready!(self.drain(cx))?;
        if self.replaces(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        ready!(self.drain(cx))?;
        if let [head] = bytes
            && self.replaces(head)
        {
            return Poll::Ready(Ok(head.len()));
        }
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.bounded(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.drain(cx))?;
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.bounded(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.drain(cx))?;
        let poll = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(cx, poll)
    }
}
