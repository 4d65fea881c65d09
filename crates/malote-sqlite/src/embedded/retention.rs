//! Letting old records go: a bounded number at a time, and never one that a group still needs.

use super::{log, writer::Open};
use malote_core::planted;
use std::time::Duration;

/// Records of a partition that go at once.
const MOST: i64 = 1_000;

/// Removes some records that are older than `keep` and that every group has acknowledged.
pub(super) fn retain(open: &Open<'_>, keep: Duration) -> rusqlite::Result<u64> {
    let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let mut statement = open.connection.prepare_cached(include_str!("../../sql/embedded/floors.sql"))?;
    let floors = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let floors = floors.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
    let mut removed = 0;
    for (partition, floor) in floors {
        let floor = if planted::is("retain-unread") { log::OFFSETS - 1 } else { floor };
        let range = (log::at(partition, 0), log::at(partition, floor), keep, MOST);
        removed += open.run(include_str!("../../sql/embedded/remove.sql"), range)? as u64;
    }
    Ok(removed)
}
