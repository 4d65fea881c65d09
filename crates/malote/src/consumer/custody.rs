//! Which partitions this process holds, and which records its last holder may have died over.
//!
//! Only what had been delivered and not acknowledged can have been under way when a process died, and
//! that is what a partition delivers first. So a fixed number of records at the start of such a
//! partition is suspect, and nothing has to be written down for each batch.

use super::{Consumer, work::Trouble};
use malote_core::{Delivery, FullStore, Place};
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
        held.is_some_and(|held| place.offset < held.clear_from) && !malote_core::planted::is("no-suspects")
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
    for ((place, partition), unclean) in met.into_iter().zip(partitions).zip(unclean) {
        if unclean {
            tracing::info!(service = %service.name, topic = place.topic, partition = place.partition,
                "its last holder did not give this partition back: up to {most} records are handled one by one");
        }
        let clear_from = if unclean { place.offset.saturating_add(most) } else { 0 };
        custody.0.insert(partition, Held { assignment: place.assignment, clear_from });
    }
    Ok(())
}
