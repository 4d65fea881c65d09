//! Time and new ids are asked for, never taken, so that a test can say what they are.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// The wall clock of this process, and the maker of ids.
///
/// Used for what is told to people and peers (`ce_time`). Whatever is compared between processes,
/// a lease or a due time, uses the database's clock instead.
pub trait Clock: Send + Sync + 'static {
    /// Now, in UTC.
    fn now(&self) -> DateTime<Utc>;
    /// A new id that sorts by time (UUID version 7).
    fn new_id(&self) -> Uuid;
}
