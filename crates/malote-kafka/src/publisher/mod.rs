//! The way in: a batch goes out in order, each record comes back with its own report.
//!
//! The promise is that a record is never on a topic behind a later one of its partition, counting
//! first occurrences. Kafka's idempotent producer keeps that only while nothing fails, so the first
//! failure ends the publisher, and whoever sends takes a new one and sends again from the first
//! record without a report. Three cases need more than that:
//!
//! - **The first request of a producer to a partition** is not protected by the broker: [`doors`].
//! - **A refusal of a request with many records** says nothing about any one of them. They are
//!   reported as unknown, and the next publisher sends as many records singly, until the one at fault
//!   is found; then it gathers speed again.
//! - **Expiry.** librdkafka expires records one by one and goes on with the later ones. So it is told
//!   to expire nothing, and a publisher whose broker is silent for too long is ended as a whole.
//!
//! ```text
//!   send ──▶ doors ──▶ client's buffer ──▶ broker
//!    ▲                                       │
//!    └─ reports ◀── account ◀── thread ◀─────┘   the first failure: nothing is handed over any more,
//!                                                what is queued or under way is given up
//! ```

mod account;
mod doors;
mod lane;
mod verdict;

use crate::Shared;
use account::Handing;
use doors::{At, Handed, Parcel};
use lane::Lane;
use malote_core::{BoxFuture, Envelope, Publisher, Report, Reports, TransportError, partition, planted};
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// So many records are handed over before others get their turn.
const STRIDE: usize = 128;
/// While the client's buffer is full, it is tried again at least so often.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct KafkaPublisher {
    shared: Arc<Shared>,
    lane: Lane,
    /// Topics that were not there. They stay so for this publisher even if somebody makes them: later
    /// records must not be stored before the ones that had no topic.
    missing: HashSet<String>,
    looked: Instant,
}

impl KafkaPublisher {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self, TransportError> {
        let lane = Lane::start(&shared)?;
        Ok(Self { shared, lane, missing: HashSet::new(), looked: Instant::now() })
    }

    async fn take(&mut self, batch: Vec<Envelope>) -> Result<Reports, TransportError> {
        self.gather_speed().await?;
        if let Some(why) = self.lane.way.account.ended() {
            return Err(TransportError::transient("sending to Kafka", why));
        }
        // whatever has not been handed over when this is dropped is reported as not sent
        let (handing, reports) = self.lane.way.account.open(batch.len());
        self.look(&batch).await?;
        self.hand_over(batch, &handing).await;
        Ok(reports)
    }

    /// Once all suspects have their reports, goes on with requests of the usual size.
    async fn gather_speed(&mut self) -> Result<(), TransportError> {
        let account = &self.lane.way.account;
        if self.lane.is_past_suspects() {
            account.wait(|| account.open_records() == 0 || account.is_ended()).await;
            if !account.is_ended() {
                self.shared.suspects.store(0, Ordering::SeqCst);
                self.lane = Lane::start(&self.shared)?;
            }
        }
        Ok(())
    }

    /// Looks at topics that are new to this transport. Nothing is ever sent to one that is not there,
    /// since some brokers would make it, with whatever partition count they like.
    async fn look(&mut self, batch: &[Envelope]) -> Result<(), TransportError> {
        if self.looked.elapsed() > self.shared.config.watch {
            self.looked = Instant::now();
            tokio::spawn(self.shared.topics.watch());
        }
        let topics = batch.iter().map(|envelope| envelope.topic.as_str());
        let unknown = self.shared.topics.unknown(topics.filter(|topic| !self.missing.contains(*topic)));
        if !unknown.is_empty() {
            self.missing.extend(self.shared.topics.look(&unknown).await?);
        }
        Ok(())
    }

    async fn hand_over(&self, batch: Vec<Envelope>, handing: &Handing) {
        for (at, envelope) in batch.into_iter().enumerate() {
            if self.missing.contains(&envelope.topic) {
                let why = format!("there is no topic {:?}, or it is not ready", envelope.topic);
                self.lane.way.account.tell(&handing.entry(at), Report::Unknown(why));
            } else if !self.hand(envelope, at, handing).await {
                return;
            }
            if at % STRIDE == STRIDE - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Hands one record over, waiting for room. False once the publisher has ended.
    async fn hand(&self, envelope: Envelope, at: usize, handing: &Handing) -> bool {
        let place = At { topic: envelope.topic.clone(), partition: self.partition(&envelope) };
        let mut parcel = Parcel { at: place, envelope, entry: Box::new(handing.entry(at)) };
        let account = &self.lane.way.account;
        loop {
            let reported = account.reported();
            handing.away(at);
            parcel = match self.lane.way.hand(parcel) {
                Handed::Taken | Handed::Refused => return true,
                Handed::Full(parcel) if planted::is("kafka-queue-full") => {
                    account.tell(&parcel.entry, Report::Stored); // as if it had been sent
                    return true;
                }
                Handed::Full(parcel) => *parcel,
                Handed::Ended => {
                    handing.back(at);
                    return false;
                }
            };
            handing.back(at);
            // the room is free a moment after the reports, so they are not waited for alone
            let room = account.wait(|| account.reported() > reported || account.is_ended());
            let _ = tokio::time::timeout(LOOK_AGAIN, room).await;
        }
    }

    fn partition(&self, envelope: &Envelope) -> i32 {
        let mut count = self.shared.config.partitions;
        if planted::is("kafka-pinned") {
            count = self.shared.topics.count(&envelope.topic).unwrap_or(count);
        }
        // the count is one of Kafka's, which fits
        i32::try_from(partition::of_key(envelope.key.as_bytes(), count)).unwrap_or(0)
    }
}

impl Publisher for KafkaPublisher {
    fn send(&mut self, batch: Vec<Envelope>) -> BoxFuture<'_, Result<Reports, TransportError>> {
        Box::pin(self.take(batch))
    }
}
