//! What a leader asks of its store, beside reading: to save its cursor, to set rows aside, upkeep.
//!
//! Each question is a task of its own and has a deadline, so that the leader itself waits for none.

use super::lead::Leader;
use malote_core::{
    BoxFuture, Cause, Class, Dead, Failure, Read, Saved, Store, StoreError, Transaction,
    relay::{Cursor, Ticket, Window},
};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Between two saves while rows flow.
pub(super) const SAVE_EVERY: Duration = Duration::from_millis(25);
/// A store that does not answer for so long is given up, and the relay starts again.
pub(super) const STORE_ANSWERS: Duration = Duration::from_secs(90);
const UPKEEP_ENDS: Duration = Duration::from_secs(600);
/// Rows that are set aside in one transaction.
const ASIDE: usize = 100;
/// A gap open for longer than this is told to people, with who holds it.
const TELL_GAP: Duration = Duration::from_secs(10);

pub(super) type Reading = BoxFuture<'static, (Window, Result<Read, StoreError>)>;
pub(super) type Saving = BoxFuture<'static, (Ticket, Cursor, Instant, Result<Saved, StoreError>)>;
pub(super) type Upkeep = BoxFuture<'static, Result<String, StoreError>>;
pub(super) type Burying = BoxFuture<'static, Result<Vec<i64>, StoreError>>;

impl<S: Store> Leader<'_, S> {
    /// Sets aside what will never be published, where people can see it.
    pub(super) fn bury(&mut self) -> Burying {
        let rows: Vec<(i64, Dead)> = self.aside.drain(..self.aside.len().min(ASIDE)).collect();
        let (store, service) = (self.relay.service.store.clone(), self.relay.service.name.clone());
        let sealer = self.relay.outbox.sealer(Cause::default());
        apart(in_time("setting rows aside", STORE_ANSWERS, async move {
            let mut tx = store.begin(sealer).await?;
            for (seq, dead) in &rows {
                tracing::error!(%service, seq, "set aside by the relay: {}", dead.reason);
                store.set_aside(&mut tx, dead).await?;
            }
            tx.commit().await?;
            let mut positions: Vec<i64> = rows.into_iter().map(|(seq, _)| seq).collect();
            positions.sort_unstable();
            Ok(positions)
        }))
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty || self.traffic.wants_bound()
    }

    pub(super) fn save_is_due(&self, now: Instant, at_the_end: bool) -> bool {
        let since = now - self.last_save;
        since >= self.relay.service.settings.lease / 2
            || now >= self.ours_until
            || ((at_the_end || since >= SAVE_EVERY) && self.is_dirty())
    }

    pub(super) fn save(&mut self) -> Saving {
        let ticket = self.traffic.ask_bound();
        let cursor = self.traffic.cursor();
        self.dirty = false;
        let (store, lease) = (self.relay.service.store.clone(), self.lease.clone());
        let (asked, lasts) = (Instant::now(), self.relay.service.settings.lease);
        self.last_save = asked;
        apart(async move {
            let saved = in_time("saving the cursor", STORE_ANSWERS, store.save(&lease, &cursor, lasts)).await;
            (ticket, cursor, asked, saved)
        })
    }

    pub(super) fn was_saved(
        &mut self,
        ticket: Ticket,
        cursor: Cursor,
        asked: Instant,
        outcome: Result<Saved, StoreError>,
    ) -> Result<Saved, StoreError> {
        match &outcome {
            Ok(Saved::Kept { bound }) => {
                self.traffic.bound(ticket, *bound);
                self.saved = cursor;
                self.ours_until = asked + self.relay.service.settings.lease;
            }
            Ok(Saved::Fenced) | Err(_) => self.traffic.unasked(ticket),
        }
        outcome
    }

    pub(super) fn upkeep(&self) -> Upkeep {
        let (store, cursor) = (self.relay.service.store.clone(), self.saved.clone());
        apart(async move { in_time("upkeep", UPKEEP_ENDS, store.upkeep(&cursor)).await })
    }

    pub(super) fn was_kept_up(&self, done: Result<String, StoreError>) {
        let service = &self.relay.service.name;
        match done {
            Ok(done) if !done.is_empty() => tracing::debug!(%service, "upkeep: {done}"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%service, "upkeep: {}", Failure::from(error)),
        }
    }

    /// Says who holds a gap open, when one stays.
    pub(super) fn tell_gaps(&mut self) {
        let parts = self.traffic.gaps().parts();
        if parts == 0 {
            self.gap_since = None;
            return;
        }
        let since = *self.gap_since.get_or_insert_with(Instant::now);
        if since.elapsed() > TELL_GAP {
            self.gap_since = None;
            let (store, service) = (self.relay.service.store.clone(), self.relay.service.name.clone());
            tokio::spawn(async move {
                let asking = in_time("looking for who holds gaps", TELL_GAP, store.gap_holders());
                let holders = asking.await.unwrap_or_default().join(", ");
                tracing::warn!(%service, gaps = parts, "positions are held open by {holders}");
            });
        }
    }
}

/// Runs `work` in a task of its own, which ends with the future. A panic of it is the leader's.
pub(super) fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> BoxFuture<'static, T> {
    let task = AbortOnDropHandle::new(tokio::spawn(work));
    Box::pin(async move {
        match task.await {
            Ok(done) => done,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // the runtime itself is coming down
            Err(_) => std::future::pending().await,
        }
    })
}

/// What a store says, if it says it in time.
pub(super) async fn in_time<T>(
    doing: &str,
    limit: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let silent = |_| StoreError {
        doing: doing.to_owned(),
        class: Class::Transient,
        source: format!("no answer from the database for {limit:?}").into(),
    };
    tokio::time::timeout(limit, work).await.unwrap_or_else(|e| Err(silent(e)))
}
