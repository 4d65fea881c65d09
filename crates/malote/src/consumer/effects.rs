//! Effects: calls to the outside, with no transaction open.
//!
//! ```text
//!   seen already? ──no──▶ call(event, key) ──▶ BEGIN · admit · record · append · COMMIT
//! ```
//!
//! A process that dies between the call and the commit calls again, with the same key. Keys go on
//! side by side; the events of one key keep their order.

use super::{
    Consumer,
    batch::{Setback, Task, Work},
};
use crate::{service::Call, telemetry};
use futures::{StreamExt, stream};
use malote_core::{Admission, BoxFuture, Envelope, IdempotencyKey, Store, Transaction};
use std::{collections::HashMap, ops::ControlFlow};
use tracing::Instrument;
use uuid::Uuid;

impl<S: Store> Consumer<S> {
    /// Calls a run of effects to the end.
    pub(super) async fn call_all(&self, run: &[Work<'_, S>]) -> ControlFlow<()> {
        let mut lanes: HashMap<String, Vec<(&Envelope, &dyn Call<S>)>> = HashMap::new();
        for work in run {
            if let Task::Call(envelope, effect) = &work.task {
                lanes.entry(work.lane()).or_default().push((envelope, *effect));
            }
        }
        let calls: Vec<BoxFuture<'_, ControlFlow<()>>> =
            lanes.into_values().map(|lane| Box::pin(self.call_lane(lane)) as BoxFuture<'_, _>).collect();
        let ends = stream::iter(calls).buffer_unordered(self.service.settings.effects).collect::<Vec<_>>().await;
        match ends.iter().any(ControlFlow::is_break) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    async fn call_lane(&self, lane: Vec<(&Envelope, &dyn Call<S>)>) -> ControlFlow<()> {
        for (envelope, effect) in lane {
            let mut attempts = 0;
            while let Err(setback) = self.call(envelope, effect).await {
                attempts += 1;
                tracing::warn!(service = %self.service.name, event = %envelope.id, attempts, "not done: {}", setback.why());
                if setback.is_final() && self.give_up(envelope, setback.why(), attempts).await.is_ok() {
                    break;
                }
                let wait = self.service.settings.backoff.wait(attempts, fastrand::f64());
                self.pause(setback.defer.map_or(wait, |d| wait.max(d))).await?;
            }
        }
        ControlFlow::Continue(())
    }

    async fn call(&self, envelope: &Envelope, effect: &dyn Call<S>) -> Result<(), Setback> {
        let admission = [Admission::of(envelope)];
        if self.service.store.seen(&self.service.name, &admission).await? == [true] {
            return Ok(());
        }
        let span = telemetry::process_span(envelope, &self.service.name, self.service.transport.system());
        async {
            let store = &self.service.store;
            let key = operation(&self.service.name, envelope);
            let note = effect.call(envelope, key).await.map_err(|failure| Setback::of(store, failure))?;
            let mut tx = store.begin(self.outbox.sealer(self.cause_of(envelope))).await?;
            if store.admit(&mut tx, &self.service.name, &admission).await? == [true] {
                let messages = note(&mut tx).await.map_err(|failure| Setback::of(store, failure))?;
                let out = self.seal(&mut tx, messages)?;
                if !out.is_empty() {
                    tx.append(out).await?;
                }
            }
            Ok(tx.commit().await?)
        }
        .instrument(span)
        .await
    }
}

/// Names the intention, the same for every attempt.
fn operation(consumer: &str, envelope: &Envelope) -> IdempotencyKey {
    IdempotencyKey(Uuid::new_v5(&envelope.id, format!("{consumer}\n{}", envelope.kind).as_bytes()).to_string())
}
