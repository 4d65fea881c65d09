//! Tests that find more the longer they run.
//!
//! Such a test has `soak_` in its name and asks [`duration`] how long to go on:
//! seconds in every run, the minutes that `make soak MINUTES=60` names there.

use std::time::Duration;

/// Holds the minutes that each soak test is to run for.
pub const MINUTES_ENV: &str = "MALOTE_SOAK_MINUTES";

/// How long to go on: `short`, unless this is a soak run.
///
/// # Panics
/// If `MALOTE_SOAK_MINUTES` is not a whole number.
pub fn duration(short: Duration) -> Duration {
    match std::env::var(MINUTES_ENV) {
        Ok(minutes) => {
            let minutes: u64 = minutes.parse().unwrap_or_else(|_| panic!("{MINUTES_ENV}={minutes} is not a number"));
            Duration::from_secs(minutes * 60)
        }
        Err(_) => short,
    }
}
