//! What a relay does while it holds the lease.

use super::{
    Relay, RelayError,
    sender::{Settled, send_all},
};
use malote_core::{
    BoxFuture, Cause, Envelope, Failure, Lease, Read, Row, Saved, Store, StoreError, Transaction,
    relay::{Cursor, Observation, Plan, Ticket, Window},
};
use std::time::Duration;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::AbortOnDropHandle;

/// Bytes of rows that one read aims at; the number of rows follows from their size so far.
const READ_BYTES: usize = 4 << 20;
const READ_ROWS: usize = 4_000;
/// Batches that are read ahead of their reports.
const BATCHES: usize = 4;
/// Between two saves while rows flow.
const SAVE_EVERY: Duration = Duration::from_millis(25);
const UPKEEP_EVERY: Duration = Duration::from_secs(10);
/// More ranges of gaps than this, and the relay reads no further until some close.
const MOST_GAPS: usize = 10_000;
/// A gap open for longer than this is told to people, with who holds it.
const TELL_GAP: Duration = Duration::from_secs(10);
const SHORTEST_POLL: Duration = Duration::from_millis(5);

/// How a lease came to its end.
pub(super) enum End {
    /// Told to stop; all reports that came are saved.
    Stopped,
    /// Somebody else has the lease.
    Fenced,
    /// Some rows have no report of their own; they are read and sent again.
    Doubt { why: String, cursor: Cursor },
}

/// One lease's work.
struct Leader<'r, S: Store> {
    relay: &'r Relay<S>,
    lease: &'r Lease,
    plan: Plan,
    /// What is stored of the plan's cursor.
    saved: Cursor,
    last_save: Instant,
    /// Until when nobody else can have the lease, by this process's own steady clock.
    ours_until: Instant,
    next_read: Instant,
    poll: Duration,
    /// A sign of new rows came after the last read began, which may not have seen them.
    woken: bool,
    next_upkeep: Instant,
    /// Batches that were read and have not all their reports.
    batches: usize,
    /// Average size of a row, in bytes.
    row_bytes: usize,
    gap_since: Option<Instant>,
    /// Set when no more rows are to be taken, with the doubt that led to it, if one did.
    ending: Option<Option<String>>,
}

type Reading = BoxFuture<'static, (Window, Result<Read, StoreError>)>;
type Saving = BoxFuture<'static, (Ticket, Cursor, Instant, Result<Saved, StoreError>)>;
type Upkeep = BoxFuture<'static, Result<String, StoreError>>;

impl<S: Store> Relay<S> {
    /// Works under a lease that was asked for at `asked`, from `cursor` on, until it ends.
    pub(super) async fn lead(&self, lease: &Lease, cursor: Cursor, asked: Instant) -> Result<End, RelayError> {
        let publisher = self.service.transport.publisher().await?;
        let now = Instant::now();
        let leader = Leader {
            relay: self,
            lease,
            plan: Plan::resume(cursor.clone()),
            saved: cursor,
            last_save: now,
            ours_until: asked + self.service.settings.lease,
            next_read: now,
            poll: SHORTEST_POLL,
            woken: false,
            next_upkeep: now,
            batches: 0,
            row_bytes: 1024,
            gap_since: None,
            ending: None,
        };
        let (rows, taken) = mpsc::channel(BATCHES);
        let (told, settled) = mpsc::unbounded_channel();
        let sending = send_all(&self.service.name, self.service.transport.system(), publisher, taken, told);
        leader.run(sending, rows, settled).await
    }
}

impl<S: Store> Leader<'_, S> {
    async fn run(
        mut self,
        sending: impl Future<Output = Option<String>>,
        rows: mpsc::Sender<Vec<Row>>,
        mut settled: mpsc::UnboundedReceiver<Settled>,
    ) -> Result<End, RelayError> {
        tokio::pin!(sending);
        let mut rows = Some(rows);
        let (mut reading, mut saving, mut upkeep) = (None::<Reading>, None::<Saving>, None::<Upkeep>);
        let mut waking = self.waking();
        let (mut read, mut sent_all) = (None::<Vec<Row>>, false);
        loop {
            let now = Instant::now();
            // rows are not handed over when the lease may have passed to another meanwhile
            if now < self.ours_until
                && let Some(some) = read.take()
                && let Some(rows) = &rows
                && rows.try_send(some).is_err()
            {
                // only when sending has ended in doubt: they are read again
                self.batches -= 1;
            }
            if self.ending.is_some() {
                (rows, read) = (None, None);
            }
            let drained = sent_all && settled.is_closed() && settled.is_empty();
            if saving.is_none() && self.save_is_due(now, drained) {
                saving = Some(self.save());
            }
            if drained && saving.is_none() {
                return Ok(match self.ending.flatten() {
                    Some(why) => End::Doubt { why, cursor: self.saved },
                    None => End::Stopped,
                });
            }
            let may_read = self.ending.is_none() && reading.is_none() && read.is_none() && self.batches < BATCHES;
            if may_read && now >= self.next_read && self.plan.gaps().parts() < MOST_GAPS {
                reading = Some(self.read());
            }
            if upkeep.is_none() && now >= self.next_upkeep {
                self.next_upkeep = now + UPKEEP_EVERY;
                self.tell_gaps().await;
                upkeep = Some(self.upkeep());
            }
            let timer = self.next_look(may_read && reading.is_none(), saving.is_none());
            tokio::select! {
                biased;
                () = self.relay.stop.cancelled(), if self.ending.is_none() => self.ending = Some(None),
                (window, seen) = slot(&mut reading) => {
                    reading = None;
                    read = self.observe(&window, seen?);
                }
                Some(batch) = settled.recv() => self.settle(batch).await?,
                doubt = &mut sending, if !sent_all => {
                    sent_all = true;
                    self.ending = Some(doubt);
                }
                (ticket, cursor, asked, outcome) = slot(&mut saving) => {
                    saving = None;
                    if self.was_saved(ticket, cursor, asked, outcome)? == Saved::Fenced {
                        return Ok(End::Fenced);
                    }
                }
                done = slot(&mut upkeep) => {
                    upkeep = None;
                    self.was_kept_up(done);
                }
                () = &mut waking => {
                    waking = self.waking();
                    (self.woken, self.next_read) = (true, Instant::now());
                }
                () = tokio::time::sleep_until(timer) => {}
            }
        }
    }

    /// When to look again if nothing happens.
    fn next_look(&self, may_read: bool, may_save: bool) -> Instant {
        let renewal = self.last_save + self.relay.service.settings.lease / 2;
        let read = if may_read { self.next_read } else { renewal };
        let save = if may_save && self.is_dirty() { self.last_save + SAVE_EVERY } else { renewal };
        renewal.min(self.next_upkeep).min(read).min(save)
    }

    fn waking(&self) -> BoxFuture<'static, ()> {
        let store = self.relay.service.store.clone();
        Box::pin(async move { store.woken().await })
    }

    fn read(&mut self) -> Reading {
        self.woken = false;
        let limit = (READ_BYTES / self.row_bytes.max(1)).clamp(16, READ_ROWS);
        let window = self.plan.window(limit);
        let store = self.relay.service.store.clone();
        apart(async move {
            let read = store.read(&window).await;
            (window, read)
        })
    }

    /// Takes in a read; the rows, if there are any, are to be sent.
    fn observe(&mut self, window: &Window, read: Read) -> Option<Vec<Row>> {
        let positions: Vec<i64> = read.rows.iter().map(|r| r.seq).collect();
        self.plan.observe(&Observation { ended_below: read.ended_below, positions: &positions, window });
        let full = read.rows.len() >= window.limit;
        self.poll = if read.rows.is_empty() { self.poll * 2 } else { SHORTEST_POLL };
        self.poll = self.poll.min(self.relay.service.settings.idle_poll);
        let at_once = full || self.woken;
        self.next_read = Instant::now() + if at_once { Duration::ZERO } else { self.poll };
        if read.rows.is_empty() {
            return None;
        }
        let bytes: usize = read.rows.iter().filter_map(|r| r.envelope.as_ref().ok()).map(Envelope::size).sum();
        self.row_bytes = (self.row_bytes + bytes / read.rows.len()) / 2;
        self.batches += 1;
        Some(read.rows)
    }

    /// Takes in the reports of a batch; what was refused for good is set aside first.
    async fn settle(&mut self, batch: Settled) -> Result<(), StoreError> {
        self.batches -= 1;
        let Settled { mut stored, refused, .. } = batch;
        if !refused.is_empty() {
            let store = &self.relay.service.store;
            let mut tx = store.begin(self.relay.outbox.sealer(Cause::default())).await?;
            for (seq, dead) in &refused {
                tracing::error!(service = %self.relay.service.name, seq, "set aside by the relay: {}", dead.reason);
                store.set_aside(&mut tx, dead).await?;
            }
            tx.commit().await?;
            stored.extend(refused.iter().map(|(seq, _)| *seq));
            stored.sort_unstable();
        }
        self.plan.settle(&stored);
        Ok(())
    }

    fn is_dirty(&self) -> bool {
        self.plan.wants_bound() || self.plan.cursor() != self.saved
    }

    fn save_is_due(&self, now: Instant, at_the_end: bool) -> bool {
        let since = now - self.last_save;
        since >= self.relay.service.settings.lease / 2
            || now >= self.ours_until
            || ((at_the_end || since >= SAVE_EVERY) && self.is_dirty())
    }

    fn save(&mut self) -> Saving {
        let ticket = self.plan.ask_bound();
        let cursor = self.plan.cursor();
        let (store, lease) = (self.relay.service.store.clone(), self.lease.clone());
        let (asked, lasts) = (Instant::now(), self.relay.service.settings.lease);
        self.last_save = asked;
        apart(async move {
            let saved = store.save(&lease, &cursor, lasts).await;
            (ticket, cursor, asked, saved)
        })
    }

    fn was_saved(
        &mut self,
        ticket: Ticket,
        cursor: Cursor,
        asked: Instant,
        outcome: Result<Saved, StoreError>,
    ) -> Result<Saved, StoreError> {
        match &outcome {
            Ok(Saved::Kept { bound }) => {
                self.plan.bound(ticket, *bound);
                self.saved = cursor;
                self.ours_until = asked + self.relay.service.settings.lease;
            }
            Ok(Saved::Fenced) | Err(_) => self.plan.unasked(ticket),
        }
        outcome
    }

    fn upkeep(&self) -> Upkeep {
        let (store, cursor) = (self.relay.service.store.clone(), self.saved.clone());
        apart(async move { store.upkeep(&cursor).await })
    }

    fn was_kept_up(&self, done: Result<String, StoreError>) {
        let service = &self.relay.service.name;
        match done {
            Ok(done) if !done.is_empty() => tracing::debug!(%service, "upkeep: {done}"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%service, "upkeep: {}", Failure::from(error)),
        }
    }

    /// Says who holds a gap open, when one stays.
    async fn tell_gaps(&mut self) {
        let gaps = self.plan.gaps();
        if gaps.is_empty() {
            self.gap_since = None;
            return;
        }
        let since = *self.gap_since.get_or_insert_with(Instant::now);
        if since.elapsed() > TELL_GAP {
            self.gap_since = None;
            let holders = self.relay.service.store.gap_holders().await.unwrap_or_default().join(", ");
            tracing::warn!(service = %self.relay.service.name, gaps = gaps.parts(), "positions are held open by {holders}");
        }
    }
}

/// Runs `work` in a task of its own, which ends with the future. What asks the store must go on while
/// the leader waits for something else of the same store: it may hold the connection that is waited for.
fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> BoxFuture<'static, T> {
    if malote_core::planted::is("leader-waits-for-itself") {
        return Box::pin(work);
    }
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

/// The future in the slot, or one that never resolves.
async fn slot<T>(slot: &mut Option<BoxFuture<'static, T>>) -> T {
    match slot {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
