//! Which partitions this process holds, and which records its last holder may have died over.
//!
//! Only what had been delivered and not acknowledged can have been under way when a process died, and
//! that is what a partition delivers first. So a fixed number of records at the start of such a
//! partition is suspect, and nothing has to be written down for each batch in good times.
//!
//! ```text
//!   suspect ── together, each run counted before it begins ──▶ ended: no suspect any more
//!                   └─ the process dies ─▶ blamed ── alone, counted ──▶ ended, or died too often: given up
//! ```
//!
//! One death in many is over a record. So suspects go on together, with one commit more for a batch, and
//! only what was under way at a second death, too, has to run alone.

use super::{
    Consumer,
    work::{Trouble, Work},
};
use malote_core::{Delivery, FullStore, Place, planted};
use std::collections::HashMap;

/// The partitions that were met, by topic and number.
#[derive(Default)]
pub(super) struct Custody(HashMap<(String, i32), Held>);

struct Held {
    assignment: u64,
    /// The first offset that is no suspect any more.
    clear_from: i64,
}

impl Custody {
    /// Whether the record at this place may be what its partition's last holder died over.
    pub(super) fn is_suspect(&self, place: &Place) -> bool {
        let held = self.0.get(&(place.topic.clone(), place.partition));
        held.is_some_and(|held| place.offset < held.clear_from) && !planted::is("no-suspects")
    }
}

/// Takes the partitions of these deliveries that were not met under their present assignment.
pub(super) async fn take<S: FullStore>(
    consumer: &Consumer<S>,
    custody: &mut Custody,
    deliveries: &[Delivery],
) -> Result<(), Trouble> {
    let mut met: Vec<&Place> = Vec::new();
    for Delivery { place, .. } in deliveries {
        let known = custody.0.get(&(place.topic.clone(), place.partition));
        let is_met = |p: &&Place| (&p.topic, p.partition) == (&place.topic, place.partition);
        if known.is_none_or(|held| held.assignment != place.assignment) && !met.iter().any(is_met) {
            met.push(place);
        }
    }
    if met.is_empty() {
        return Ok(());
    }
    let partitions: Vec<(String, i32)> = met.iter().map(|place| (place.topic.clone(), place.partition)).collect();
    let service = &consumer.service;
    let unclean = service.store.take_custody(&service.name, consumer.who, &partitions).await?;
    let most = i64::try_from(service.settings.batch).unwrap_or(i64::MAX);
    let dead = unclean.iter().filter(|unclean| **unclean).count();
    if dead > 0 {
        tracing::info!(service = %service.name,
            "the last holder of {dead} partitions did not give them back: what it had begun is handled with care");
    }
    for ((place, partition), unclean) in met.into_iter().zip(partitions).zip(unclean) {
        let clear_from = if unclean { place.offset.saturating_add(most) } else { 0 };
        custody.0.insert(partition, Held { assignment: place.assignment, clear_from });
    }
    Ok(())
}

/// Which of these had begun when a process died that handled them as suspects.
pub(super) async fn blamed<S: FullStore>(consumer: &Consumer<S>, works: &[Work<'_, S>]) -> Result<Vec<bool>, Trouble> {
    let suspects: Vec<String> = works.iter().filter(|work| work.suspect).map(Work::what).collect();
    if suspects.is_empty() || planted::is("blamed-together") {
        return Ok(vec![false; works.len()]);
    }
    if planted::is("suspects-alone") {
        return Ok(works.iter().map(|work| work.suspect).collect());
    }
    let service = &consumer.service;
    let mut runs = service.store.runs(&service.name, &suspects).await?.into_iter();
    Ok(works.iter().map(|work| work.suspect && runs.next().is_some_and(|begun| begun > 0)).collect())
}
