//! The clock of this machine.

use chrono::{DateTime, Utc};
use malote_core::Clock;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The wall clock of this machine, and ids made from it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        DateTime::from_timestamp(since.as_secs().cast_signed(), since.subsec_nanos()).unwrap_or_default()
    }

    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}
