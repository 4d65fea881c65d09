//! Who should have which partition: decided, not done.
//!
//! Topic by topic, each member gets as many partitions as any other or one more. Whoever has a
//! partition keeps it as far as that allows, so that little moves when a member comes or goes.

use std::collections::{BTreeMap, HashMap};

/// A partition of a topic, and who should have it so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) partition: i64,
    pub(super) topic: i64,
    pub(super) target: Option<i64>,
}

/// Decides anew. `readers` says who is alive and reads a topic, as (member, topic).
pub(super) fn assign(readers: &[(i64, i64)], shares: &[Share]) -> Vec<Share> {
    let mut topics: BTreeMap<i64, Vec<Share>> = BTreeMap::new();
    for share in shares {
        topics.entry(share.topic).or_default().push(share.clone());
    }
    // over all topics, so that whoever has least takes what is left over
    let mut total: HashMap<i64, usize> = HashMap::new();
    let mut decided = Vec::with_capacity(shares.len());
    for (topic, mut shares) in topics {
        let members: Vec<i64> = readers.iter().filter(|(_, t)| *t == topic).map(|(member, _)| *member).collect();
        assign_topic(&members, &mut shares, &total);
        for share in &shares {
            share.target.iter().for_each(|member| *total.entry(*member).or_default() += 1);
        }
        decided.append(&mut shares);
    }
    decided
}

fn assign_topic(members: &[i64], shares: &mut [Share], total: &HashMap<i64, usize>) {
    let Some(least) = shares.len().checked_div(members.len()) else {
        shares.iter_mut().for_each(|share| share.target = None);
        return;
    };
    let mut extra = shares.len() % members.len();
    let mut count: HashMap<i64, usize> = members.iter().map(|member| (*member, 0)).collect();
    for share in shares.iter_mut() {
        let kept = share
            .target
            .and_then(|member| count.get_mut(&member))
            .filter(|has| **has < least || (**has == least && extra > 0));
        match kept {
            Some(has) => {
                extra -= usize::from(*has == least);
                *has += 1;
            }
            None => share.target = None,
        }
    }
    for share in shares.iter_mut().filter(|share| share.target.is_none()) {
        let fewest = members.iter().min_by_key(|m| (count[*m], count[*m] + total.get(*m).copied().unwrap_or(0), **m));
        share.target = fewest.copied();
        fewest.and_then(|member| count.get_mut(member)).into_iter().for_each(|has| *has += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fair_complete_and_still_when_nothing_changes(
            partitions in proptest::collection::vec(1usize..9, 1..4),
            changes in proptest::collection::vec((any::<bool>(), 0usize..8), 1..12),
        ) {
            let mut shares: Vec<Share> = partitions.iter().enumerate()
                .flat_map(|(topic, count)| (0..*count).map(move |_| topic as i64))
                .enumerate().map(|(i, topic)| Share { partition: i as i64, topic, target: None }).collect();
            let mut members: Vec<i64> = Vec::new();
            for (n, (comes, which)) in changes.into_iter().enumerate() {
                if comes || members.is_empty() { members.push(n as i64) } else { members.remove(which % members.len()); }
                let readers: Vec<_> = members.iter()
                    .flat_map(|m| (0..partitions.len() as i64).map(|topic| (*m, topic))).collect();
                let before = shares.clone();
                shares = assign(&readers, &shares);
                prop_assert_eq!(&assign(&readers, &shares), &shares);
                for (topic, count) in partitions.iter().enumerate() {
                    let has = |m: i64| shares.iter().filter(|s| s.topic == topic as i64 && s.target == Some(m)).count();
                    for member in &members {
                        let fair = count / members.len();
                        prop_assert!((fair..=fair + 1).contains(&has(*member)), "{:?}", shares);
                    }
                }
                let all_placed = members.is_empty() || shares.iter().all(|s| s.target.is_some_and(|m| members.contains(&m)));
                prop_assert!(all_placed);
                // a member that comes takes its share and nothing else moves
                if comes && members.len() > 1 {
                    let moved = before.iter().zip(&shares).filter(|(a, b)| a.target != b.target);
                    prop_assert!(moved.clone().all(|(_, b)| b.target == members.last().copied()), "{:?} {:?}", before, shares);
                }
            }
        }
    }
}
