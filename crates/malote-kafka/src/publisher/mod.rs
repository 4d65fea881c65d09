//! The way in: a batch goes out in order, each record comes back with its own report.
//!
//! The promise is that a record is never on a topic behind a later one of its partition, counting
//! first occurrences. Kafka's idempotent producer keeps that only while nothing fails, so the first
//! failure ends the publisher, and whoever sends takes a new one and sends again from the first
//! record without a report. Three cases need more than that:
//!
//! - **The first request of a producer to a partition.** The broker knows no sequence yet and takes
//!   whatever comes first, even a second request whose predecessor it has just refused. So the first
//!   record of each partition goes alone and is waited for ([`KafkaPublisher::introduce`]).
//! - **A refusal of a request with many records** says nothing about any one of them. They are
//!   reported as unknown, and the next publisher sends as many records singly until the one at fault
//!   is found ([`account`]); then it gathers speed again.
//! - **Expiry.** librdkafka expires records one by one and goes on with the later ones. So it is told
//!   to expire nothing, and a publisher whose broker is silent for too long is ended as a whole.

mod account;
mod lane;
mod verdict;

use crate::{Shared, topics::Unsure};
use account::{Entry, Handing};
use lane::Lane;
use malote_core::{BoxFuture, Envelope, Publisher, Reports, TransportError, partition, planted, wire};
use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use verdict::Verdict;

/// So many records are handed over before others get their turn.
const STRIDE: usize = 128;
/// While the client's buffer is full, it is tried again at least so often.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct KafkaPublisher {
    shared: Arc<Shared>,
    lane: Lane,
    /// Partitions to which this publisher has stored a record.
    introduced: HashMap<String, HashSet<i32>>,
    looked: Instant,
}

impl KafkaPublisher {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self, TransportError> {
        let lane = Lane::start(&shared)?;
        Ok(Self { shared, lane, introduced: HashMap::new(), looked: Instant::now() })
    }

    async fn take(&mut self, batch: Vec<Envelope>) -> Result<Reports, TransportError> {
        self.gather_speed().await?;
        if let Some(why) = self.lane.account.ended() {
            return Err(TransportError::transient("sending to Kafka", why));
        }
        // whatever has not been handed over when this is dropped is reported as not sent
        let (handing, reports) = self.lane.account.open(batch.len());
        if self.make_sure(&batch, &handing).await? {
            let introduced = self.introduce(&batch, &handing).await;
            self.hand_over(&batch, &introduced, &handing).await;
        }
        Ok(reports)
    }

    /// Once all suspects have their reports, goes on with requests of the usual size.
    async fn gather_speed(&mut self) -> Result<(), TransportError> {
        let account = &self.lane.account;
        if self.lane.is_past_suspects() {
            account.wait(|| account.open_records() == 0 || account.is_ended()).await;
            if !account.is_ended() {
                self.shared.suspects.store(0, Ordering::SeqCst);
                self.lane = Lane::start(&self.shared)?;
                self.introduced.clear();
            }
        }
        Ok(())
    }

    /// Creates topics that are not there, so that no broker does it by accident. False if one may not
    /// be: its records are refused, the others are not sent.
    async fn make_sure(&mut self, batch: &[Envelope], handing: &Handing) -> Result<bool, TransportError> {
        if self.looked.elapsed() > self.shared.config.watch {
            self.looked = Instant::now();
            tokio::spawn(self.shared.topics.watch());
        }
        let unknown = self.shared.topics.unknown(batch.iter().map(|envelope| envelope.topic.as_str()));
        if unknown.is_empty() {
            return Ok(true);
        }
        match self.shared.topics.ensure(&unknown).await {
            Ok(()) => Ok(true),
            Err(Unsure::Refused(topic, code)) => {
                let why = format!("Kafka does not take the topic {topic:?}: {code}");
                for at in (0..batch.len()).filter(|at| batch[*at].topic == topic) {
                    self.lane.account.failed(&handing.entry(at), Verdict::Refused(why.clone()));
                }
                Ok(false)
            }
            Err(Unsure::Error(error)) => Err(error),
        }
    }

    /// Sends the first record of each partition that this publisher has not met, and waits for their
    /// reports. Says which records these were.
    async fn introduce(&mut self, batch: &[Envelope], handing: &Handing) -> Vec<usize> {
        let mut first = Vec::new();
        for (at, envelope) in batch.iter().enumerate() {
            let partition = self.partition(envelope);
            if !self.introduced.get(&envelope.topic).is_some_and(|met| met.contains(&partition)) {
                self.introduced.entry(envelope.topic.clone()).or_default().insert(partition);
                first.push(at);
            }
        }
        if planted::is("kafka-introduce") {
            return Vec::new();
        }
        for &at in &first {
            if !self.enqueue_or_wait(&batch[at], at, handing).await {
                return first;
            }
        }
        if !first.is_empty() {
            let account = &self.lane.account;
            account.wait(|| first.iter().all(|at| handing.has_report(*at)) || account.is_ended()).await;
        }
        first
    }

    async fn hand_over(&mut self, batch: &[Envelope], introduced: &[usize], handing: &Handing) {
        let mut introduced = introduced.iter().peekable();
        for (at, envelope) in batch.iter().enumerate() {
            if introduced.next_if(|done| **done == at).is_some() {
                continue;
            }
            if !self.enqueue_or_wait(envelope, at, handing).await {
                return;
            }
            if at % STRIDE == STRIDE - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Hands one record to the client, waiting for room. False once the publisher has ended.
    async fn enqueue_or_wait(&self, envelope: &Envelope, at: usize, handing: &Handing) -> bool {
        let record = wire::encode(envelope);
        let headers = OwnedHeaders::new_with_capacity(record.headers.len());
        let headers = record
            .headers
            .iter()
            .fold(headers, |headers, (key, value)| headers.insert(Header { key, value: Some(&value[..]) }));
        let mut out = BaseRecord::with_opaque_to(&envelope.topic, Box::new(handing.entry(at)))
            .partition(self.partition(envelope))
            .headers(headers);
        out.key = record.key.as_deref();
        out.payload = record.payload.as_deref();
        let account = &self.lane.account;
        loop {
            let reported = account.reported();
            out = match self.enqueue(out, at, handing) {
                Ok(()) => return true,
                Err(Some(_)) if planted::is("kafka-queue-full") => {
                    account.stored(&handing.entry(at)); // as if it had been sent
                    return true;
                }
                Err(Some(out)) => out,
                Err(None) => return false,
            };
            // the room is free a moment after the reports, so they are not waited for alone
            let room = account.wait(|| account.reported() > reported || account.is_ended());
            let _ = tokio::time::timeout(LOOK_AGAIN, room).await;
        }
    }

    /// Hands one record to the client. It comes back if there is no room, and does not if the
    /// publisher has ended, by this very record perhaps.
    fn enqueue<'a>(&self, record: Out<'a>, at: usize, handing: &Handing) -> Result<(), Option<Out<'a>>> {
        let producer = self.lane.producer().ok_or(None)?;
        // while this is held the publisher cannot end: nothing is enqueued behind its purge
        let gate = self.lane.account.gate();
        if gate.is_shut() {
            return Err(None);
        }
        handing.away(at);
        let Err((error, record)) = producer.send(record) else { return Ok(()) };
        handing.back(at);
        drop(gate);
        if let KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) = error {
            return Err(Some(record));
        }
        // the client looked at this very record, so a refusal is certain
        self.lane.account.failed(&handing.entry(at), Verdict::of(&error, true));
        Err(None)
    }

    fn partition(&self, envelope: &Envelope) -> i32 {
        let partition = partition::of_key(envelope.key.as_bytes(), self.shared.config.partitions);
        i32::try_from(partition).unwrap_or(0) // the count is a Kafka count, which fits
    }
}

type Out<'a> = BaseRecord<'a, [u8], [u8], Box<Entry>>;

impl Publisher for KafkaPublisher {
    fn send(&mut self, batch: Vec<Envelope>) -> BoxFuture<'_, Result<Reports, TransportError>> {
        Box::pin(self.take(batch))
    }
}
