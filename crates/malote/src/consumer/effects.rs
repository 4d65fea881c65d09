//! Effects: calls to the outside, with no transaction open.
//!
//! ```text
//!   known, or behind? ──neither──▶ call(event, key) ──▶ BEGIN · admit · record · append · COMMIT
//!                                                         ▲ the store is away │
//!                                                         └──── wait ◀────────┘
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
    Admission, Envelope, Failed, FullStore, History, IdempotencyKey, LaneState, Transaction, planted,
    retry::{Next, Then},
};
use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};
use tracing::Instrument;
use uuid::Uuid;

/// What is to become of an effect.
enum Sifted {
    Called,
    /// It came to its end before.
    Known,
    /// Its key is busy, and all of its run went behind.
    Behind,
}

impl<S: FullStore> Consumer<S> {
    /// One step in a lane: the first of these is called, or the handlers are run with which they begin. Says
    /// how many of them are dealt with. A lane has its place for a step only, so that one with much to do
    /// keeps no other waiting; and it asks anew each time, for another process may have been here.
    pub(super) async fn step(&self, run: &[Work<'_, S>]) -> ControlFlow<(), usize> {
        let Some(first) = run.first() else { return ControlFlow::Continue(0) };
        // else it could not be told which one a process died over
        let _alone =
            if first.blamed && !planted::is("suspects-together") { Some(self.alone.acquire().await) } else { None };
        let _place = self.places.acquire().await;
        if self.stop.is_cancelled() && !planted::is("stop-begins-calls") {
            return ControlFlow::Break(());
        }
        if first.is_effect() {
            return self.call_in_turn(run).await;
        }
        let like_it = |work: &&Work<'_, S>| !work.is_effect() && work.blamed == first.blamed;
        let handlers = run.iter().take_while(like_it).count();
        self.handle_all(&run[..handlers]).await?;
        ControlFlow::Continue(handlers)
    }

    /// Calls the first of these, unless it is known. When it fails it is parked with the others behind it,
    /// and all go behind where their key is busy.
    async fn call_in_turn(&self, run: &[Work<'_, S>]) -> ControlFlow<(), usize> {
        match self.until_it_works(|| Box::pin(self.sift(run))).await? {
            Sifted::Called => {}
            Sifted::Known => return ControlFlow::Continue(1),
            Sifted::Behind => return ControlFlow::Continue(run.len()),
        }
        let work = &run[0];
        let deadly = match work.suspect {
            true => self.until_it_works(|| Box::pin(self.deadly(work))).await?,
            false => None,
        };
        let fault = match deadly {
            None => self.call_first(work).await?,
            deadly => deadly,
        };
        if !planted::is("calls-without-beat") {
            self.beat.advanced();
        }
        let Some(fault) = fault else { return ControlFlow::Continue(1) };
        let parked = self.until_it_works(|| Box::pin(self.set_back(run, &fault))).await?;
        ControlFlow::Continue(if parked { run.len() } else { 1 })
    }

    /// Those that are to wait are parked in the transaction that saw their lane busy and keeps it so.
    async fn sift(&self, run: &[Work<'_, S>]) -> Result<Sifted, Trouble> {
        let (store, name, first) = (&self.service.store, &*self.service.name, &run[0]);
        let id: Vec<Admission> = first.admission().into_iter().collect();
        if store.seen(name, &id).await? == [true] && !planted::is("calls-what-is-known") {
            self.count(0, 1);
            return Ok(Sifted::Known);
        }
        let mut tx = self.begin().await?;
        let lanes = self.lanes(&mut tx, std::iter::once(&first.lane)).await?;
        if lanes.get(&first.lane) == Some(&LaneState::Busy) {
            self.park_run(tx, run, None).await?;
            return Ok(Sifted::Behind);
        }
        tx.rollback().await?;
        Ok(Sifted::Called)
    }

    /// The first attempt at one effect: the fault, if it had one. What the call came to is kept while the store
    /// is away; a second call is made only if it was lost with the transaction that was to write it down.
    async fn call_first(&self, work: &Work<'_, S>) -> ControlFlow<(), Option<Fault>> {
        let Task::Call(envelope, effect) = &work.task else { return ControlFlow::Continue(None) };
        let (mut note, mut stalls) = (None, 0);
        loop {
            if note.is_none() {
                match self.call(envelope, *effect).await {
                    Ok(came) => note = Some(came),
                    Err(fault) => return ControlFlow::Continue(Some(fault)),
                }
            }
            loop {
                match self.record(work, envelope, &mut note).await {
                    Ok(true) => return ControlFlow::Continue(None),
                    Ok(false) => break,
                    Err(Trouble::Message(fault)) => return ControlFlow::Continue(Some(fault)),
                    Err(away) => {
                        stalls += 1;
                        let wait = self.service.settings.backoff.wait(stalls, fastrand::f64());
                        self.stalled(&away, wait).await?;
                    }
                }
                if planted::is("outcome-forgotten") {
                    note = None;
                    break;
                }
            }
        }
    }

    /// After a failure: the first of these is parked with the rest behind it (true); or it is given up, or
    /// another process has dealt with it (false).
    async fn set_back(&self, run: &[Work<'_, S>], fault: &Fault) -> Result<bool, Trouble> {
        let first = &run[0];
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
        self.park_run(self.begin().await?, run, Some(failed)).await
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

    /// Writes down what came of a call, once; false if nothing is left of it to be written down.
    async fn record(
        &self,
        work: &Work<'_, S>,
        envelope: &Envelope,
        note: &mut Option<Note<S>>,
    ) -> Result<bool, Trouble> {
        let (store, name) = (&self.service.store, &*self.service.name);
        let mut tx = self.begin_writing(envelope).await?;
        let is_new = store.admit(&mut tx, name, &[Admission::of(envelope)]).await? == [true];
        if is_new {
            let lanes = self.lanes(&mut tx, std::iter::once(&work.lane)).await?;
            let Some(note) = note.take() else {
                tx.rollback().await?;
                return Ok(false);
            };
            self.write_down(&mut tx, note).await?;
            if lanes.get(&work.lane) == Some(&LaneState::Passing) {
                let passed = store.pass(&mut tx, name, std::slice::from_ref(&work.lane)).await;
                passed.map_err(Trouble::after_handler)?;
            }
        }
        if work.suspect {
            store.runs_ended(&mut tx, name, &[work.what()]).await.map_err(Trouble::after_handler)?;
        }
        tx.commit().await.map_err(|error| Trouble::at_commit(store, error))?;
        self.count(u64::from(is_new), u64::from(!is_new));
        Ok(true)
    }

    /// A transaction in which it can be written down what came of a call.
    pub(super) async fn begin_writing(&self, envelope: &Envelope) -> Result<S::Tx, Trouble> {
        Ok(self.begin_for(self.cause_of(envelope)).await?)
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

/// Names the intention, the same for every attempt.
fn operation(consumer: &str, envelope: &Envelope) -> IdempotencyKey {
    IdempotencyKey(Uuid::new_v5(&envelope.id, format!("{consumer}\n{}", envelope.kind).as_bytes()).to_string())
}
