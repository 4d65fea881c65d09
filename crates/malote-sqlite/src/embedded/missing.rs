//! Records that a group has not read and that are gone.
//!
//! Retention removes nothing that a group still needs, and a new group starts at the oldest record that is
//! left. But a person may remove records by hand, or put an older file back. Offsets have no holes, so it
//! shows, and the group goes on at the oldest record that is left, never at the end.

use malote_core::{RawRecord, planted};

/// Tells which records are missing before the first one of those that were read from an offset on.
pub(super) fn tell(group: &str, topic: &str, partition: i32, from: i64, rows: &mut Vec<(i64, RawRecord)>) {
    let Some((oldest, _)) = rows.first().filter(|(offset, _)| *offset > from) else { return };
    if !planted::is("embedded-jumps-in-silence") {
        tracing::error!(
            group,
            topic,
            partition,
            first = from,
            last = oldest - 1,
            "records were removed before this group has read them; it goes on at the oldest one that is left, \
             and `malote replay` sends again what the outbox still keeps"
        );
    }
    if planted::is("embedded-jumps-to-the-end") {
        rows.drain(..rows.len() - 1);
    }
}
