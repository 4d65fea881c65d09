//! The next attempt at what is parked.
//!
//! ```text
//!   claim lanes that are due (the attempt is counted) ──▶ BEGIN · run their heads · settle each · COMMIT
//!        ▲                                                     ▲                               │
//!        └── nothing due: wait ◀───────────────────────────────┴── the next ones of those lanes, if any
//! ```
//!
//! Any number of processes do this at once: a lane is claimed by one of them, for longer than an
//! attempt may take, and whoever outlives its claim is fenced when it wants to settle.
//!
//! The heads of several lanes share a transaction, as a batch of the consumer does, so that what waits
//! costs the others no commit for each message. One head of a lane at a time: the next one was counted by
//! the commit before it. What goes wrong with all of them is done again lane by lane, side by side; so is
//! what is left when the shared transaction has taken its time. Effects are always side by side, and what
//! is under way so keeps no other lane waiting.

use super::{
    Consumer,
    apart::undo,
    work::{Fault, Task, Trouble, Work},
};
use crate::{service::Service, supervise::Beat, telemetry};
use futures::{StreamExt, stream::FuturesUnordered};
use malote_core::{
    BoxFuture, ClaimDue, Class, Ending, Envelope, Failed, FullStore, Incarnation, Parked, Settled, Store, StoreError,
    Transaction, planted,
    retry::{Next, Then},
};
use std::{
    future::Future,
    ops::ControlFlow,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;
use tracing::Instrument;

/// Lanes that are claimed in one go, and run together.
const LANES: usize = 16;
/// A transaction that is shared begins no further attempt after this.
const SHARED: Duration = Duration::from_millis(100);
/// What comes due within so long of each other is claimed in one go: each claim is a commit.
const GATHER: Duration = Duration::from_millis(20);
/// Longest wait between two looks.
const IDLE: Duration = Duration::from_secs(1);
/// A claim outlasts an attempt by this.
const MARGIN: Duration = Duration::from_secs(30);

/// A head that was claimed, and what it is for.
struct Turn<'s, S: Store> {
    head: Parked,
    work: Work<'s, S>,
}

impl<'s, S: Store> Turn<'s, S> {
    fn new(service: &'s Service<S>, head: Parked) -> Self {
        let work = Work::parked(service, &head.lane, &head.what, head.record.clone());
        Self { head, work }
    }
}

/// Lanes that are retried each for itself, while others are claimed.
struct Lanes<'r>(FuturesUnordered<BoxFuture<'r, Result<(), StoreError>>>, Result<(), StoreError>);

impl<'r> Lanes<'r> {
    fn begin<S: FullStore>(&mut self, retrier: &'r Retrier<S>, turns: impl IntoIterator<Item = Turn<'r, S>>) {
        self.0.extend(turns.into_iter().map(|turn| Box::pin(retrier.run_lane(turn.head)) as BoxFuture<'_, _>));
    }

    /// Waits for the end of one; false if none is under way.
    async fn ended(&mut self) -> bool {
        let Some(end) = self.0.next().await else { return false };
        if let Err(error) = end {
            self.1 = Err(error);
        }
        true
    }

    /// Does something while what is under way goes on.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! { biased; done = &mut work => return done, true = self.ended() => {} }
        }
    }
}

/// Retries what is parked for one service in one process.
pub(crate) struct Retrier<S: Store>(Consumer<S>);

impl<S: FullStore> Retrier<S> {
    pub(crate) fn new(service: Arc<Service<S>>, who: Incarnation, beat: Beat, parked: Arc<Notify>) -> Self {
        Self(Consumer::new(service, who, beat, parked))
    }

    /// Runs until stopped; an error of the store ends it, and its supervisor starts it again.
    pub(crate) async fn run(&self) -> Result<(), StoreError> {
        let mut lanes = Lanes(FuturesUnordered::new(), Ok(()));
        let ended = self.claim_on(&mut lanes).await;
        // the other lanes are brought to their end first
        while lanes.ended().await {}
        ended.and(lanes.1)
    }

    async fn claim_on<'r>(&'r self, lanes: &mut Lanes<'r>) -> Result<(), StoreError> {
        let Consumer { service, who, beat, stop, parked, .. } = &self.0;
        let settings = &service.settings;
        // the last attempt of a shared transaction, then one of those for which there was no time
        let holds = service.longest() * 2 + MARGIN;
        // a lane is claimed when there is a place for it: its claim does not wait
        let places = match service.calls() && !planted::is("retries-unlimited") {
            true => settings.effects.min(LANES),
            false => LANES,
        };
        while !stop.is_cancelled() && lanes.1.is_ok() {
            beat.working();
            let begun = Instant::now();
            let most = places.saturating_sub(lanes.0.len());
            if most == 0 {
                lanes.ended().await;
                continue;
            }
            let ask = ClaimDue { who: *who, most: most as u32, holds, budget: settings.budget };
            let due = lanes.meanwhile(service.store.claim_due(&service.name, &ask)).await?;
            if due.heads.is_empty() {
                let wait = due.next.unwrap_or(IDLE).clamp(GATHER, IDLE);
                let idle = async {
                    tokio::select! { () = parked.notified() => {}, () = tokio::time::sleep(wait) => {} }
                };
                lanes.meanwhile(stop.run_until_cancelled(idle)).await;
                continue;
            }
            let again_soon = due.heads.len() < most;
            let again = due.heads.iter().filter(|head| head.attempts > 1).count();
            metrics::counter!("malote_retries_total", "consumer" => service.name.to_string()).increment(again as u64);
            let turns = due.heads.into_iter().map(|head| Turn::new(service, head));
            let (effects, handlers): (Vec<_>, Vec<_>) = turns.partition(|turn| turn.work.is_effect());
            lanes.begin(self, effects);
            self.together(handlers, lanes).await?;
            while planted::is("retries-wait-for-calls") && lanes.ended().await {}
            if again_soon {
                let gather = tokio::time::sleep(GATHER.saturating_sub(begun.elapsed()));
                lanes.meanwhile(stop.run_until_cancelled(gather)).await;
            }
        }
        Ok(())
    }

    /// The heads of these lanes in one transaction, then their next ones in another, until none is left but
    /// those that go on each for itself.
    async fn together<'r>(&'r self, mut turns: Vec<Turn<'r, S>>, lanes: &mut Lanes<'r>) -> Result<(), StoreError> {
        // in the order in which a consumer locks lanes, so that they never wait in a circle
        turns.sort_by(|a, b| a.head.lane.cmp(&b.head.lane));
        while !turns.is_empty() {
            self.0.beat.advanced();
            let settled = lanes.meanwhile(async {
                match self.attempt_all(&turns, false).await {
                    Err(Trouble::Message(_)) => self.attempt_all(&turns, true).await,
                    done => done,
                }
            });
            // nothing was kept: lane by lane it can be told what was wrong with which
            let Ok(settled) = settled.await else {
                lanes.begin(self, turns);
                return Ok(());
            };
            let late = turns.split_off(settled.len());
            let next = settled.into_iter().zip(&turns).filter_map(|(settled, turn)| self.next(settled, &turn.head));
            let next: Vec<Parked> = next.collect();
            lanes.begin(self, late);
            if self.0.stop.is_cancelled() {
                for head in &next {
                    lanes.meanwhile(self.hand_back(head)).await?;
                }
                return Ok(());
            }
            let next = next.into_iter().map(|head| Turn::new(&self.0.service, head));
            let (effects, handlers) = next.partition::<Vec<_>, _>(|turn| turn.work.is_effect());
            lanes.begin(self, effects);
            turns = handlers;
        }
        Ok(())
    }

    /// One head after the other, as long as they go well. A lane that is left in the middle is due again
    /// when its claim ends.
    async fn run_lane(&self, head: Parked) -> Result<(), StoreError> {
        let mut head = Some(head);
        while let Some(this) = head.take() {
            let settled = tokio::select! {
                biased;
                settled = self.attempt(&this) => settled?,
                // there is no more time: it is no attempt
                () = self.0.time_is_up() => return self.hand_back(&this).await,
            };
            self.0.beat.advanced();
            head = match self.next(settled, &this) {
                // not begun: the attempt that was counted is not made
                Some(next) if self.0.stop.is_cancelled() => return self.hand_back(&next).await,
                next => next,
            };
        }
        Ok(())
    }

    /// What is at the head of a lane after an attempt.
    fn next(&self, settled: Settled, this: &Parked) -> Option<Parked> {
        match settled {
            Settled::Next(next) => Some(*next),
            Settled::Rest => None,
            Settled::Fenced => {
                let service = &self.0.service.name;
                tracing::warn!(%service, event = this.what, "it took longer than its claim; nothing of it is kept");
                metrics::counter!("malote_fenced_total", "service" => service.to_string()).increment(1);
                None
            }
        }
    }

    async fn attempt(&self, head: &Parked) -> Result<Settled, StoreError> {
        let turn = Turn::new(&self.0.service, head.clone());
        let mut conflicts = 0;
        let fault = loop {
            match self.run_head(&turn).await {
                Ok(settled) => return Ok(settled),
                Err(Trouble::Message(fault)) if fault.is_conflict() && conflicts < 5 => conflicts += 1,
                Err(Trouble::Message(fault)) => break fault,
                Err(Trouble::Store(class, why)) => {
                    return Err(StoreError { doing: format!("retrying {}", head.what), class, source: why.into() });
                }
            }
        };
        let ending = self.ending(&turn.work, head, &fault);
        self.settle_alone(&turn.work, head, &ending).await
    }

    /// For the saga that asked for what is given up; in the transaction that gives it up.
    fn notice(&self, tx: &mut S::Tx, work: &Work<'_, S>, ending: &Ending) -> Option<Envelope> {
        match ending {
            Ending::Dead { dead, .. } => self.0.tell_of(tx, work, dead),
            _ => None,
        }
    }

    /// The attempt itself, and what it did, in one transaction with the end of the parked message.
    async fn run_head(&self, turn: &Turn<'_, S>) -> Result<Settled, Trouble> {
        let (consumer, Turn { head, work }) = (&self.0, turn);
        if let (Task::Call(envelope, effect), None) = (&work.task, self.hopeless(turn)) {
            let note = consumer.call(envelope, *effect).await.map_err(Trouble::Message)?;
            // kept while the store is away
            let begin = || Box::pin(consumer.begin_writing(envelope)) as BoxFuture<'_, _>;
            let ControlFlow::Continue(mut tx) = consumer.until_it_works(begin).await else {
                return Err(Trouble::Store(Class::Transient, "it stopped while the store was away".into()));
            };
            consumer.write_down(&mut tx, note).await?;
            return self.settle(tx, head, &Ending::Done).await;
        }
        let mut settled = self.attempt_all(std::slice::from_ref(turn), true).await?;
        Ok(settled.pop().unwrap_or(Settled::Fenced))
    }

    /// The heads of several lanes in one transaction, each in a savepoint where they are kept `apart` and
    /// where it has failed before; what became of the first ones, as many as there was time for.
    async fn attempt_all(&self, turns: &[Turn<'_, S>], apart: bool) -> Result<Vec<Settled>, Trouble> {
        let mut tx = self.0.begin().await?;
        let done = self.try_all(&mut tx, turns, apart).await;
        match done {
            Ok((settled, handled)) if !settled.iter().any(|one| matches!(one, Settled::Fenced)) => {
                tx.commit().await.map_err(|error| Trouble::at_commit(&self.0.service.store, error))?;
                self.0.count(handled, 0);
                Ok(settled)
            }
            // what the rollback has to say matters less than why it came to it
            done => {
                let _ = tx.rollback().await;
                match done? {
                    (settled, _) if turns.len() == 1 => Ok(settled),
                    _ => Err(Trouble::Store(Class::Conflict, "a claim was over".into())),
                }
            }
        }
    }

    /// The handlers first, then the ends, so that lanes are locked for a moment only.
    async fn try_all(
        &self,
        tx: &mut S::Tx,
        turns: &[Turn<'_, S>],
        apart: bool,
    ) -> Result<(Vec<Settled>, u64), Trouble> {
        let (begun, mut endings, mut out) = (Instant::now(), Vec::new(), Vec::new());
        for turn in turns {
            if !endings.is_empty() && begun.elapsed() > SHARED {
                break;
            }
            let ending = match self.react(tx, turn, apart || turn.head.attempts > 1).await? {
                Ok(said) => {
                    out.extend(said);
                    Ending::Done
                }
                Err(fault) => self.ending(&turn.work, &turn.head, &fault),
            };
            out.extend(self.notice(tx, &turn.work, &ending));
            endings.push(ending);
        }
        if !out.is_empty() {
            tx.append(out).await.map_err(Trouble::after_handler)?;
        }
        let mut settled = Vec::new();
        for (turn, ending) in turns.iter().zip(&endings) {
            let one = self.0.service.store.settle(tx, &turn.head, ending).await;
            settled.push(one.map_err(Trouble::after_handler)?);
        }
        let handled = endings.iter().filter(|ending| matches!(ending, Ending::Done)).count();
        Ok((settled, handled as u64))
    }

    /// What a head has to say, or how it failed in a savepoint of its own. What fails without one, and
    /// what met another transaction, is everybody's.
    async fn react(
        &self,
        tx: &mut S::Tx,
        turn: &Turn<'_, S>,
        apart: bool,
    ) -> Result<Result<Vec<Envelope>, Fault>, Trouble> {
        let (consumer, Turn { work, .. }) = (&self.0, turn);
        let service = &consumer.service;
        if let Some(fault) = self.hopeless(turn) {
            return Ok(Err(fault));
        }
        let Task::Handle(envelope, handler) = &work.task else {
            return Ok(Err(Fault::of_class(Class::Transient, "an effect is called with no transaction open")));
        };
        let span = telemetry::process_span(envelope, &service.name, service.transport.system());
        if !apart {
            return consumer.react(tx, envelope, *handler).instrument(span).await.map(Ok).map_err(Trouble::Message);
        }
        tx.set_savepoint().await.map_err(Trouble::after_handler)?;
        let outcome = consumer.react(tx, envelope, *handler).instrument(span).await;
        match &outcome {
            Err(fault) if fault.is_conflict() => return outcome.map(Ok).map_err(Trouble::Message),
            Err(fault) => undo(tx, fault).await?,
            Ok(_) => {}
        }
        Ok(outcome)
    }

    /// Why nothing is to be tried, if so.
    fn hopeless(&self, turn: &Turn<'_, S>) -> Option<Fault> {
        let Turn { head, work } = turn;
        if let Task::Hopeless(_, why) = &work.task {
            return Some(Fault::of_class(Class::Final, why));
        }
        // more attempts begun than allowed: the last ones never came to an end
        let over = head.attempts > self.0.service.policy(work.kind()).attempts;
        over.then(|| Fault::of_class(Class::Final, "the process died, or was too slow, during the last attempt"))
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
        let turn = Turn::new(&self.0.service, head.clone());
        self.settle_alone(&turn.work, head, &Ending::Again(failed)).await.map(drop)
    }

    async fn settle_alone(&self, work: &Work<'_, S>, head: &Parked, ending: &Ending) -> Result<Settled, StoreError> {
        let mut tx = self.0.begin().await?;
        if let Some(notice) = self.notice(&mut tx, work, ending) {
            tx.append(vec![notice]).await?;
        }
        self.settle(tx, head, ending).await.map_err(|trouble| StoreError {
            doing: format!("settling {}", head.what),
            class: trouble.class(),
            source: trouble.why().into(),
        })
    }

    async fn settle(&self, mut tx: S::Tx, head: &Parked, ending: &Ending) -> Result<Settled, Trouble> {
        let store = &self.0.service.store;
        let settled = store.settle(&mut tx, head, ending).await.map_err(Trouble::after_handler)?;
        match settled {
            Settled::Fenced => tx.rollback().await?,
            _ => tx.commit().await.map_err(|error| Trouble::at_commit(store, error))?,
        }
        if matches!((ending, &settled), (Ending::Done, Settled::Next(_) | Settled::Rest)) {
            self.0.count(1, 0);
        }
        Ok(settled)
    }
}
