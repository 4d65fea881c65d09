//! Effects: calls to the outside, with no transaction open.
//!
//! ```text
//!   known, or behind? ──neither──▶ call(event, key) ──▶ BEGIN · admit · record · append · COMMIT
//! ```
//!
//! A process that dies between the call and the commit calls again, with the same key. Keys go on
//! side by side (underway.rs); the events of one key keep their order.

use super::{
    Consumer,
    work::{Fault, Task, Trouble, Work},
};
use crate::{
    service::{Call, Note},
    telemetry,
};
use malote_core::{
    Admission, Envelope, Failed, FullStore, History, IdempotencyKey, LaneState, Store, Transaction,
    retry::{Next, Then},
};
use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};
use tracing::Instrument;
use uuid::Uuid;

impl<S: FullStore> Consumer<S> {
    /// Deals with records of one lane, in order.
    pub(super) async fn in_turn(&self, run: Vec<Work<'_, S>>) -> ControlFlow<()> {
        for run in alike(run) {
            match run[0].is_effect() {
                true => {
                    let sifted = self.sift_all(&run).await?;
                    let fresh = run.into_iter().zip(sifted).filter(|(_, fresh)| *fresh).map(|(work, _)| work);
                    self.call_lane(fresh.collect()).await?;
                }
                false => self.handle_all(&run).await?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Says of each effect whether it is to be called: not if it is known, nor if its key is busy, behind
    /// which it goes.
    pub(super) async fn sift_all(&self, run: &[Work<'_, S>]) -> ControlFlow<(), Vec<bool>> {
        self.until_it_works(|| Box::pin(self.sift(run))).await
    }

    /// Those that are to wait are parked in the transaction that saw their lanes busy and keeps them so.
    async fn sift(&self, run: &[Work<'_, S>]) -> Result<Vec<bool>, Trouble> {
        let (store, name) = (&self.service.store, &*self.service.name);
        let ids: Vec<Admission> = run.iter().filter_map(Work::admission).collect();
        let fresh: Vec<bool> = store.seen(name, &ids).await?.into_iter().map(|seen| !seen).collect();
        self.count(0, fresh.iter().filter(|fresh| !**fresh).count() as u64);
        let mut tx = self.begin().await?;
        let lanes = self.lanes(&mut tx, run.iter().map(|work| &work.lane)).await?;
        let is_free = |work: &Work<'_, S>| lanes.get(&work.lane) != Some(&LaneState::Busy);
        let behind: Vec<&Work<'_, S>> =
            run.iter().zip(&fresh).filter(|(work, fresh)| **fresh && !is_free(work)).map(|(work, _)| work).collect();
        if behind.is_empty() {
            tx.rollback().await?;
            return Ok(fresh);
        }
        let ids: Vec<Admission> = behind.iter().filter_map(|work| work.admission()).collect();
        let new = store.admit(&mut tx, name, &ids).await?;
        let letters: Vec<_> = behind.iter().zip(new).filter(|(_, new)| *new).map(|(work, _)| work.park(None)).collect();
        store.park(&mut tx, name, &letters).await?;
        tx.commit().await?;
        self.parked.notify_one();
        Ok(run.iter().zip(fresh).map(|(work, fresh)| fresh && is_free(work)).collect())
    }

    /// The effects of one key, in order. When one fails it is parked, and the rest behind it. What has not
    /// begun at a stop is left.
    pub(super) async fn call_lane(&self, lane: Vec<Work<'_, S>>) -> ControlFlow<()> {
        for (n, work) in lane.iter().enumerate() {
            if self.stop.is_cancelled() && !malote_core::planted::is("stop-begins-calls") {
                return ControlFlow::Break(());
            }
            let deadly = match work.suspect {
                true => self.until_it_works(|| Box::pin(self.deadly(work))).await?,
                false => None,
            };
            let mut stalls = 0;
            let fault = loop {
                if deadly.is_some() {
                    break deadly;
                }
                match self.call_first(work).await {
                    Ok(None) => break None,
                    Ok(Some(fault)) => break Some(fault),
                    Err(away) => {
                        stalls += 1;
                        let wait = self.service.settings.backoff.wait(stalls, fastrand::f64());
                        self.stalled(&away, wait).await?;
                    }
                }
            };
            if !malote_core::planted::is("calls-without-beat") {
                self.beat.advanced();
            }
            let Some(fault) = fault else { continue };
            let parked = self.until_it_works(|| Box::pin(self.set_back(&lane[n..], &fault))).await?;
            if parked {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// The first attempt at one effect: the fault, if it had one. Fails only with trouble of the store.
    async fn call_first(&self, work: &Work<'_, S>) -> Result<Option<Fault>, Trouble> {
        let Task::Call(envelope, effect) = &work.task else { return Ok(None) };
        let note = match self.call(envelope, *effect).await {
            Ok(note) => note,
            Err(fault) => return Ok(Some(fault)),
        };
        match self.record(work, envelope, note).await {
            Ok(()) => Ok(None),
            Err(Trouble::Message(fault)) => Ok(Some(fault)),
            Err(away) => Err(away),
        }
    }

    /// After a failure: the first of these is parked with the rest behind it (true), or given up (false).
    async fn set_back(&self, rest: &[Work<'_, S>], fault: &Fault) -> Result<bool, Trouble> {
        let Some(first) = rest.first() else { return Ok(false) };
        let policy = self.service.policy(first.kind());
        let (next, attempts) = fault.verdict(&policy, 1, Duration::ZERO);
        let wait = match next {
            Next::GiveUp if policy.then == Then::GoOn => {
                self.after_failure(first, fault).await?;
                return Ok(false);
            }
            Next::GiveUp => Duration::ZERO,
            Next::Again(wait) => wait,
        };
        let mut history = History::default();
        history.push(fault.entry(self.now(), 1));
        tracing::warn!(service = %self.service.name, event = first.what(), "parked, tried again in {wait:?}: {}", fault.why);
        let failed = Failed { class: fault.class, error: fault.why.clone(), attempts, history, wait };
        self.park_run(rest, Some(failed)).await?;
        Ok(true)
    }

    /// Calls the outside, within its time.
    pub(super) async fn call(&self, envelope: &Envelope, effect: &dyn Call<S>) -> Result<Note<S>, Fault> {
        let span = telemetry::process_span(envelope, &self.service.name, self.service.transport.system());
        let called = async {
            self.guarded(envelope)?;
            let key = operation(&self.service.name, envelope);
            self.within(envelope, effect.call(envelope, key)).await
        };
        let begun = Instant::now();
        let outcome = called.instrument(span).await.map_err(|failure| Fault::of(&self.service.store, failure));
        self.processed(envelope, begun, &outcome);
        outcome
    }

    /// Writes down what came of a call, once.
    async fn record(&self, work: &Work<'_, S>, envelope: &Envelope, note: Note<S>) -> Result<(), Trouble> {
        let (store, name) = (&self.service.store, &*self.service.name);
        let mut tx = self.begin_for(self.cause_of(envelope)).await?;
        let is_new = store.admit(&mut tx, name, &[Admission::of(envelope)]).await? == [true];
        if is_new {
            let lanes = self.lanes(&mut tx, std::iter::once(&work.lane)).await?;
            self.write_down(&mut tx, note).await?;
            if lanes.get(&work.lane) == Some(&LaneState::Passing) {
                let passed = store.pass(&mut tx, name, std::slice::from_ref(&work.lane)).await;
                passed.map_err(Trouble::after_handler)?;
            }
        }
        if work.suspect {
            store.run_ended(&mut tx, name, &work.what()).await.map_err(Trouble::after_handler)?;
        }
        tx.commit().await.map_err(|error| Trouble::at_commit(store, error))?;
        self.count(u64::from(is_new), u64::from(!is_new));
        Ok(())
    }

    /// Runs what an effect left to be written down.
    pub(super) async fn write_down(&self, tx: &mut S::Tx, note: Note<S>) -> Result<(), Trouble> {
        let out = note(tx).await.map_err(|failure| Trouble::Message(Fault::of(&self.service.store, failure)))?;
        if !out.is_empty() {
            tx.append(out).await.map_err(Trouble::after_handler)?;
        }
        Ok(())
    }
}

/// Handlers and effects, each among their like, in order.
pub(super) fn alike<S: Store>(works: Vec<Work<'_, S>>) -> Vec<Vec<Work<'_, S>>> {
    let mut runs: Vec<Vec<Work<'_, S>>> = Vec::new();
    for work in works {
        match runs.last_mut() {
            Some(run) if run[0].is_effect() == work.is_effect() => run.push(work),
            _ => runs.push(vec![work]),
        }
    }
    runs
}

/// Names the intention, the same for every attempt.
fn operation(consumer: &str, envelope: &Envelope) -> IdempotencyKey {
    IdempotencyKey(Uuid::new_v5(&envelope.id, format!("{consumer}\n{}", envelope.kind).as_bytes()).to_string())
}
