//! Lanes: nothing is lost, order is kept within a topic, and no topic waits for another, whatever the
//! order of reads, reports, doubts and crashes.

use super::Model;
use malote_core::relay::{Cursor, Ranges, Traffic};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const TOPICS: [&str; 3] = ["a", "b", "c"];
const SHARE: usize = 4;

fn topic(seq: i64) -> &'static str {
    TOPICS[(seq % 3) as usize]
}

/// A relay without I/O, and the topics that it sends to.
struct Relay {
    traffic: Traffic,
    most: usize,
    /// What was handed over and has no report, by lane.
    under_way: BTreeMap<usize, VecDeque<i64>>,
    /// What is on the topics, with repetitions.
    log: Vec<i64>,
    stored: Cursor,
}

impl Relay {
    fn new(most: usize, share: usize) -> Self {
        let traffic = Traffic::resume(Cursor::default(), most, share);
        Self { traffic, most, under_way: BTreeMap::new(), log: Vec::new(), stored: Cursor::default() }
    }

    fn read(&mut self, db: &Model, limit: usize, tail: bool, again: usize) -> usize {
        let window = self.traffic.window(limit, tail, again);
        let shown = db.show(&window);
        let rows: Vec<(i64, Option<usize>)> =
            shown.iter().map(|at| (*at, Some(self.traffic.lane(topic(*at))))).collect();
        let sorted = self.traffic.observe(db.ended_below(), &rows, &window);
        assert!(sorted.again <= again, "{} rows go again, {again} may", sorted.again);
        for ((at, lane), _) in rows.iter().zip(&sorted.go).filter(|row| *row.1) {
            self.under_way.entry(lane.expect("a lane")).or_default().push_back(*at);
        }
        for lane in self.under_way.values() {
            assert!(lane.len() <= SHARE.max(self.share()), "more than its share: {lane:?}");
        }
        sorted.go.iter().filter(|go| **go).count()
    }

    fn share(&self) -> usize {
        if self.most == 1 { 100_000 } else { SHARE }
    }

    fn report(&mut self, lane: usize, count: usize) {
        let Some(queue) = self.under_way.get_mut(&lane) else { return };
        let done: Vec<i64> = queue.drain(..count.min(queue.len())).collect();
        self.log.extend(&done);
        self.traffic.stored(lane, &done);
    }

    /// So many are on the topic all the same.
    fn doubt(&mut self, lane: usize, count: usize) {
        let Some(queue) = self.under_way.remove(&lane) else { return };
        self.log.extend(queue.iter().take(count));
        self.traffic.doubt(lane);
    }

    fn open(&mut self, lane: usize) {
        if self.under_way.contains_key(&lane) || !self.log.is_empty() {
            self.traffic.open(lane);
        }
    }

    fn save(&mut self, db: &mut Model) {
        let ticket = self.traffic.ask_bound();
        let bound = db.xid();
        self.traffic.bound(ticket, bound);
        self.stored = self.traffic.cursor();
    }

    fn crash(&mut self, count: usize) {
        for queue in std::mem::take(&mut self.under_way).values() {
            self.log.extend(queue.iter().take(count));
        }
        self.traffic = Traffic::resume(self.stored.clone(), self.most, SHARE);
    }

    /// Reads and reports until nothing moves, except in this topic.
    fn drain(&mut self, db: &mut Model, silent: Option<&str>) {
        for _ in 0..6 {
            loop {
                let mut moved = self.read(db, 50, true, 1_000);
                let silent = silent.map(|topic| self.traffic.lane(topic));
                for lane in self.under_way.keys().copied().collect::<Vec<_>>() {
                    if Some(lane) != silent {
                        self.traffic.open(lane);
                        moved += self.under_way[&lane].len();
                        self.report(lane, usize::MAX);
                    }
                }
                if moved == 0 {
                    break;
                }
            }
            self.save(db);
        }
    }

    /// The place at which each row came first.
    fn first(&self) -> BTreeMap<i64, usize> {
        let mut first = BTreeMap::new();
        for (place, at) in self.log.iter().enumerate() {
            first.entry(*at).or_insert(place);
        }
        first
    }
}

#[derive(Clone, Debug)]
enum Act {
    Begin,
    Write(usize),
    End(usize, bool),
    Read(usize, bool, usize),
    Save,
    Report(usize, usize),
    Doubt(usize, usize),
    Open(usize),
    Slow(usize),
    Crash(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Begin),
        6 => (0usize..8).prop_map(Act::Write),
        3 => (0usize..8, prop::bool::weighted(0.8)).prop_map(|(i, c)| Act::End(i, c)),
        6 => (1usize..9, prop::bool::weighted(0.8), 0usize..6).prop_map(|(n, t, a)| Act::Read(n, t, a)),
        2 => Just(Act::Save),
        4 => (0usize..3, 1usize..6).prop_map(|(l, n)| Act::Report(l, n)),
        1 => (0usize..3, 0usize..6).prop_map(|(l, n)| Act::Doubt(l, n)),
        2 => (0usize..3).prop_map(Act::Open),
        1 => (0usize..3).prop_map(Act::Slow),
        1 => (0usize..4).prop_map(Act::Crash),
    ]
}

fn run(acts: Vec<Act>, most: usize, silent: Option<&str>) -> (Model, Relay) {
    let (mut db, mut relay) = (Model::default(), Relay::new(most, SHARE));
    for act in acts {
        match act {
            Act::Begin => db.begin(),
            Act::Write(i) => db.write(i),
            Act::End(i, commit) => db.end(i, commit),
            Act::Read(limit, tail, again) => drop(relay.read(&db, limit, tail, again)),
            Act::Save => relay.save(&mut db),
            Act::Report(lane, n) if silent.is_none_or(|topic| relay.traffic.lane(topic) != lane) => {
                relay.report(lane, n)
            }
            Act::Report(..) => {}
            Act::Doubt(lane, n) => relay.doubt(lane, n),
            Act::Open(lane) if relay.under_way.contains_key(&lane) => relay.open(lane),
            Act::Slow(lane) if relay.under_way.contains_key(&lane) => relay.traffic.is_slow(lane),
            Act::Open(_) | Act::Slow(_) => {}
            Act::Crash(n) => relay.crash(n),
        }
    }
    while !db.running.is_empty() {
        db.end(0, true);
    }
    (db, relay)
}

/// Rows of a topic whose transactions ended in the order of their positions come in this order.
fn in_order(db: &Model, first: &BTreeMap<i64, usize>) -> Result<(), TestCaseError> {
    let committed: BTreeMap<i64, usize> =
        db.committed.iter().enumerate().flat_map(|(n, rows)| rows.iter().map(move |at| (*at, n))).collect();
    for (earlier, n) in &committed {
        for (later, m) in committed.range(earlier + 1..).filter(|(later, _)| topic(**later) == topic(*earlier)) {
            if n <= m && first.contains_key(later) {
                let before = first.get(earlier).is_some_and(|place| place < &first[later]);
                prop_assert!(before, "{later} came before {earlier}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn every_row_comes_in_the_order_of_its_topic(
        acts in proptest::collection::vec(act(), 0..150), most in 1usize..4,
    ) {
        let (mut db, mut relay) = run(acts, most, None);
        (0..3).map(|n| relay.traffic.lane(TOPICS[n])).collect::<BTreeSet<_>>().into_iter().for_each(|n| relay.traffic.open(n));
        relay.drain(&mut db, None);
        let first = relay.first();
        prop_assert_eq!(first.keys().copied().collect::<BTreeSet<_>>(), db.visible.clone());
        in_order(&db, &first)?;
        let high = db.visible.last().copied().unwrap_or(0);
        prop_assert_eq!(relay.traffic.cursor(), Cursor { high, gaps: Ranges::new() });
    }

    #[test]
    fn ac_020_a_topic_that_never_answers_holds_up_no_other(acts in proptest::collection::vec(act(), 0..150)) {
        let (mut db, mut relay) = run(acts, 3, Some("a"));
        TOPICS.iter().skip(1).map(|topic| relay.traffic.lane(topic)).collect::<Vec<_>>().into_iter().for_each(|n| relay.traffic.open(n));
        relay.drain(&mut db, Some("a"));
        let first = relay.first();
        let others: BTreeSet<i64> = db.visible.iter().copied().filter(|at| topic(*at) != "a").collect();
        prop_assert!(others.iter().all(|at| first.contains_key(at)), "held up: {:?}", others);
        // it answers at last, after a restart that knows nothing but the cursor
        relay.crash(0);
        relay.drain(&mut db, None);
        let first = relay.first();
        prop_assert_eq!(first.keys().copied().collect::<BTreeSet<_>>(), db.visible.clone());
        in_order(&db, &first)?;
    }
}

#[test]
fn ac_020_a_long_silence_of_one_topic_takes_little_room_and_repeats_nothing_of_the_others() {
    const ROWS: i64 = 6_000;
    let (mut db, mut relay) = (Model::default(), Relay::new(3, SHARE));
    db.visible.extend(1..=ROWS);
    db.next_seq = ROWS;
    relay.drain(&mut db, Some("a"));
    assert_eq!(relay.log.len() as i64, ROWS / 3 * 2, "each row of the others once");
    let cursor = relay.traffic.cursor();
    assert!(cursor.gaps.parts() <= 1_000, "{} parts", cursor.gaps.parts());
    assert!((1..=ROWS).filter(|at| topic(*at) == "a").all(|at| at > cursor.high || cursor.gaps.contains(at)));
    relay.drain(&mut db, None);
    assert_eq!(relay.log.len() as i64, ROWS, "and when it answers, each of its own once");
    let own: Vec<i64> = relay.log.iter().copied().filter(|at| topic(*at) == "a").collect();
    assert!(own.is_sorted());
}

#[test]
fn after_a_doubt_little_goes_at_first_and_more_with_each_success() {
    let (mut db, mut relay) = (Model::default(), Relay::new(1, 1_000));
    relay.traffic.resize(1_000);
    db.visible.extend(1..=2_000);
    let lane = relay.traffic.lane("a");
    assert_eq!(relay.read(&db, 2_000, true, 0), 1_000);
    relay.doubt(lane, 0);
    assert_eq!(relay.read(&db, 2_000, false, 2_000), 0, "it is shut");
    relay.traffic.open(lane);
    assert_eq!(relay.read(&db, 2_000, false, 0), 0, "there is no budget");
    let mut batches = Vec::new();
    while relay.traffic.has_ready(2_000) {
        batches.push(relay.read(&db, 2_000, false, 2_000));
        relay.report(lane, usize::MAX);
    }
    assert_eq!(batches, [16, 32, 64, 128, 256, 512, 992]);
}

#[test]
fn ac_020_one_that_keeps_up_is_waited_for_and_one_that_does_not_is_not() {
    let (mut db, mut relay) = (Model::default(), Relay::new(3, SHARE));
    db.visible.extend(1..=100);
    relay.read(&db, 12, true, 0);
    let (a, b) = (relay.traffic.lane("a"), relay.traffic.lane("b"));
    assert!(!relay.traffic.has_room(12), "all are full");
    relay.report(b, 4);
    assert!(!relay.traffic.has_room(12), "the others are waited for");
    let slow: Vec<usize> = relay.traffic.waited_for().collect();
    assert!(slow.contains(&a) && !slow.contains(&b));
    slow.into_iter().for_each(|lane| relay.traffic.is_slow(lane));
    assert!(relay.traffic.has_room(12), "but not for ever");
    relay.report(a, 4);
    assert!(relay.traffic.waited_for().all(|lane| lane != a), "it has caught up, and nothing is under way");
}
