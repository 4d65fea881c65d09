//! What goes wrong, and how often; drawn from a seed, so that a run can be repeated.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The faults; each percentage is of requests with a key, and each fault is drawn for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Another seed, other requests.
    pub seed: u64,
    /// Wait before the work.
    pub slow_percent: u8,
    /// For so long; also for `tok_slow`.
    pub slow_ms: u64,
    /// Answer 503 without having done anything.
    pub error_percent: u8,
    /// Do the work, then withhold the answer until most clients have given up.
    pub timeout_percent: u8,
    /// For so long; also for `tok_timeout`.
    pub timeout_ms: u64,
    /// Do the work, then close the connection without an answer.
    pub lose_percent: u8,
    /// Answer 503 to whoever asks what became of a key.
    pub mute_percent: u8,
    /// Decline authorisations; for a key always alike.
    pub decline_percent: u8,
    /// Whether the cards `tok_declined`, `tok_timeout`, `tok_slow` and `tok_refund_fails` do what they are called.
    pub cards: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            seed: 0,
            slow_percent: 0,
            slow_ms: 1_500,
            error_percent: 0,
            timeout_percent: 0,
            timeout_ms: 30_000,
            lose_percent: 0,
            mute_percent: 0,
            decline_percent: 0,
            cards: true,
        }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub slow: bool,
    pub error: bool,
    pub timeout: bool,
    pub lose: bool,
}

impl Faults {
    /// Says what cannot be meant.
    pub fn check(&self) -> Result<(), String> {
        let percentages = [
            ("slow_percent", self.slow_percent),
            ("error_percent", self.error_percent),
            ("timeout_percent", self.timeout_percent),
            ("lose_percent", self.lose_percent),
            ("mute_percent", self.mute_percent),
            ("decline_percent", self.decline_percent),
        ];
        match percentages.into_iter().find(|(_, percent)| *percent > 100) {
            Some((name, percent)) => Err(format!("{name} is {percent}, and must be from 0 to 100")),
            None => Ok(()),
        }
    }

    /// What happens to the `times`-th request under a key.
    pub(crate) fn draw(&self, key: &str, times: i64) -> Drawn {
        let drawn = |fault: &str, percent: u8| self.roll(&format!("{fault}:{key}:{times}"), percent);
        Drawn {
            slow: drawn("slow", self.slow_percent),
            error: drawn("error", self.error_percent),
            timeout: drawn("timeout", self.timeout_percent),
            lose: drawn("lose", self.lose_percent),
        }
    }

    /// Whether whoever asks for the `times`-th time what became of a key is told.
    pub(crate) fn tells(&self, key: &str, times: i64) -> bool {
        !self.roll(&format!("mute:{key}:{times}"), self.mute_percent)
    }

    /// Whether an authorisation is declined by chance.
    pub(crate) fn declines(&self, key: &str) -> bool {
        self.roll(&format!("decline:{key}"), self.decline_percent)
    }

    fn roll(&self, what: &str, percent: u8) -> bool {
        let hash = Sha256::digest(format!("{}:{what}", self.seed));
        let number = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        number % 100 < u32::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_about_as_often_as_they_should_and_alike_in_every_run() {
        let faults = Faults { seed: 7, lose_percent: 20, ..Faults::default() };
        let lost = |faults: &Faults| (0..10_000).filter(|n| faults.draw(&format!("k{n}"), 1).lose).collect::<Vec<_>>();
        assert!((1_700..2_300).contains(&lost(&faults).len()), "{}", lost(&faults).len());
        assert_eq!(lost(&faults), lost(&faults));
        assert_ne!(lost(&faults), lost(&Faults { seed: 8, ..faults }));
        assert!((0..100).all(|n| !faults.draw("k", n).error));
    }

    #[test]
    fn percentages_are_percentages() {
        assert!(Faults { error_percent: 100, ..Faults::default() }.check().is_ok());
        let told = Faults { error_percent: 101, ..Faults::default() }.check();
        assert!(told.is_err_and(|why| why.contains("error_percent is 101")));
    }
}
