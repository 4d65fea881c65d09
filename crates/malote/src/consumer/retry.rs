//! The next attempt at what is parked.
//!
//! ```text
//!   claim lanes that are due (the attempt is counted) ──▶ run the head ──▶ BEGIN · what it did · settle · COMMIT
//!        ▲                                                                       │
//!        └── nothing due: wait ◀───────────────────────────── the next one of the lane, if there is one
//! ```
//!
//! Any number of processes do this at once: a lane is claimed by one of them, for longer than an
//! attempt may take, and whoever outlives its claim is fenced when it wants to settle.

use super::{
    Consumer,
    work::{Fault, Task, Trouble, Work},
};
use crate::{service::Service, supervise::Beat, telemetry};
use futures::{StreamExt, stream};
use malote_core::{
    BoxFuture, Cause, ClaimDue, Class, Ending, Failed, FullStore, Incarnation, Parked, Settled, Store, StoreError,
    Transaction,
    retry::{Next, Then},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;
use tracing::Instrument;

/// Lanes that are claimed in one go, and run side by side.
const LANES: u32 = 16;
/// Longest wait between two looks.
const IDLE: Duration = Duration::from_secs(1);
/// A claim outlasts an attempt by this.
const MARGIN: Duration = Duration::from_secs(30);

/// Retries what is parked for one service in one process.
pub(crate) struct Retrier<S: Store>(Consumer<S>);

impl<S: FullStore> Retrier<S> {
    pub(crate) fn new(service: Arc<Service<S>>, who: Incarnation, beat: Beat, parked: Arc<Notify>) -> Self {
        Self(Consumer::new(service, who, beat, parked))
    }

    /// Runs until stopped; an error of the store ends it, and its supervisor starts it again.
    pub(crate) async fn run(&self) -> Result<(), StoreError> {
        let Consumer { service, who, beat, stop, parked, .. } = &self.0;
        let settings = &service.settings;
        let longest = service.routes.values().map(|entry| entry.policy.unwrap_or(settings.retry).deadline).max();
        let holds = longest.unwrap_or_default() + MARGIN;
        let ask = ClaimDue { who: *who, most: LANES, holds, budget: settings.budget };
        while !stop.is_cancelled() {
            beat.working();
            let due = service.store.claim_due(&service.name, &ask).await?;
            if due.heads.is_empty() {
                let wait = due.next.unwrap_or(IDLE).clamp(Duration::from_millis(1), IDLE);
                let idle = async {
                    tokio::select! { () = parked.notified() => {}, () = tokio::time::sleep(wait) => {} }
                };
                stop.run_until_cancelled(idle).await;
                continue;
            }
            let lanes: Vec<BoxFuture<'_, Result<(), StoreError>>> =
                due.heads.into_iter().map(|head| Box::pin(self.run_lane(head)) as BoxFuture<'_, _>).collect();
            let mut ends = stream::iter(lanes).buffer_unordered(LANES as usize);
            let mut trouble = Ok(());
            while let Some(end) = ends.next().await {
                // the other lanes are brought to their end first
                trouble = trouble.and(end);
            }
            trouble?;
        }
        Ok(())
    }

    /// One head after the other, as long as they go well. A lane that is left in the middle is due again
    /// when its claim ends.
    async fn run_lane(&self, head: Parked) -> Result<(), StoreError> {
        let mut head = Some(head);
        while let Some(this) = head.take() {
            head = match self.attempt(&this).await? {
                Settled::Next(next) if !self.0.stop.is_cancelled() => Some(*next),
                // not begun: the attempt that was counted is not made
                Settled::Next(next) => return self.hand_back(&next).await,
                Settled::Rest => None,
                Settled::Fenced => {
                    tracing::warn!(service = %self.0.service.name, event = this.what, "it took longer than its claim; nothing of it is kept");
                    metrics::counter!("malote_fenced_total", "service" => self.0.service.name.to_string()).increment(1);
                    None
                }
            };
        }
        Ok(())
    }

    async fn attempt(&self, head: &Parked) -> Result<Settled, StoreError> {
        let Consumer { service, .. } = &self.0;
        if head.attempts > 1 {
            metrics::counter!("malote_retries_total", "consumer" => service.name.to_string()).increment(1);
        }
        let work = Work::parked(service, &head.lane, &head.what, head.record.clone());
        let policy = service.policy(work.kind());
        // more attempts begun than allowed: the last ones never came to an end
        let fault = if head.attempts > policy.attempts {
            Fault::of_class(Class::Final, "the process died, or was too slow, during the last attempt")
        } else {
            let mut conflicts = 0;
            loop {
                match self.run_head(&work, head).await {
                    Ok(settled) => return Ok(settled),
                    Err(Trouble::Message(fault)) if fault.is_conflict() && conflicts < 5 => conflicts += 1,
                    Err(Trouble::Message(fault)) => break fault,
                    Err(Trouble::Store(class, why)) => {
                        return Err(StoreError { doing: format!("retrying {}", head.what), class, source: why.into() });
                    }
                }
            }
        };
        self.after_failure(&work, head, &fault).await
    }

    /// The attempt itself, and what it did, in one transaction with the end of the parked message.
    async fn run_head(&self, work: &Work<'_, S>, head: &Parked) -> Result<Settled, Trouble> {
        let consumer = &self.0;
        let (service, store) = (&consumer.service, &consumer.service.store);
        match &work.task {
            Task::Hopeless(_, why) => Err(Trouble::Message(Fault::of_class(Class::Final, why))),
            Task::Handle(envelope, handler) => {
                let mut tx = consumer.begin().await?;
                let span = telemetry::process_span(envelope, &service.name, service.transport.system());
                tx.set_savepoint().await?;
                let out = consumer.react(&mut tx, envelope, *handler).instrument(span).await;
                match out {
                    Ok(out) => {
                        tx.end_savepoint(false).await?;
                        if !out.is_empty() {
                            tx.append(out).await.map_err(Trouble::at_commit)?;
                        }
                        self.settle(tx, head, &Ending::Done).await
                    }
                    Err(fault) if fault.is_conflict() => {
                        // what the rollback has to say matters less than why it came to it
                        let _ = tx.rollback().await;
                        Err(Trouble::Message(fault))
                    }
                    Err(fault) => {
                        tx.end_savepoint(true).await?;
                        let ending = self.ending(work, head, &fault);
                        self.tell_of(&mut tx, work, &ending).await?;
                        self.settle(tx, head, &ending).await
                    }
                }
            }
            Task::Call(envelope, effect) => {
                let note = consumer.call(envelope, *effect).await.map_err(Trouble::Message)?;
                let mut tx = store.begin(consumer.outbox.sealer(consumer.cause_of(envelope))).await?;
                consumer.write_down(&mut tx, note).await?;
                self.settle(tx, head, &Ending::Done).await
            }
        }
    }

    async fn after_failure(&self, work: &Work<'_, S>, head: &Parked, fault: &Fault) -> Result<Settled, StoreError> {
        let ending = self.ending(work, head, fault);
        let mut tx = self.0.service.store.begin(self.0.outbox.sealer(Cause::default())).await?;
        let trouble = |trouble: Trouble| StoreError {
            doing: format!("settling {}", head.what),
            class: trouble.class(),
            source: trouble.why().into(),
        };
        self.tell_of(&mut tx, work, &ending).await.map_err(trouble)?;
        self.settle(tx, head, &ending).await.map_err(trouble)
    }

    /// A saga that asked for what is given up is told so, in the transaction that gives it up.
    async fn tell_of(&self, tx: &mut S::Tx, work: &Work<'_, S>, ending: &Ending) -> Result<(), Trouble> {
        let Ending::Dead { dead, .. } = ending else { return Ok(()) };
        match self.0.tell_of(tx, work, dead) {
            Some(notice) => Ok(tx.append(vec![notice]).await?),
            None => Ok(()),
        }
    }

    /// What becomes of a head after an attempt that failed.
    fn ending(&self, work: &Work<'_, S>, head: &Parked, fault: &Fault) -> Ending {
        let service = &self.0.service;
        let policy = service.policy(work.kind());
        let (next, attempts) = fault.verdict(&policy, head.attempts, head.age);
        let mut history = head.history.clone();
        history.push(fault.entry(self.0.now(), head.attempts));
        match next {
            Next::Again(wait) => {
                tracing::warn!(service = %service.name, event = head.what, attempts, "tried again in {wait:?}: {}", fault.why);
                Ending::Again(Failed { class: fault.class, error: fault.why.clone(), attempts, history, wait })
            }
            Next::GiveUp => {
                tracing::warn!(service = %service.name, event = head.what, attempts, "dead letter: {}", fault.why);
                let mut dead = work.dead(&service.name, fault.class, &fault.why, attempts, history);
                dead.admission = head.admission;
                Ending::Dead { dead: Box::new(dead), hold: policy.then == Then::Hold }
            }
        }
    }

    /// The attempt was counted and is not made after all.
    async fn hand_back(&self, head: &Parked) -> Result<(), StoreError> {
        let (class, history) = (Class::Transient, head.history.clone());
        let error = "not begun: the service stopped".to_owned();
        let failed = Failed { class, error, attempts: head.attempts - 1, history, wait: Duration::ZERO };
        self.settle_alone(head, &Ending::Again(failed)).await.map(drop)
    }

    async fn settle_alone(&self, head: &Parked, ending: &Ending) -> Result<Settled, StoreError> {
        let tx = self.0.service.store.begin(self.0.outbox.sealer(Cause::default())).await?;
        self.settle(tx, head, ending).await.map_err(|trouble| StoreError {
            doing: format!("settling {}", head.what),
            class: trouble.class(),
            source: trouble.why().into(),
        })
    }

    async fn settle(&self, mut tx: S::Tx, head: &Parked, ending: &Ending) -> Result<Settled, Trouble> {
        let settled = self.0.service.store.settle(&mut tx, head, ending).await?;
        match settled {
            Settled::Fenced => tx.rollback().await?,
            _ => tx.commit().await.map_err(Trouble::at_commit)?,
        }
        if matches!((ending, &settled), (Ending::Done, Settled::Next(_) | Settled::Rest)) {
            self.0.count(1, 0);
        }
        Ok(settled)
    }
}
