//! The ways out, one for each lane: a publisher, a task that uses it, and how it fares.
//!
//! A lane's first doubt ends its task and with it the publisher. What had no report is sent again by
//! a new one, after a pause that grows while nothing is stored.

use super::counts::Counts;
use super::sender::{Told, What, send_all};
use crate::supervise::Beat;
use malote_core::{Row, Transport, retry::Backoff};
use std::{collections::BTreeMap, panic::resume_unwind, sync::Arc, time::Duration};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

/// What all lanes of a relay share.
pub(super) struct Way {
    pub service: Arc<str>,
    pub transport: Arc<dyn Transport>,
    pub deadline: Duration,
    pub counts: Counts,
}

/// A lane that moved nothing for so long is not waited for by the others.
const PATIENCE: Duration = Duration::from_millis(200);

pub(super) struct Lanes<'b> {
    way: Arc<Way>,
    beat: &'b Beat,
    backoff: Backoff,
    tasks: JoinSet<()>,
    told: mpsc::UnboundedSender<Told>,
    lanes: BTreeMap<usize, Lane>,
}

struct Lane {
    /// Where its task takes rows from, while it has one.
    rows: Option<mpsc::UnboundedSender<Vec<Row>>>,
    /// Rows without a report.
    under_way: usize,
    /// The last time that anything of it was reported, or that it had nothing to do.
    moved: Instant,
    /// Doubts since anything was stored.
    doubts: u32,
    /// When it may be tried again.
    opens: Option<Instant>,
    /// What is wrong, until something is stored.
    trouble: Option<String>,
}

impl<'b> Lanes<'b> {
    pub(super) fn new(way: Way, beat: &'b Beat, backoff: Backoff) -> (Self, mpsc::UnboundedReceiver<Told>) {
        let (told, hears) = mpsc::unbounded_channel();
        (Self { way: Arc::new(way), beat, backoff, tasks: JoinSet::new(), told, lanes: BTreeMap::new() }, hears)
    }

    /// Hands rows to a lane; starts its task if it has none.
    pub(super) fn send(&mut self, number: usize, rows: Vec<Row>) {
        let lane = self.lanes.entry(number).or_insert_with(Lane::new);
        if lane.under_way == 0 {
            lane.moved = Instant::now();
        }
        lane.under_way += rows.len();
        let to = lane.rows.get_or_insert_with(|| {
            let (to, from) = mpsc::unbounded_channel();
            self.tasks.spawn(send_all(number, self.way.clone(), from, self.told.clone()));
            to
        });
        // one that has just ended has said so: what it did not take is sent again
        let _ = to.send(rows);
    }

    /// So many rows of a lane are stored, or refused for good.
    pub(super) fn moved(&mut self, number: usize, rows: usize) {
        let Some(lane) = self.lanes.get_mut(&number).filter(|_| rows > 0) else { return };
        lane.under_way = lane.under_way.saturating_sub(rows);
        (lane.moved, lane.doubts, lane.trouble) = (Instant::now(), 0, None);
        self.works();
    }

    /// The part counts as working when no lane is in trouble.
    pub(super) fn works(&self) {
        if self.lanes.values().all(|lane| lane.trouble.is_none()) {
            self.beat.working();
        }
    }

    /// The task of a lane has ended, in doubt if a reason is given. Then it opens again later.
    pub(super) fn ended(&mut self, number: usize, why: Option<String>) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        (lane.rows, lane.under_way) = (None, 0);
        if let Some(why) = why {
            lane.doubts += 1;
            let hot = malote_core::planted::is("again-at-once");
            let wait = if hot { Duration::ZERO } else { self.backoff.wait(lane.doubts, fastrand::f64()) };
            tracing::warn!(service = %self.way.service, "sending again what has no report, in {wait:?}: {why}");
            lane.opens = Some(Instant::now() + wait);
            lane.trouble = Some(why.clone());
            self.beat.failing(why);
        }
    }

    /// A lane whose pause is over, once.
    pub(super) fn opens(&mut self, now: Instant) -> Option<usize> {
        let over = |lane: &Lane| lane.opens.is_some_and(|at| at <= now);
        let (number, lane) = self.lanes.iter_mut().find(|(_, lane)| over(lane))?;
        lane.opens = None;
        Some(*number)
    }

    /// When the next pause is over.
    pub(super) fn next_opening(&self) -> Option<Instant> {
        self.lanes.values().filter_map(|lane| lane.opens).min()
    }

    /// Until when the others wait for this lane.
    pub(super) fn waits_until(&self, number: usize) -> Instant {
        self.lanes.get(&number).map_or_else(Instant::now, |lane| lane.moved + PATIENCE)
    }

    /// Takes nothing new; each task ends when what it has is reported.
    pub(super) fn close(&mut self) {
        self.lanes.values_mut().for_each(|lane| lane.rows = None);
    }

    /// Whether no task is left. A panic of one is the relay's.
    pub(super) fn are_over(&mut self) -> bool {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(ended) = ended
                && let Ok(panic) = ended.try_into_panic()
            {
                resume_unwind(panic)
            }
        }
        self.tasks.is_empty()
    }

    /// Ends all tasks, and waits until none hands over anything any more.
    pub(super) async fn cut_off(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Lane {
    fn new() -> Self {
        Self { rows: None, under_way: 0, moved: Instant::now(), doubts: 0, opens: None, trouble: None }
    }
}

/// Says of which lane it is, also when its task panics.
pub(super) struct Teller {
    lane: usize,
    told: mpsc::UnboundedSender<Told>,
    ended: bool,
}

impl Teller {
    pub(super) fn new(lane: usize, told: mpsc::UnboundedSender<Told>) -> Self {
        Self { lane, told, ended: false }
    }

    pub(super) fn tell(&mut self, what: What) {
        self.ended |= matches!(what, What::Ended(_));
        // nobody listens any more when the lease is lost; then nothing is to be told
        let _ = self.told.send(Told { lane: self.lane, what });
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if !self.ended {
            self.tell(What::Ended(None));
        }
    }
}
