//! A member of a group, as its user sees it.

use super::{
    Inner, groups, log,
    member::{Member, Shared},
};
use malote_core::{BoxFuture, Delivery, Place, Subscription, TransportError};
use std::{
    sync::Arc,
    thread::{self, Thread},
};
use tokio::sync::oneshot;

pub(super) async fn subscribe(
    inner: Arc<Inner>,
    group: &str,
    topics: &[String],
) -> Result<Box<dyn Subscription>, TransportError> {
    let doing = format!("joining group {group:?}");
    let path = inner.path.clone();
    let opened = tokio::task::spawn_blocking(move || log::open_reader(&path)).await;
    let connection = opened.map_err(|stopped| TransportError::transient(&doing, stopped))??;
    let (name, wanted) = (group.to_owned(), topics.to_vec());
    let (partitions, lease) = (inner.settings.partitions, inner.settings.lease);
    let joined = inner.writer.ask(true, move |log| groups::join(log, &name, &wanted, partitions, lease)).await;
    let (who, numbers) = joined.map_err(|e| TransportError::transient(&doing, e))?;
    let shared = Arc::new(Shared::default());
    shared.state().who = Some(who);
    let member = Member {
        inner: inner.clone(),
        shared: shared.clone(),
        connection,
        group: group.to_owned(),
        topics: topics.to_vec(),
        who,
        version: -1,
        generation: -1,
    };
    let (tell, left) = oneshot::channel();
    let started = thread::Builder::new().name(format!("malote-log-{group}")).spawn(move || member.run(numbers, tell));
    let thread = started.map_err(|e| TransportError::transient(&doing, e))?.thread().clone();
    Ok(Box::new(Reader { inner, shared, thread, group: group.to_owned(), left: Some(left) }))
}

struct Reader {
    inner: Arc<Inner>,
    shared: Arc<Shared>,
    thread: Thread,
    group: String,
    left: Option<oneshot::Receiver<()>>,
}

impl Subscription for Reader {
    fn next(&mut self, most: usize) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move {
            loop {
                {
                    let mut state = self.shared.state();
                    if let Some(failure) = state.failure.take() {
                        return Err(failure);
                    }
                    let taken = state.take(most.max(1));
                    if !taken.is_empty() {
                        if state.wants_thread() {
                            self.thread.unpark();
                        }
                        return Ok(taken);
                    }
                }
                self.shared.ready.notified().await;
            }
        })
    }

    fn hold(&mut self, partitions: &[(String, i32)]) {
        self.shared.state().hold(partitions);
        self.thread.unpark();
    }

    fn acknowledge<'a>(&'a mut self, handled: &'a [Place]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let (who, own) = {
                let state = self.shared.state();
                (state.who, state.handled(handled))
            };
            let Some(who) = who.filter(|_| !own.is_empty()) else { return Ok(()) };
            let positions = own.clone();
            // a position that a power cut takes back means records once more, which the inbox knows
            let moved = self.inner.writer.ask(false, move |log| groups::acknowledge(log, who, &positions)).await;
            moved.map_err(|e| TransportError::transient(format!("acknowledging in group {:?}", self.group), e))?;
            let mut state = self.shared.state();
            state.acknowledged(&own);
            if state.wants_thread() {
                self.thread.unpark();
            }
            Ok(())
        })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        let left = self.left.take();
        drop(self);
        Box::pin(async move {
            if let Some(left) = left {
                let _ = left.await;
            }
        })
    }
}

impl Drop for Reader {
    /// The thread takes its leave of the group; nobody waits for it.
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.thread.unpark();
    }
}
