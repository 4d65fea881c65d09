//! How fraud decides. The same payment under the same rules always gets the same score, so a repeat
//! decides alike, and a test can tell beforehand.

use crate::contracts::Reason;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The rules that a payment is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How many of a hundred payments are approved, 0 to 100.
    pub approve_percent: u8,
    /// Goes into the hash, so that nobody outside can tell which ids pass.
    pub salt: String,
    /// The largest amount of one payment, in minor units.
    pub limit: i64,
    /// How many payments an account may make within one minute by the clock; any number when unset.
    pub per_minute: Option<u32>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { approve_percent: 70, salt: String::new(), limit: 1_000_000_000_000, per_minute: None }
    }
}

impl Rules {
    /// Whether the payment may be made: nothing, or why not. `earlier` is how many payments the same
    /// account has made within the same minute.
    pub fn assess(&self, payment: Uuid, amount: i64, earlier: i64) -> Option<Reason> {
        if amount > self.limit {
            Some(Reason::OVER_LIMIT)
        } else if self.per_minute.is_some_and(|most| earlier >= i64::from(most)) {
            Some(Reason::VELOCITY)
        } else if self.score(payment) >= self.approve_percent {
            Some(Reason::RISK)
        } else {
            None
        }
    }

    /// 0 to 99, evenly spread over payments.
    fn score(&self, payment: Uuid) -> u8 {
        let hash = Sha256::new().chain_update(payment).chain_update(&self.salt).finalize();
        let first = hash.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        (first % 100) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_seventy_of_a_hundred_pass_and_the_same_ones_each_time() {
        let rules = Rules::default();
        let ids: Vec<Uuid> = (0..10_000).map(|n| Uuid::new_v5(&Uuid::NAMESPACE_OID, &u32::to_be_bytes(n))).collect();
        let passed = ids.iter().filter(|id| rules.assess(**id, 1, 0).is_none()).count();
        assert!((6_800..7_200).contains(&passed), "{passed}");
        assert!(ids.iter().all(|id| rules.assess(*id, 1, 0) == rules.assess(*id, 1, 5)));
        let other = Rules { salt: "pepper".into(), ..rules.clone() };
        assert!(ids.iter().any(|id| rules.assess(*id, 1, 0) != other.assess(*id, 1, 0)));
    }

    #[test]
    fn rules_apply_before_the_score() {
        let rules = Rules { approve_percent: 100, limit: 10, per_minute: Some(2), ..Rules::default() };
        let id = Uuid::nil();
        assert_eq!(rules.assess(id, 10, 1), None);
        assert_eq!(rules.assess(id, 11, 0), Some(Reason::OVER_LIMIT));
        assert_eq!(rules.assess(id, 10, 2), Some(Reason::VELOCITY));
        assert_eq!(Rules { approve_percent: 0, ..rules }.assess(id, 1, 0), Some(Reason::RISK));
    }
}
