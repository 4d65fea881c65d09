//! How far each partition is: what may be acknowledged while records before it are still under way.

use malote_core::{Place, planted};
use std::collections::{HashMap, VecDeque};

/// What was taken of each partition, by topic and number, from the oldest record that is not done.
#[derive(Default)]
pub(super) struct Progress(HashMap<(String, i32), Taken>);

struct Taken {
    assignment: u64,
    /// In order of their offsets.
    records: VecDeque<Record>,
}

struct Record {
    offset: i64,
    done: bool,
}

impl Progress {
    /// A record was taken. What was taken of its partition under another assignment is forgotten: whoever
    /// has it now gets those records again.
    pub(super) fn take(&mut self, place: &Place) {
        let at = (place.topic.clone(), place.partition);
        let assignment = place.assignment;
        let taken = self.0.entry(at).or_insert_with(|| Taken { assignment, records: VecDeque::new() });
        let follows = taken.records.back().is_none_or(|last| last.offset < place.offset);
        if taken.assignment != assignment || !follows {
            *taken = Taken { assignment, records: VecDeque::new() };
        }
        taken.records.push_back(Record { offset: place.offset, done: false });
    }

    /// A record is done; one of a former assignment is nobody's affair any more.
    pub(super) fn done(&mut self, place: &Place) {
        let Some(taken) = self.0.get_mut(&(place.topic.clone(), place.partition)) else { return };
        if taken.assignment == place.assignment
            && let Ok(at) = taken.records.binary_search_by_key(&place.offset, |record| record.offset)
        {
            taken.records[at].done = true;
        }
    }

    /// The last place of each partition before which, and at which, everything is done; given once.
    pub(super) fn settled(&mut self) -> Vec<Place> {
        let mut settled = Vec::new();
        for ((topic, partition), taken) in &mut self.0 {
            let mut last = None;
            if planted::is("acknowledge-past-unfinished") {
                last = taken.records.iter().rfind(|record| record.done).map(|record| record.offset);
                taken.records.retain(|record| !record.done);
            }
            while let Some(record) = taken.records.pop_front_if(|record| record.done) {
                last = Some(record.offset);
            }
            if let Some(offset) = last {
                let (topic, assignment) = (topic.clone(), taken.assignment);
                settled.push(Place { topic, partition: *partition, offset, assignment });
            }
        }
        self.0.retain(|_, taken| !taken.records.is_empty());
        settled
    }

    /// The partitions of which so many records are open, from the oldest that is not done to the last that was
    /// taken; and the most that are open of any other.
    pub(super) fn full(&self, from: usize) -> (Vec<(String, i32)>, usize) {
        let (full, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, taken)| taken.records.len() >= from);
        let mut full: Vec<_> = full.into_iter().map(|(at, _)| at.clone()).collect();
        full.sort_unstable();
        (full, others.into_iter().map(|(_, taken)| taken.records.len()).max().unwrap_or(0))
    }

    /// How many records are open in all.
    pub(super) fn open(&self) -> usize {
        self.0.values().map(|taken| taken.records.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn place(partition: i32, offset: i64, assignment: u64) -> Place {
        Place { topic: "t".into(), partition, offset, assignment }
    }

    fn settled(progress: &mut Progress) -> BTreeMap<i32, i64> {
        progress.settled().into_iter().map(|place| (place.partition, place.offset)).collect()
    }

    #[test]
    fn nothing_is_settled_past_the_oldest_that_is_not_done() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let (mut progress, mut open, mut told) = (Progress::default(), BTreeSet::new(), BTreeMap::new());
            let mut next = [0, 100];
            for _ in 0..200 {
                let partition = random.i32(0..2);
                let offset = &mut next[partition as usize];
                if random.bool() {
                    *offset += random.i64(1..4); // some offsets hold no record
                    progress.take(&place(partition, *offset, 1));
                    open.insert((partition, *offset));
                } else if let Some(&one) = random.choice(open.iter()) {
                    open.remove(&one);
                    progress.done(&place(one.0, one.1, 1));
                }
                told.extend(settled(&mut progress));
                for (partition, offset) in &told {
                    let oldest = open.iter().find(|one| one.0 == *partition);
                    assert!(oldest.is_none_or(|oldest| offset < &oldest.1), "{offset} with {oldest:?} under way");
                }
            }
            for one in open {
                progress.done(&place(one.0, one.1, 1));
            }
            told.extend(settled(&mut progress));
            for (partition, last) in told {
                assert_eq!(last, next[partition as usize], "all done, all settled");
            }
            assert_eq!(progress.open(), 0);
        }
    }

    #[test]
    fn what_a_former_assignment_left_settles_nothing() {
        let mut progress = Progress::default();
        progress.take(&place(0, 5, 1));
        progress.take(&place(0, 6, 1));
        // the partition went and came back: 5 is delivered once more
        progress.take(&place(0, 5, 2));
        progress.done(&place(0, 5, 1));
        progress.done(&place(0, 6, 1));
        assert_eq!(settled(&mut progress), BTreeMap::new());
        progress.done(&place(0, 5, 2));
        assert_eq!(settled(&mut progress), [(0, 5)].into());
    }

    #[test]
    fn records_that_come_again_under_one_assignment_are_open_again() {
        let mut progress = Progress::default();
        for offset in [5, 6, 5] {
            progress.take(&place(0, offset, 1));
        }
        progress.done(&place(0, 6, 1));
        assert_eq!(settled(&mut progress), BTreeMap::new());
        progress.done(&place(0, 5, 1));
        assert_eq!(settled(&mut progress), [(0, 5)].into());
    }
}
