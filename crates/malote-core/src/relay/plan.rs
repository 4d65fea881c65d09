//! The account of one relay: what was read, what is under way, which gaps are open.

use super::{Cursor, Ranges};
use crate::planted;

/// Decides for one relay while it holds its lease. It asks nothing and does nothing.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The highest position read.
    high: i64,
    /// Gaps below `high` that wait for a bound.
    unbound: Ranges,
    /// Gaps whose bound is being asked for.
    asked: Option<Ranges>,
    /// Gaps with their bound, in the order in which they were bounded.
    bounded: Vec<(u64, Ranges)>,
    /// Rows that were read and have no report yet.
    outstanding: Ranges,
}

/// What to read next: the rows in `gaps` and those above `high`, merged by position, at most `limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rows above this position are wanted.
    pub high: i64,
    /// Rows at these positions are wanted too.
    pub gaps: Ranges,
    /// At most so many rows.
    pub limit: usize,
}

/// What one reading statement, and so one snapshot, showed of a [`Window`].
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// Every transaction with a smaller id had ended when the snapshot was taken.
    pub ended_below: u64,
    /// The positions it showed, ascending.
    pub positions: &'a [i64],
    /// The window it was asked for.
    pub window: &'a Window,
}

/// Stands for the gaps that one bound will be for; see [`Plan::ask_bound`].
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(());

impl Plan {
    /// Takes up where a cursor stands. Every gap gets a fresh bound: bounds are not stored, since
    /// transaction ids start anew on a restored database.
    pub fn resume(cursor: Cursor) -> Self {
        Self { high: cursor.high, unbound: cursor.gaps, asked: None, bounded: Vec::new(), outstanding: Ranges::new() }
    }

    /// What to read next. Only one read may be under way at a time.
    pub fn window(&self, limit: usize) -> Window {
        Window { high: self.high, gaps: self.gaps(), limit }
    }

    /// Takes in what a read showed. The rows it showed are now under way.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        // A read that was cut short says nothing about what lies above its last row.
        let cut = seen.positions.len() >= seen.window.limit;
        let horizon = if cut { seen.positions.last().copied().unwrap_or(self.high) } else { i64::MAX };
        for (from, to) in runs(seen.positions) {
            self.forget(from, to);
            self.outstanding.insert(from, to);
        }
        self.close(seen.ended_below, horizon);
        self.open(seen.positions);
    }

    /// Positions between the rows of the tail are new gaps.
    fn open(&mut self, positions: &[i64]) {
        let tail = positions.partition_point(|at| *at <= self.high);
        for &at in &positions[tail..] {
            if !planted::is("no-gaps") {
                self.unbound.insert(self.high + 1, at - 1);
            }
            self.high = at;
        }
    }

    /// Gaps that no running transaction can fill any more, and that this snapshot does not show, are closed.
    fn close(&mut self, ended_below: u64, horizon: i64) {
        for (bound, gaps) in &mut self.bounded {
            if *bound <= ended_below {
                let provenly_absent = gaps.up_to(horizon);
                gaps.subtract(&provenly_absent);
            }
        }
        self.bounded.retain(|(_, gaps)| !gaps.is_empty());
    }

    fn forget(&mut self, from: i64, to: i64) {
        self.unbound.remove(from, to);
        if let Some(asked) = &mut self.asked {
            asked.remove(from, to);
        }
        for (_, gaps) in &mut self.bounded {
            gaps.remove(from, to);
        }
    }

    /// Whether some gap still needs a bound.
    pub fn wants_bound(&self) -> bool {
        self.asked.is_none() && !self.unbound.is_empty()
    }

    /// Marks the gaps that the next bound will be for. Call it *before* the transaction that yields
    /// the bound begins; gaps that are seen in the meantime are not covered by it.
    pub fn ask_bound(&mut self) -> Ticket {
        let gaps = std::mem::take(&mut self.unbound);
        match &mut self.asked {
            Some(asked) => asked.extend(&gaps),
            None => self.asked = Some(gaps),
        }
        Ticket(())
    }

    /// Gives the asked-for gaps their bound: the id of a transaction that began after [`Plan::ask_bound`].
    pub fn bound(&mut self, _ticket: Ticket, bound: u64) {
        if let Some(gaps) = self.asked.take().filter(|gaps| !gaps.is_empty()) {
            self.bounded.push((bound, gaps));
        }
    }

    /// The bound could not be had; the gaps wait for another.
    pub fn unasked(&mut self, _ticket: Ticket) {
        if let Some(gaps) = self.asked.take() {
            self.unbound.extend(&gaps);
        }
    }

    /// Rows that have their own report: published, or refused for good and set aside.
    pub fn settle(&mut self, positions: &[i64]) {
        for (from, to) in runs(positions) {
            self.outstanding.remove(from, to);
        }
    }

    /// These rows are not under way any more, and have no report.
    pub(super) fn take_back(&mut self, rows: &Ranges) {
        self.outstanding.subtract(rows);
    }

    /// The cursor that may be stored now. Whoever resumes from it reads again all that has no report.
    pub fn cursor(&self) -> Cursor {
        self.cursor_beside(&Ranges::new(), usize::MAX)
    }

    /// The same when these rows are open, too. Rows that are under way or open are told in at most
    /// `parts` ranges; where that is too few, some that are settled are read again by whoever resumes.
    pub(super) fn cursor_beside(&self, open: &Ranges, parts: usize) -> Cursor {
        let mut open = open.clone();
        if !planted::is("under-way-is-settled") {
            open.extend(&self.outstanding);
        }
        open.coarsen(parts);
        let (mut high, mut gaps) = (self.high, self.gaps());
        gaps.extend(&open);
        while let Some((from, to)) = gaps.last_part().filter(|last| last.1 == high) {
            gaps.remove(from, to);
            high = from - 1;
        }
        Cursor { high, gaps }
    }

    /// All open gaps.
    pub fn gaps(&self) -> Ranges {
        let mut all = self.unbound.clone();
        if let Some(asked) = &self.asked {
            all.extend(asked);
        }
        for (_, gaps) in &self.bounded {
            all.extend(gaps);
        }
        all
    }

    /// Whether every row that was read has its report.
    pub fn is_settled(&self) -> bool {
        self.outstanding.is_empty()
    }
}

/// Ascending positions as runs without holes.
pub(super) fn runs(positions: &[i64]) -> impl Iterator<Item = (i64, i64)> + '_ {
    positions.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run[run.len() - 1]))
}
