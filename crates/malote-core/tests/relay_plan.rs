//! The relay's account against every schedule of a small model of PostgreSQL's visibility.
#![allow(missing_docs)]

use malote_core::relay::{Cursor, Observation, Plan, Window};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[path = "traffic/mod.rs"]
mod traffic;

/// Enough of a database: transactions take an id, then positions, then end; a snapshot shows what committed.
#[derive(Default)]
struct Model {
    next_xid: u64,
    next_seq: i64,
    running: Vec<(u64, Vec<i64>)>,
    visible: BTreeSet<i64>,
    /// In the order in which they were committed.
    committed: Vec<Vec<i64>>,
}

impl Model {
    fn xid(&mut self) -> u64 {
        self.next_xid += 1;
        self.next_xid
    }
    fn begin(&mut self) {
        let xid = self.xid();
        self.running.push((xid, Vec::new()));
    }
    fn write(&mut self, which: usize) {
        self.next_seq += 1;
        let seq = self.next_seq;
        if let Some(i) = self.pick(which) {
            self.running[i].1.push(seq);
        }
    }
    fn end(&mut self, which: usize, commit: bool) {
        if let Some(i) = self.pick(which) {
            let (_, rows) = self.running.remove(i);
            if commit {
                self.visible.extend(&rows);
                self.committed.push(rows);
            }
        }
    }
    fn pick(&self, which: usize) -> Option<usize> {
        (!self.running.is_empty()).then(|| which % self.running.len())
    }
    fn ended_below(&self) -> u64 {
        self.running.iter().map(|r| r.0).min().unwrap_or(self.next_xid + 1)
    }
    fn show(&self, window: &Window) -> Vec<i64> {
        self.visible
            .iter()
            .copied()
            .filter(|s| *s > window.high || window.gaps.contains(*s))
            .take(window.limit)
            .collect()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Begin,
    Write(usize),
    End(usize, bool),
    Read(usize),
    AskBound,
    Settle(usize),
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Begin),
        4 => (0usize..8).prop_map(Act::Write),
        2 => (0usize..8, prop::bool::weighted(0.7)).prop_map(|(i, c)| Act::End(i, c)),
        4 => (1usize..6).prop_map(Act::Read),
        2 => Just(Act::AskBound),
        3 => (1usize..6).prop_map(Act::Settle),
        1 => Just(Act::Crash),
    ]
}

fn read(db: &mut Model, plan: &mut Plan, limit: usize, sent: &mut Vec<i64>, queue: &mut Vec<i64>) -> usize {
    let window = plan.window(limit);
    let positions = db.show(&window);
    plan.observe(&Observation { ended_below: db.ended_below(), positions: &positions, window: &window });
    sent.extend(&positions);
    queue.extend(&positions);
    positions.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn every_committed_row_is_sent_and_no_gap_stays(acts in proptest::collection::vec(act(), 0..120)) {
        let mut db = Model::default();
        let mut plan = Plan::resume(Cursor::default());
        let (mut sent, mut queue, mut stored) = (Vec::new(), Vec::new(), Cursor::default());
        for act in acts {
            match act {
                Act::Begin => db.begin(),
                Act::Write(i) => db.write(i),
                Act::End(i, commit) => db.end(i, commit),
                Act::Read(limit) => { read(&mut db, &mut plan, limit, &mut sent, &mut queue); }
                Act::AskBound => {
                    let ticket = plan.ask_bound();
                    let bound = db.xid();
                    plan.bound(ticket, bound);
                    stored = plan.cursor();
                }
                Act::Settle(n) => { let done: Vec<i64> = queue.drain(..n.min(queue.len())).collect(); plan.settle(&sorted(done)); }
                Act::Crash => { queue.clear(); plan = Plan::resume(stored.clone()); }
            }
        }
        while !db.running.is_empty() { db.end(0, true); }
        for _ in 0..4 {
            while read(&mut db, &mut plan, 5, &mut sent, &mut queue) > 0 {}
            plan.settle(&sorted(std::mem::take(&mut queue)));
            let ticket = plan.ask_bound();
            let bound = db.xid();
            plan.bound(ticket, bound);
        }
        let sent: BTreeSet<i64> = sent.into_iter().collect();
        prop_assert_eq!(&sent, &db.visible);
        prop_assert!(plan.gaps().is_empty(), "left open: {:?}", plan.gaps());
        let last = db.visible.last().copied().unwrap_or(0);
        prop_assert_eq!(plan.cursor(), Cursor { high: last, gaps: Default::default() });
    }
}

fn sorted(mut positions: Vec<i64>) -> Vec<i64> {
    positions.sort_unstable();
    positions
}

#[test]
fn a_gap_seen_while_its_bound_is_asked_for_waits_for_the_next() {
    let mut plan = Plan::resume(Cursor::default());
    let observe = |plan: &mut Plan, ended_below, positions: &[i64]| {
        let window = plan.window(10);
        plan.observe(&Observation { ended_below, positions, window: &window });
    };
    observe(&mut plan, 1, &[2]);
    let ticket = plan.ask_bound();
    observe(&mut plan, 1, &[4]); // sees gap 3 after the asking
    plan.bound(ticket, 5);
    observe(&mut plan, 9, &[]);
    assert_eq!(format!("{:?}", plan.gaps()), "{3}", "gap 1 is closed, gap 3 has no bound yet");
}

#[test]
fn a_read_that_was_cut_short_proves_nothing_about_what_lies_above() {
    let mut plan = Plan::resume(Cursor { high: 9, gaps: [(1, 1), (5, 5)].into_iter().collect() });
    let ticket = plan.ask_bound();
    plan.bound(ticket, 3);
    let window = plan.window(1);
    plan.observe(&Observation { ended_below: 3, positions: &[1], window: &window });
    assert_eq!(format!("{:?}", plan.gaps()), "{5}");
}

#[test]
fn what_is_under_way_is_a_gap_of_the_stored_cursor() {
    let mut plan = Plan::resume(Cursor::default());
    let window = plan.window(10);
    plan.observe(&Observation { ended_below: 1, positions: &[1, 2, 3, 4], window: &window });
    plan.settle(&[1, 3]);
    assert_eq!(plan.cursor(), Cursor { high: 3, gaps: [(2, 2)].into_iter().collect() });
    plan.settle(&[2]);
    assert_eq!(plan.cursor(), Cursor { high: 3, gaps: Default::default() });
}
