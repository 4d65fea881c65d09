//! One producer of the client and the thread that hears from it.

use super::{
    account::{Account, Entry},
    verdict::Verdict,
};
use crate::{Shared, log::Ration};
use malote_core::TransportError;
use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseProducer, DeliveryResult, Producer, ProducerContext, PurgeConfig},
};
use std::{
    sync::{Arc, Weak, atomic::Ordering},
    thread,
    time::Duration,
};

/// How often the thread looks at the clock and at whether it should end.
const TICK: Duration = Duration::from_millis(50);
/// How long the last reports may take after everything was given up.
const LAST_REPORTS: Duration = Duration::from_secs(5);

pub(super) struct Lane {
    /// Weak, so that the thread takes the client down, which may take a while.
    producer: Weak<BaseProducer<Context>>,
    pub(super) account: Arc<Account>,
    /// So many records are sent singly; none on a lane of full speed.
    singly: usize,
}

impl Lane {
    pub(super) fn start(shared: &Shared) -> Result<Self, TransportError> {
        let singly = shared.suspects.load(Ordering::SeqCst);
        let account = Arc::new(Account::new(shared.suspects.clone()));
        let context = Context { account: account.clone(), alone: singly > 0, ration: Ration::default() };
        let failed = |e: &dyn std::fmt::Display| TransportError::lasting("starting a Kafka producer", e.to_string());
        let producer: BaseProducer<Context> = shared
            .config
            .producer(singly > 0)
            .create_with_context(context)
            .map_err(|e| failed(&crate::config::refused(e)))?;
        let producer = Arc::new(producer);
        let lane = Self { producer: Arc::downgrade(&producer), account: account.clone(), singly };
        let limit = shared.config.delivery_limit;
        thread::Builder::new()
            .name("malote-kafka-out".into())
            .spawn(move || serve(producer, &account, limit))
            .map_err(|e| failed(&e))?;
        Ok(lane)
    }

    /// The client, unless it is gone.
    pub(super) fn producer(&self) -> Option<Arc<BaseProducer<Context>>> {
        self.producer.upgrade()
    }

    /// Whether what had to be sent singly has its reports.
    pub(super) fn is_past_suspects(&self) -> bool {
        self.singly > 0 && self.account.reported() >= self.singly as u64
    }

    /// Ends it: what is queued or under way is given up now.
    pub(super) fn give_up(&self, why: &str) {
        self.account.end(why);
        if let Some(producer) = self.producer() {
            producer.purge(PurgeConfig::default().queue().inflight().non_blocking());
        }
    }
}

/// A relay that was replaced must not go on sending: what is queued or under way is given up.
impl Drop for Lane {
    fn drop(&mut self) {
        if !malote_core::planted::is("kafka-purge") {
            self.give_up("the publisher was dropped");
        }
    }
}

fn serve(producer: Arc<BaseProducer<Context>>, account: &Account, limit: Duration) {
    while !account.is_ended() {
        producer.poll(TICK);
        if account.is_stalled(limit) {
            account.end(&format!("no answer from Kafka for {limit:?}"));
        }
    }
    producer.purge(PurgeConfig::default().queue().inflight());
    // the purge's own reports; what they leave out is closed below
    let _ = producer.flush(LAST_REPORTS);
    account.close();
}

/// Takes the client's calls.
pub(super) struct Context {
    account: Arc<Account>,
    /// Whether each record has a request of its own.
    alone: bool,
    ration: Ration,
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Entry>;

    fn delivery(&self, result: &DeliveryResult<'_>, entry: Box<Entry>) {
        match result {
            Ok(_) => self.account.stored(&entry),
            Err((error, _)) => self.account.failed(&entry, Verdict::of(error, self.alone)),
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
            self.account.end(why);
        }
    }
}
