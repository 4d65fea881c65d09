//! Records that a group has not read and that are gone.
//!
//! The client goes on at the oldest record that is left, without a word. So the first record of each
//! assignment is compared with the position that the group had committed. Offsets have holes on a broker
//! (marks of transactions, compaction), so only what lies below the oldest offset of the partition is
//! missing.

use super::{context::Context, shared::Ledger};
use malote_core::{Delivery, planted};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaResult,
};
use std::time::Duration;

/// How long the broker may take to answer; without an answer nothing is told.
const ASKED: Duration = Duration::from_secs(5);

/// Tells which records are missing before the first one of an assignment, if so.
pub(super) fn tell(consumer: &BaseConsumer<Context>, group: &str, ledger: &Ledger, first: &Delivery) {
    let place = &first.place;
    if place.offset == 0 || !ledger.is_first(&(place.topic.clone(), place.partition)) {
        return;
    }
    match missing(consumer, &place.topic, place.partition, place.offset) {
        Ok(Some((from, to))) if !planted::is("kafka-jumps-in-silence") => tracing::error!(
            group,
            topic = place.topic,
            partition = place.partition,
            first = from,
            last = to,
            "records were removed before this group has read them; it goes on at the oldest one that is left, \
             and `malote replay` sends again what the outbox still keeps"
        ),
        Ok(_) => {}
        Err(error) => consumer.context().ration.warn("asking what is missing", format_args!("{error}")),
    }
}

/// The first and the last offset of what is missing before `found`.
fn missing(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    partition: i32,
    found: i64,
) -> KafkaResult<Option<(i64, i64)>> {
    let mut asked = TopicPartitionList::with_capacity(1);
    asked.add_partition(topic, partition);
    let committed = consumer.committed_offsets(asked, ASKED)?;
    let Some(Offset::Offset(from)) = committed.find_partition(topic, partition).map(|element| element.offset()) else {
        return Ok(None);
    };
    if from >= found {
        return Ok(None);
    }
    let (oldest, _) = consumer.fetch_watermarks(topic, partition, ASKED)?;
    let end = oldest.min(found);
    Ok((end > from).then(|| (from, end - 1)))
}
