//! Which of the rows that were read may go out now, and which have to wait for their destination.
//!
//! Topics are on different machines, and one that does not answer must not hold up the others. So
//! each has a lane with a share of its own. A row whose lane is full, or shut after a doubt, is *held*:
//! it is not handed over and not kept in memory; its position stays open, and it is read again when
//! its lane moves. A doubt is the same: what was under way without a report is held.
//!
//! ```text
//!   read ─┬─▶ lane a ──▶ under way ──▶ report ──▶ settled
//!         │      └─ full or shut ─▶ held ─▶ read again, first of its lane
//!         └─▶ lane b ──▶ …
//! ```
//!
//! Order is kept by one rule: a row waits when its lane holds anything below it.

use super::{Cursor, Observation, Plan, Ranges, Ticket, Window, pace::Pace};
use crate::planted;
use std::collections::BTreeMap;

/// A lane's held rows are remembered in at most so many ranges. Beyond that they are merged over the
/// rows of others between them, which are then read once more and passed over.
const PARTS: usize = 1_000;

/// What a relay has under way and holds back, by lane, beside the account of its gaps.
#[derive(Clone, Debug)]
pub struct Traffic {
    plan: Plan,
    lanes: Vec<Lane>,
    topics: BTreeMap<String, usize>,
    most: usize,
    share: usize,
}

#[derive(Clone, Debug)]
struct Lane {
    topics: usize,
    /// Rows that were handed over and have no report.
    under_way: Ranges,
    rows: usize,
    /// In these ranges, the rows of this lane are still to be sent.
    held: Ranges,
    /// Held rows up to here may have been sent before.
    doubtful: i64,
    pace: Pace,
    /// Nothing goes out.
    shut: bool,
    /// The others do not wait for it.
    slow: bool,
}

/// What to do with the rows of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sorted {
    /// Of each row, whether it is to be handed over now. The others are dropped.
    pub go: Vec<bool>,
    /// How many of those that go may have been sent before.
    pub again: usize,
}

impl Traffic {
    /// Takes up where a cursor stands, with at most `most` lanes of `share` rows each.
    pub fn resume(cursor: Cursor, most: usize, share: usize) -> Self {
        let plan = Plan::resume(cursor);
        Self { plan, lanes: Vec::new(), topics: BTreeMap::new(), most: most.max(1), share: share.max(1) }
    }

    /// The lane of a topic. While there are fewer topics than lanes, each has one to itself.
    pub fn lane(&mut self, topic: &str) -> usize {
        if let Some(lane) = self.topics.get(topic) {
            return *lane;
        }
        let lane = if self.lanes.len() < self.most {
            self.lanes.push(Lane::new(self.share));
            self.lanes.len() - 1
        } else {
            (0..self.lanes.len()).min_by_key(|lane| self.lanes[*lane].topics).unwrap_or(0)
        };
        self.lanes[lane].topics += 1;
        self.topics.insert(topic.to_owned(), lane);
        lane
    }

    /// From now on each lane may have so many rows under way.
    pub fn resize(&mut self, share: usize) {
        self.share = share.max(1);
        self.lanes.iter_mut().for_each(|lane| lane.pace.resize(self.share));
    }

    /// What to read next: the gaps, held rows of lanes that have room, and the tail if wanted. Of
    /// what may have been sent before, `again` rows at most. One read may be under way at a time.
    pub fn window(&self, limit: usize, tail: bool, mut again: usize) -> Window {
        let mut window = self.plan.window(limit);
        let ready: Vec<&Lane> = self.lanes.iter().filter(|lane| lane.is_ready(again)).collect();
        // the tail has at least half of the read
        let each = (if tail { limit / 2 } else { limit } / ready.len().max(1)).max(1);
        for lane in ready {
            let mut rows = each.min(lane.room());
            if lane.is_doubtful() {
                rows = rows.min(again);
                again -= rows;
            }
            window.gaps.extend(&lane.held.first_members(rows));
        }
        if !tail {
            window.high = i64::MAX;
        }
        window
    }

    /// Whether some row that is held may be read again now.
    pub fn has_ready(&self, again: usize) -> bool {
        self.lanes.iter().any(|lane| lane.is_ready(again))
    }

    /// Whether some lane waits only because its rows may have been sent before.
    pub fn waits_for_budget(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_doubtful() && lane.is_ready(usize::MAX))
    }

    /// Whether a read of `limit` rows of the tail can go out. Lanes that keep up are waited for, so
    /// that no row is read twice for nothing; lanes that do not are not.
    pub fn has_room(&self, limit: usize) -> bool {
        let mut keep_up = self.lanes.iter().filter(|lane| !lane.slow && !lane.shut).peekable();
        let any = self.lanes.is_empty() || keep_up.peek().is_some();
        any && keep_up.all(|lane| lane.held.is_empty() && lane.room() >= limit.min(lane.pace.rows()))
    }

    /// Lanes for which the others wait.
    pub fn waited_for(&self) -> impl Iterator<Item = usize> + '_ {
        let full = |lane: &Lane| !lane.slow && !lane.shut && lane.rows > 0;
        self.lanes.iter().enumerate().filter(move |(_, lane)| full(lane)).map(|(number, _)| number)
    }

    /// The lane has not moved for a while: the others go on without it until it has caught up.
    pub fn is_slow(&mut self, lane: usize) {
        self.lanes[lane].slow = !planted::is("wait-for-the-slow");
    }

    /// Takes in what a read showed: each row's position and lane; none for a row that goes nowhere
    /// (it cannot be read, and is to be set aside).
    pub fn observe(&mut self, ended_below: u64, rows: &[(i64, Option<usize>)], window: &Window) -> Sorted {
        let wanted = self.wanted(rows);
        let positions: Vec<i64> = rows.iter().map(|row| row.0).collect();
        // a read that was cut short says nothing about what lies above its last row
        let cut = rows.len() >= window.limit;
        let horizon = if cut { positions.last().copied().unwrap_or(0) } else { i64::MAX };
        let looked_at = window.gaps.up_to(horizon);
        for lane in self.lanes.iter_mut().filter(|lane| !lane.held.is_empty()) {
            lane.held.subtract(&looked_at);
        }
        self.plan.observe(&Observation { ended_below, positions: &positions, window });
        let mut sorted = Sorted { go: Vec::with_capacity(rows.len()), again: 0 };
        let mut dropped = Vec::new();
        for ((at, lane), wanted) in rows.iter().zip(wanted) {
            let go = wanted && self.admit(*at, *lane);
            sorted.again += usize::from(go && lane.is_some_and(|lane| *at <= self.lanes[lane].doubtful));
            sorted.go.push(go);
            if !go {
                dropped.push(*at);
            }
        }
        self.plan.settle(&dropped);
        self.lanes.iter_mut().for_each(|lane| lane.held.coarsen(PARTS));
        sorted
    }

    /// Which of the rows are not settled or under way already: ranges of held rows may have been
    /// merged over those of others.
    fn wanted(&self, rows: &[(i64, Option<usize>)]) -> Vec<bool> {
        let (high, gaps) = (self.plan.window(0).high, self.plan.gaps());
        let is_held = |lane: &Option<usize>, at| lane.is_some_and(|lane| self.lanes[lane].held.contains(at));
        rows.iter().map(|(at, lane)| *at > high || gaps.contains(*at) || is_held(lane, *at)).collect()
    }

    fn admit(&mut self, at: i64, lane: Option<usize>) -> bool {
        let crowded = planted::is("one-share") && self.lanes.iter().map(|lane| lane.rows).sum::<usize>() >= self.share;
        lane.is_none_or(|lane| self.lanes[lane].admit(at, crowded))
    }

    /// These rows of a lane have their report: they are stored.
    pub fn stored(&mut self, lane: usize, positions: &[i64]) {
        self.lanes[lane].reported(positions);
        self.plan.settle(positions);
    }

    /// These rows of a lane have their report: refused for good. They stay open until they are set aside.
    pub fn refused(&mut self, lane: usize, positions: &[i64]) {
        self.lanes[lane].reported(positions);
    }

    /// These rows are set aside.
    pub fn set_aside(&mut self, positions: &[i64]) {
        self.plan.settle(positions);
    }

    /// What is under way in a lane will have no report. It is sent again, slowly at first, once the
    /// lane is opened.
    pub fn doubt(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        let back = std::mem::take(&mut lane.under_way);
        self.plan.take_back(&back);
        lane.doubtful = back.last_part().map_or(lane.doubtful, |part| lane.doubtful.max(part.1));
        lane.held.extend(&back);
        (lane.rows, lane.shut, lane.slow) = (0, true, true);
        if !planted::is("full-speed-again") {
            lane.pace.shrink();
        }
    }

    /// A lane that was in doubt may send again.
    pub fn open(&mut self, lane: usize) {
        self.lanes[lane].shut = false;
        self.lanes[lane].catch_up();
    }

    /// The cursor that may be stored now. Whoever resumes from it reads again all that has no report.
    pub fn cursor(&self) -> Cursor {
        let mut open = Ranges::new();
        if !planted::is("held-is-settled") {
            self.lanes.iter().for_each(|lane| open.extend(&lane.held));
        }
        self.plan.cursor_beside(&open, PARTS)
    }

    /// All open gaps: positions that nobody has seen yet.
    pub fn gaps(&self) -> Ranges {
        self.plan.gaps()
    }

    /// See [`Plan::wants_bound`].
    pub fn wants_bound(&self) -> bool {
        self.plan.wants_bound()
    }

    /// See [`Plan::ask_bound`].
    pub fn ask_bound(&mut self) -> Ticket {
        self.plan.ask_bound()
    }

    /// See [`Plan::bound`].
    pub fn bound(&mut self, ticket: Ticket, bound: u64) {
        self.plan.bound(ticket, bound);
    }

    /// See [`Plan::unasked`].
    pub fn unasked(&mut self, ticket: Ticket) {
        self.plan.unasked(ticket);
    }
}

impl Lane {
    fn new(share: usize) -> Self {
        Self {
            topics: 0,
            under_way: Ranges::new(),
            rows: 0,
            held: Ranges::new(),
            doubtful: i64::MIN,
            pace: Pace::full(share),
            shut: false,
            slow: false,
        }
    }

    fn room(&self) -> usize {
        if self.shut { 0 } else { self.pace.rows().saturating_sub(self.rows) }
    }

    fn is_doubtful(&self) -> bool {
        self.held.first().is_some_and(|first| first <= self.doubtful)
    }

    fn is_ready(&self, again: usize) -> bool {
        !self.held.is_empty() && self.room() > 0 && (again > 0 || !self.is_doubtful())
    }

    /// Hands a row over, or holds it: when there is no room, or something before it is held.
    fn admit(&mut self, at: i64, crowded: bool) -> bool {
        let behind = self.held.first().is_some_and(|first| first < at) && !planted::is("overtake-held");
        if behind || crowded || self.room() == 0 {
            self.held.insert(at, at);
            return false;
        }
        self.under_way.insert(at, at);
        self.rows += 1;
        true
    }

    fn reported(&mut self, positions: &[i64]) {
        for (from, to) in super::plan::runs(positions) {
            self.under_way.remove(from, to);
        }
        self.rows = self.rows.saturating_sub(positions.len());
        self.pace.grow(positions.len());
        self.catch_up();
    }

    /// A lane that has nothing left to catch up with is waited for again.
    fn catch_up(&mut self) {
        self.slow &= !self.held.is_empty() || self.room() < self.pace.rows() / 2;
    }
}
