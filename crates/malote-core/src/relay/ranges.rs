//! A set of positions, kept as sorted, disjoint, inclusive ranges.

use std::fmt;

/// A set of positions. Small when its members lie together, whatever their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(i64, i64)>);

impl Ranges {
    /// The empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Its ranges, ascending, both ends included.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> + '_ {
        self.0.iter().copied()
    }

    /// How many ranges it has.
    pub fn parts(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its smallest member.
    pub fn first(&self) -> Option<i64> {
        self.0.first().map(|r| r.0)
    }

    /// Its last range.
    pub fn last_part(&self) -> Option<(i64, i64)> {
        self.0.last().copied()
    }

    /// Whether `at` is a member.
    pub fn contains(&self, at: i64) -> bool {
        let i = self.0.partition_point(|r| r.1 < at);
        self.0.get(i).is_some_and(|r| r.0 <= at)
    }

    /// Adds `from..=to`; nothing when `from > to`.
    pub fn insert(&mut self, from: i64, to: i64) {
        if from > to {
            return;
        }
        // everything that overlaps or touches becomes one range
        let start = self.0.partition_point(|r| r.1 < from.saturating_sub(1));
        let end = self.0.partition_point(|r| r.0 <= to.saturating_add(1));
        if start == end {
            self.0.insert(start, (from, to));
        } else {
            let merged = (from.min(self.0[start].0), to.max(self.0[end - 1].1));
            self.0[start] = merged;
            self.0.drain(start + 1..end);
        }
    }

    /// Takes out `from..=to`.
    pub fn remove(&mut self, from: i64, to: i64) {
        if from > to {
            return;
        }
        let start = self.0.partition_point(|r| r.1 < from);
        let end = self.0.partition_point(|r| r.0 <= to);
        if start == end {
            return;
        }
        let left = (self.0[start].0, from - 1);
        let right = (to + 1, self.0[end - 1].1);
        let rest = [left, right].into_iter().filter(|r| r.0 <= r.1);
        self.0.splice(start..end, rest);
    }

    /// Adds every member of `other`.
    pub fn extend(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
        } else {
            other.iter().for_each(|(from, to)| self.insert(from, to));
        }
    }

    /// Takes out every member of `other`.
    pub fn subtract(&mut self, other: &Self) {
        other.iter().for_each(|(from, to)| self.remove(from, to));
    }

    /// Its first `count` members.
    pub fn first_members(&self, count: usize) -> Self {
        let mut left = i64::try_from(count).unwrap_or(i64::MAX);
        let mut first = Vec::new();
        for (from, to) in self.iter() {
            if left == 0 {
                break;
            }
            let to = to.min(from.saturating_add(left - 1));
            left -= to - from + 1;
            first.push((from, to));
        }
        Self(first)
    }

    /// Merges ranges over the smallest holes between them until about `parts` are left; it then has
    /// members that it had not.
    pub fn coarsen(&mut self, parts: usize) {
        if self.0.len() <= parts.max(1) {
            return;
        }
        // half at once, so that this is not done again for each range that is added
        let merged = self.0.len() - (parts / 2).max(1);
        let mut holes: Vec<i64> = self.0.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
        let widest = *holes.select_nth_unstable(merged - 1).1;
        self.0.dedup_by(|next, last| {
            let merge = next.0 - last.1 <= widest;
            last.1 = if merge { next.1 } else { last.1 };
            merge
        });
    }

    /// Its members up to and including `horizon`.
    pub fn up_to(&self, horizon: i64) -> Self {
        Self(self.iter().filter(|r| r.0 <= horizon).map(|(a, b)| (a, b.min(horizon))).collect())
    }
}

impl FromIterator<(i64, i64)> for Ranges {
    fn from_iter<T: IntoIterator<Item = (i64, i64)>>(ranges: T) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|(from, to)| set.insert(from, to));
        set
    }
}

/// As `{1..3 7}`.
impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (from, to)) in self.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            if from == to { write!(f, "{space}{from}")? } else { write!(f, "{space}{from}..{to}")? }
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn coarsened_it_has_few_parts_and_all_its_members(
            members in proptest::collection::vec(0i64..500, 0..100), parts in 1usize..20, count in 0usize..50,
        ) {
            let set: Ranges = members.iter().map(|at| (*at, *at)).collect();
            let all: BTreeSet<i64> = members.iter().copied().collect();
            let mut coarse = set.clone();
            coarse.coarsen(parts);
            prop_assert!(coarse.parts() <= parts && all.iter().all(|at| coarse.contains(*at)));
            prop_assert!(coarse.first() == set.first() && coarse.last_part().map(|p| p.1) == set.last_part().map(|p| p.1));
            let first: Vec<i64> = set.first_members(count).iter().flat_map(|(a, b)| a..=b).collect();
            prop_assert_eq!(first, all.into_iter().take(count).collect::<Vec<_>>());
        }

        #[test]
        fn behaves_as_a_set(acts in proptest::collection::vec((any::<bool>(), 0i64..60, 0i64..8), 0..60)) {
            let (mut set, mut model) = (Ranges::new(), BTreeSet::new());
            for (add, from, width) in acts {
                let to = from + width - 1; // sometimes empty
                if add { set.insert(from, to); model.extend(from..=to); }
                else { set.remove(from, to); model.retain(|m| *m < from || *m > to); }
                let members: Vec<i64> = set.iter().flat_map(|(a, b)| a..=b).collect();
                prop_assert_eq!(&members, &model.iter().copied().collect::<Vec<_>>());
                let apart = set.iter().zip(set.iter().skip(1)).all(|(a, b)| a.1 + 1 < b.0);
                prop_assert!(apart, "ranges that touch are one: {:?}", set);
                prop_assert!((0..70).all(|at| set.contains(at) == model.contains(&at)));
            }
        }
    }
}
