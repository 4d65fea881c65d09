//! How the store stands, as metrics, and as readiness: progress, not life.
//!
//! Looked at every few seconds. A process that lives and moves nothing is not ready: the oldest row
//! that nobody has published says so, whoever the relay is.

use crate::{Health, State, service::Service, telemetry};
use malote_core::{
    FullStore, Store, StoreError,
    inspect::{Inspect, Status},
    saga::Status as Stage,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(5);

/// Watches one service's store in one process.
pub(crate) struct Observer<S: Store> {
    service: Arc<Service<S>>,
    stop: CancellationToken,
}

impl<S: FullStore> Observer<S> {
    pub(crate) fn new(service: Arc<Service<S>>, stop: CancellationToken) -> Self {
        Self { service, stop }
    }

    /// Runs until stopped; an error of the store ends it. `beat` is called once a round.
    pub(crate) async fn run(&self, health: &Health, beat: impl Fn()) -> Result<(), StoreError> {
        telemetry::metrics::begin(&self.service.name);
        let mut known = BTreeSet::from([self.service.name.to_string()]);
        let mut sagas = BTreeSet::new();
        while !self.stop.is_cancelled() {
            beat();
            let status = Inspect::status(&self.service.store).await?;
            known.extend(status.consumers.iter().map(|consumer| consumer.name.clone()));
            sagas.extend(status.saga_versions.iter().map(|of| of.definition.clone()));
            sagas.extend(status.sagas.iter().map(|of| of.definition.clone()));
            self.tell(&status, &known);
            self.tell_sagas(&status, &sagas);
            health.set(&format!("{} outbox", self.service.name), self.progress(&status));
            self.stop.run_until_cancelled(tokio::time::sleep(EVERY)).await;
        }
        Ok(())
    }

    /// Whether what was written is being published.
    fn progress(&self, status: &Status) -> State {
        let lag = self.service.settings.retention.lag;
        match status.outbox.oldest_seconds {
            Some(age) if age > lag.as_secs_f64() && !malote_core::planted::is("lag-unseen") => {
                let oldest = status.outbox.oldest.as_ref();
                let which = oldest.map(|(kind, key)| format!(", {kind} of key {key:?}")).unwrap_or_default();
                State::Failing(format!(
                    "{} rows are not published, the oldest for {age:.0} s{which}; {lag:?} is the limit",
                    status.outbox.pending
                ))
            }
            _ => State::Working,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn tell(&self, status: &Status, known: &BTreeSet<String>) {
        let name = self.service.name.to_string();
        metrics::counter!("malote_observations_total", "service" => name.clone()).increment(1);
        let gauge = |metric: &'static str, value: f64| metrics::gauge!(metric, "service" => name.clone()).set(value);
        gauge("malote_outbox_pending", status.outbox.pending as f64);
        gauge("malote_outbox_oldest_age_seconds", status.outbox.oldest_seconds.unwrap_or(0.0));
        gauge("malote_outbox_gaps", status.outbox.gaps as f64);
        let oldest = status.oldest_transaction.as_ref().map_or(0.0, |holder| holder.seconds);
        gauge("malote_oldest_transaction_age_seconds", oldest);
        gauge("malote_scheduled", status.scheduled as f64);
        gauge("malote_scheduled_late_seconds", status.scheduled_late_seconds.unwrap_or(0.0));
        if let Some(bytes) = status.wal_bytes {
            gauge("malote_sqlite_wal_bytes", bytes as f64);
        }
        metrics::gauge!("malote_dead_letters", "by" => format!("relay {name}")).set(status.relay_dead as f64);
        // a consumer of which nothing waits any more is none in the store: that is a zero, not a silence
        let none = malote_core::inspect::ConsumerStatus::default();
        for consumer in known {
            let found = status.consumers.iter().find(|c| c.name == *consumer).unwrap_or(&none);
            let gauge = |metric: &'static str, value: f64| {
                metrics::gauge!(metric, "consumer" => consumer.clone()).set(value);
            };
            gauge("malote_parked_keys", found.parked_keys as f64);
            gauge("malote_parked_messages", found.parked_messages as f64);
            gauge("malote_held_keys", found.held_keys as f64);
            gauge("malote_parked_oldest_age_seconds", found.oldest_parked_seconds.unwrap_or(0.0));
            metrics::gauge!("malote_dead_letters", "by" => format!("consumer {consumer}")).set(found.dead as f64);
        }
    }

    /// Of each definition that was ever heard of every status: nobody is in it is a zero, not a silence.
    #[allow(clippy::cast_precision_loss)]
    fn tell_sagas(&self, status: &Status, known: &BTreeSet<String>) {
        let name = self.service.name.to_string();
        metrics::gauge!("malote_saga_open_acts", "service" => name.clone()).set(status.open_acts as f64);
        for definition in known {
            let mut counts: BTreeMap<Stage, u64> = Stage::ALL.into_iter().map(|stage| (stage, 0)).collect();
            let mut oldest = 0.0_f64;
            for of in status.sagas.iter().filter(|of| of.definition == *definition) {
                *counts.entry(of.status).or_default() += of.count;
                if !of.status.is_final() {
                    oldest = oldest.max(of.oldest_seconds);
                }
            }
            for (stage, count) in counts {
                let labels = [("service", name.clone()), ("definition", definition.clone())];
                let labels = labels.into_iter().chain([("status", stage.as_str().to_owned())]).collect::<Vec<_>>();
                metrics::gauge!("malote_sagas", &labels).set(count as f64);
            }
            let labels = [("service", name.clone()), ("definition", definition.clone())];
            metrics::gauge!("malote_saga_oldest_age_seconds", &labels).set(oldest);
        }
    }
}
