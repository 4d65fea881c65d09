//! What the client calls while it is polled: partitions come and go, commits succeed or fail.

use super::shared::{Ledger, TopicPartition};
use crate::log::Ration;
use malote_core::planted;
use rdkafka::{
    ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, base_consumer::PartitionQueue},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread::Thread,
};

/// The queues of the partitions that are assigned.
pub(super) type Queues = HashMap<TopicPartition, Arc<PartitionQueue<Context>>>;

pub(super) struct Context {
    pub(super) group: String,
    pub(super) ledger: Arc<Ledger>,
    pub(super) ration: Ration,
    /// The consumer that this is the context of.
    pub(super) consumer: OnceLock<Weak<BaseConsumer<Context>>>,
    queues: Mutex<Queues>,
    thread: Thread,
}

impl Context {
    /// `thread` is woken when a partition has records.
    pub(super) fn new(group: String, ledger: Arc<Ledger>, thread: Thread) -> Self {
        Self { group, ledger, ration: Ration::default(), consumer: OnceLock::new(), queues: Mutex::default(), thread }
    }

    pub(super) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each partition gets a queue of its own before its first record comes.
    fn assigned(&self, list: &TopicPartitionList) {
        let Some(consumer) = self.consumer.get().and_then(Weak::upgrade) else { return };
        for element in list.elements() {
            let at = (element.topic().to_owned(), element.partition());
            self.ledger.assign(at.clone());
            if let Some(mut queue) = consumer.split_partition_queue(&at.0, at.1) {
                let thread = self.thread.clone();
                queue.set_nonempty_callback(move || thread.unpark());
                self.queues().insert(at, Arc::new(queue));
            }
        }
    }

    /// What was acknowledged is committed while the partitions are still ours; then they are forgotten.
    fn revoked(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let mut due = Vec::new();
        for element in list.elements() {
            let at = (element.topic().to_owned(), element.partition());
            let queue = self.queues().remove(&at);
            drop(queue);
            due.extend(self.ledger.revoke(&at).map(|offset| (at, offset)));
        }
        if due.is_empty() || consumer.assignment_lost() || planted::is("kafka-commit-on-revoke") {
            return;
        }
        if let Err(error) = consumer.commit(&offsets(&due), CommitMode::Sync) {
            self.ration.warn("commit on revoke", format_args!("{error}; the next owner handles some records again"));
        }
    }
}

/// Positions as the client wants them.
pub(super) fn offsets(due: &[(TopicPartition, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(due.len());
    for ((topic, partition), offset) in due {
        // fails only for offsets that no record has
        let _ = list.add_partition_offset(topic, *partition, Offset::Offset(*offset));
    }
    list
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.assigned(list),
            Rebalance::Revoke(list) => self.revoked(consumer, list),
            Rebalance::Error(error) => self.ration.warn("rebalance", format_args!("{error}")),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, list: &TopicPartitionList) {
        let elements = list.elements();
        let failed = elements.iter().filter(|element| result.is_err() || element.error().is_err());
        let failed: Vec<_> = failed.map(|element| (element.topic().to_owned(), element.partition())).collect();
        if !failed.is_empty() {
            let why = result.err().map_or_else(String::new, |error| error.to_string());
            self.ration.warn("commit", format_args!("{why}; it is tried again"));
            self.ledger.undo(failed.into_iter());
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.ration.client_says(level, facility, text);
    }

    fn error(&self, error: KafkaError, why: &str) {
        self.ration.client_errs(&error, why);
        let lasting = [
            RDKafkaErrorCode::Fatal,
            RDKafkaErrorCode::FencedInstanceId,
            RDKafkaErrorCode::GroupAuthorizationFailed,
            RDKafkaErrorCode::TopicAuthorizationFailed,
            RDKafkaErrorCode::InvalidSessionTimeout,
        ];
        if error.rdkafka_error_code().is_some_and(|code| lasting.contains(&code)) {
            self.ledger.fail(why.to_owned());
        }
    }
}
