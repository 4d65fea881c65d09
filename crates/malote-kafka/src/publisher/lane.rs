//! One producer of the client and the thread that hears from it.

use super::{
    account::{Account, Entry},
    doors::{At, Doors, Handed, Parcel},
    verdict::Verdict,
};
use crate::{Shared, log::Ration};
use malote_core::{Report, TransportError, planted, wire};
use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig},
};
use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak, atomic::Ordering},
    thread,
    time::Duration,
};

/// How often the thread looks at the clock and at whether it should end.
const TICK: Duration = Duration::from_millis(50);
/// How long the last reports may take after everything was given up.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// A way of records to the broker.
pub(super) struct Lane {
    pub(super) way: Arc<Way>,
    /// So many records are sent singly; none on a lane of full speed.
    singly: usize,
}

/// What senders, the thread and the client's callbacks share.
pub(super) struct Way {
    pub(super) account: Account,
    doors: Doors,
    /// Partitions whose door could not be opened yet, for want of room.
    ajar: Mutex<Vec<At>>,
    /// Weak, so that the thread takes the client down, which may take a while.
    producer: OnceLock<Weak<BaseProducer<Context>>>,
}

impl Lane {
    pub(super) fn start(shared: &Shared) -> Result<Self, TransportError> {
        let singly = shared.suspects.load(Ordering::SeqCst);
        let way = Arc::new(Way {
            account: Account::new(shared.suspects.clone()),
            doors: Doors::default(),
            ajar: Mutex::default(),
            producer: OnceLock::new(),
        });
        let context = Context { way: way.clone(), alone: singly > 0, ration: Ration::default() };
        let failed = |e: &dyn std::fmt::Display| TransportError::lasting("starting a Kafka producer", e.to_string());
        let producer: BaseProducer<Context> = shared
            .config
            .producer(singly > 0)
            .create_with_context(context)
            .map_err(|e| failed(&crate::config::refused(e)))?;
        let producer = Arc::new(producer);
        // the only place that sets it
        let _ = way.producer.set(Arc::downgrade(&producer));
        let lane = Self { way: way.clone(), singly };
        let limit = shared.config.delivery_limit;
        thread::Builder::new()
            .name("malote-kafka-out".into())
            .spawn(move || serve(producer, &way, limit))
            .map_err(|e| failed(&e))?;
        Ok(lane)
    }

    /// Whether what had to be sent singly has its reports.
    pub(super) fn is_past_suspects(&self) -> bool {
        self.singly > 0 && self.way.account.reported() >= self.singly as u64
    }
}

/// A relay that was replaced must not go on sending: what is queued or under way is given up.
impl Drop for Lane {
    fn drop(&mut self) {
        if planted::is("kafka-purge") {
            return;
        }
        self.way.account.end("the publisher was dropped");
        if let Some(producer) = self.way.producer() {
            producer.purge(PurgeConfig::default().queue().inflight().non_blocking());
        }
    }
}

fn serve(producer: Arc<BaseProducer<Context>>, way: &Way, limit: Duration) {
    let account = &way.account;
    while !account.is_ended() {
        producer.poll(TICK);
        way.open_ajar();
        if account.is_stalled(limit) {
            account.end(&format!("no answer from Kafka for {limit:?}"));
        }
    }
    producer.purge(PurgeConfig::default().queue().inflight());
    // the purge's own reports; what they leave out is closed below
    let _ = producer.flush(LAST_REPORTS);
    way.doors.clear();
    account.close();
}

impl Way {
    fn producer(&self) -> Option<Arc<BaseProducer<Context>>> {
        self.producer.get().and_then(Weak::upgrade)
    }

    /// Hands a record to the client, or lets it wait behind its door.
    pub(super) fn hand(&self, parcel: Parcel) -> Handed {
        self.doors.hand(parcel, |parcel| self.give(parcel))
    }

    fn give(&self, parcel: Parcel) -> Handed {
        let Some(producer) = self.producer() else { return Handed::Ended };
        let Parcel { at, envelope, entry } = parcel;
        let record = wire::encode(&envelope);
        let headers = OwnedHeaders::new_with_capacity(record.headers.len());
        let headers = record
            .headers
            .iter()
            .fold(headers, |headers, (key, value)| headers.insert(Header { key, value: Some(&value[..]) }));
        let mut out = BaseRecord::with_opaque_to(&at.topic, entry).partition(at.partition).headers(headers);
        out.key = record.key.as_deref();
        out.payload = record.payload.as_deref();
        // while this is held the publisher cannot end: nothing is enqueued behind its purge
        let gate = self.account.gate();
        if gate.is_shut() {
            return Handed::Ended;
        }
        let Err((error, back)) = producer.send::<[u8], [u8]>(out) else { return Handed::Taken };
        drop(gate);
        let entry = back.delivery_opaque;
        if let KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) = error {
            return Handed::Full(Box::new(Parcel { at, envelope, entry }));
        }
        // the client looked at this very record, so a refusal is certain
        let verdict = Verdict::of(&error, true);
        if let Verdict::Refused(why) = verdict {
            self.account.tell(&entry, Report::Refused(why));
            return Handed::Refused;
        }
        self.account.failed(&entry, verdict);
        Handed::Ended
    }

    fn open(&self, at: At) {
        if !self.doors.open(&at, |parcel| self.give(parcel)) {
            self.ajar.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        }
    }

    fn open_ajar(&self) {
        let ajar = std::mem::take(&mut *self.ajar.lock().unwrap_or_else(PoisonError::into_inner));
        for at in ajar {
            self.open(at);
        }
    }
}

/// Takes the client's calls.
pub(super) struct Context {
    way: Arc<Way>,
    /// Whether each record has a request of its own.
    alone: bool,
    ration: Ration,
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Entry>;

    fn delivery(&self, result: &DeliveryResult<'_>, mut entry: Box<Entry>) {
        match result {
            Ok(_) => {
                self.way.account.tell(&entry, Report::Stored);
                if let Some(at) = entry.opens.take() {
                    self.way.open(at);
                }
            }
            Err((error, _)) => self.way.account.failed(&entry, Verdict::of(error, self.alone || entry.opens.is_some())),
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.ration.client_says(level, facility, text);
    }

    fn error(&self, error: KafkaError, why: &str) {
        self.ration.client_errs(&error, why);
        let fatal = [RDKafkaErrorCode::Fatal, RDKafkaErrorCode::GaplessGuarantee];
        if error.rdkafka_error_code().is_some_and(|code| fatal.contains(&code)) {
            self.way.account.end(why);
        }
    }
}
