//! Who has its report, and who still waits.
//!
//! One counter per batch instead of one future per record: a report is a store into the batch's list,
//! and the last one wakes whoever waits for the batch.

use super::{doors::At, verdict::Verdict};
use malote_core::{Report, Reports, planted};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// The batches of one publisher.
pub(super) struct Account {
    /// Why the publisher has ended, once it has.
    ended: Mutex<Option<String>>,
    has_ended: AtomicBool,
    batches: Mutex<Vec<Arc<Batch>>>,
    reported: AtomicU64,
    caution: Arc<AtomicUsize>,
    waiting: AtomicUsize,
    moved: Notify,
}

/// Held while a record is handed over; the publisher cannot end meanwhile.
pub(super) struct Gate<'a>(MutexGuard<'a, Option<String>>);

impl Gate<'_> {
    pub(super) fn is_shut(&self) -> bool {
        self.0.is_some()
    }
}

/// One call of `send`.
struct Batch {
    state: Mutex<State>,
}

struct State {
    slots: Vec<Slot>,
    /// Records without a report.
    left: usize,
    /// Those of them that the client has.
    away: usize,
    /// The last time that anything happened to it.
    moved: Instant,
    done: Option<oneshot::Sender<Vec<Report>>>,
}

/// Where a record is.
enum Slot {
    Here,
    Away,
    Told(Report),
}

/// Travels with a record through the client.
pub(super) struct Entry {
    batch: Arc<Batch>,
    at: usize,
    /// The door that its report opens.
    pub(super) opens: Option<At>,
}

impl Account {
    /// `caution` is told how many records are in doubt when one of them is at fault.
    pub(super) fn new(caution: Arc<AtomicUsize>) -> Self {
        Self {
            ended: Mutex::default(),
            has_ended: AtomicBool::new(false),
            batches: Mutex::default(),
            reported: AtomicU64::new(0),
            caution,
            waiting: AtomicUsize::new(0),
            moved: Notify::new(),
        }
    }

    /// Opens a batch of so many records.
    pub(super) fn open(&self, count: usize) -> (Handing, Reports) {
        let (done, reports) = oneshot::channel();
        let slots = std::iter::repeat_with(|| Slot::Here).take(count).collect();
        let state = State { slots, left: count, away: 0, moved: Instant::now(), done: Some(done) };
        let batch = Arc::new(Batch { state: Mutex::new(state) });
        lock(&self.batches).push(batch.clone());
        let unknown = move |_| vec![Report::Unknown("the publisher is gone".into()); count];
        (Handing(batch), Box::pin(async move { reports.await.unwrap_or_else(unknown) }))
    }

    pub(super) fn gate(&self) -> Gate<'_> {
        Gate(lock(&self.ended))
    }

    pub(super) fn ended(&self) -> Option<String> {
        lock(&self.ended).clone()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    /// From here on nothing is handed over. The first reason stays.
    pub(super) fn end(&self, why: &str) {
        lock(&self.ended).get_or_insert_with(|| why.to_owned());
        self.has_ended.store(true, SeqCst);
        self.wake();
    }

    /// Takes in what became of a record that failed; the publisher ends with the first.
    pub(super) fn failed(&self, entry: &Entry, verdict: Verdict) {
        if let Verdict::Suspect(_) = verdict {
            self.caution.fetch_max(self.open_records(), SeqCst);
        }
        let (Verdict::Refused(why) | Verdict::Suspect(why) | Verdict::Unknown(why)) = &verdict;
        if !planted::is("kafka-first-failure") {
            self.end(why);
        }
        let why = if matches!(verdict, Verdict::Refused(_)) { None } else { self.ended() }.unwrap_or(why.clone());
        self.tell(
            entry,
            match verdict {
                Verdict::Refused(_) => Report::Refused(why),
                _ if planted::is("kafka-own-report") => Report::Stored,
                _ if planted::is("kafka-unknown") => Report::Refused(why),
                _ => Report::Unknown(why),
            },
        );
    }

    /// Takes in a report.
    pub(super) fn tell(&self, entry: &Entry, report: Report) {
        entry.batch.report(entry.at, report);
        self.reported.fetch_add(1, SeqCst);
        self.wake();
    }

    /// How many reports have come, of any kind.
    pub(super) fn reported(&self) -> u64 {
        self.reported.load(SeqCst)
    }

    /// Records without a report.
    pub(super) fn open_records(&self) -> usize {
        lock(&self.batches).iter().map(|batch| lock(&batch.state).left).sum()
    }

    /// Forgets batches that are done, and says whether one has not moved for so long.
    pub(super) fn is_stalled(&self, limit: Duration) -> bool {
        let mut batches = lock(&self.batches);
        batches.retain(|batch| lock(&batch.state).left > 0);
        let now = Instant::now();
        batches.iter().any(|batch| {
            let state = lock(&batch.state);
            state.away > 0 && now.saturating_duration_since(state.moved) > limit
        })
    }

    /// The client is gone: what has no report gets none any more.
    pub(super) fn close(&self) {
        let why = self.ended().unwrap_or_default();
        for batch in lock(&self.batches).drain(..) {
            batch.give_up(&why, true);
        }
        self.wake();
    }

    /// Waits until `done`, which is looked at after each report.
    pub(super) async fn wait(&self, done: impl Fn() -> bool) {
        self.waiting.fetch_add(1, SeqCst);
        let _leave = Leave(&self.waiting);
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if done() {
                return;
            }
            moved.await;
        }
    }

    fn wake(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.moved.notify_waiters();
        }
    }
}

/// Counts a waiter out, also when it gives up.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A batch while it is handed over. What was not handed over in the end was not sent.
pub(super) struct Handing(Arc<Batch>);

impl Handing {
    pub(super) fn entry(&self, at: usize) -> Entry {
        Entry { batch: self.0.clone(), at, opens: None }
    }

    /// The client is about to get this record, now or when its door opens.
    pub(super) fn away(&self, at: usize) {
        self.0.place(at, Slot::Away);
    }

    /// The client did not take it.
    pub(super) fn back(&self, at: usize) {
        self.0.place(at, Slot::Here);
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        self.0.give_up("it was not sent: the publisher had ended", false);
    }
}

impl Batch {
    fn place(&self, at: usize, to: Slot) {
        let mut state = lock(&self.state);
        state.moved = Instant::now();
        state.put(at, to);
    }

    fn report(&self, at: usize, report: Report) {
        self.place(at, Slot::Told(report));
        lock(&self.state).tell();
    }

    /// What is here, or even away, will have no report.
    fn give_up(&self, why: &str, even_away: bool) {
        let mut state = lock(&self.state);
        for at in 0..state.slots.len() {
            let lost = match state.slots[at] {
                Slot::Here => true,
                Slot::Away => even_away,
                Slot::Told(_) => false,
            };
            if lost {
                state.put(at, Slot::Told(Report::Unknown(why.to_owned())));
            }
        }
        state.tell();
    }
}

impl State {
    /// The only place where the counters change. A report stays.
    fn put(&mut self, at: usize, to: Slot) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        match slot {
            Slot::Told(_) => return,
            Slot::Away => self.away -= 1,
            Slot::Here => {}
        }
        match to {
            Slot::Told(_) => self.left -= 1,
            Slot::Away => self.away += 1,
            Slot::Here => {}
        }
        *slot = to;
    }

    fn tell(&mut self) {
        if self.left == 0
            && let Some(done) = self.done.take()
        {
            let told = std::mem::take(&mut self.slots).into_iter().filter_map(|slot| match slot {
                Slot::Told(report) => Some(report),
                Slot::Here | Slot::Away => None,
            });
            // nobody may wait for them any more
            let _ = done.send(told.collect());
        }
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
