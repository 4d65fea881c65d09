//! A batch of handlers, in one transaction: as they come, or kept apart from each other after a failure.

use super::{
    Consumer, DEATHS,
    apart::{Came, Member},
    work::{Fault, Task, Trouble, Work},
};
use crate::{
    saga,
    service::Handle,
    telemetry::{self, metrics::messaging},
};
use futures::FutureExt;
use malote_core::{
    Admission, Cause, Class, Dead, Envelope, Failed, Failure, FullStore, History, Lane, LaneState, Outcome, ToPark,
    Transaction,
    isolation::{Isolation, Next},
    retry,
};
use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    future::Future,
    ops::ControlFlow,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

/// What a transaction came to.
#[derive(Default)]
struct Tally {
    handled: u64,
    duplicates: u64,
    parked: bool,
}

/// What is to be written when the handlers of a transaction have run.
#[derive(Default)]
pub(super) struct Written {
    pub(super) out: Vec<Envelope>,
    pub(super) park: Vec<ToPark>,
    pub(super) dead: Vec<Dead>,
    passing: Vec<Lane>,
    handled: u64,
    /// The lanes that are not free, as they are by now.
    pub(super) lanes: HashMap<Lane, LaneState>,
}

impl Written {
    /// What came of members that did not fail.
    pub(super) fn take(&mut self, came: Vec<Came>) {
        for came in came {
            match came {
                Came::Behind(letter) => self.park.push(*letter),
                Came::Handled(out, passing) => {
                    self.out.extend(out);
                    self.passing.extend(passing);
                    self.handled += 1;
                }
            }
        }
    }
}

impl<S: FullStore> Consumer<S> {
    /// Deals with a run of members, each of which ends up handled, parked or given up.
    pub(super) async fn handle_all(&self, run: &[Work<'_, S>]) -> ControlFlow<()> {
        let blamed = run.iter().any(|work| work.blamed);
        let mut isolation = if blamed { Isolation::one_by_one(run.len()) } else { Isolation::of(run.len()) };
        let suspects: Vec<String> = run.iter().filter(|work| work.suspect).map(Work::what).collect();
        if !blamed && !suspects.is_empty() && !malote_core::planted::is("suspects-uncounted") {
            self.until_it_works(|| Box::pin(self.runs_begin(&suspects))).await?;
        }
        let mut begun = None;
        loop {
            let (part, apart) = match isolation.next() {
                Next::Done => return ControlFlow::Continue(()),
                Next::Together(part) => (part, false),
                Next::Apart(part) => (part, true),
            };
            let first = part.start;
            let again = begun.replace(first) == Some(first);
            self.beat.advanced();
            match self.deal_with(&run[part], apart, again).await {
                Ok(()) => isolation.dealt_with(),
                Err(trouble) if trouble.class() == Class::Conflict && isolation.conflicted() => {}
                Err(Trouble::Message(fault)) => {
                    tracing::debug!(service = %self.service.name, "a batch did not go through: {}", fault.why);
                    if !isolation.failed() {
                        // a single one, at its COMMIT
                        let work = &run[first];
                        self.until_it_works(|| Box::pin(self.after_failure(work, &fault))).await?;
                        isolation.dealt_with();
                    }
                }
                Err(away) => {
                    let wait = isolation.stalled(&self.service.settings.backoff, fastrand::f64());
                    self.stalled(&away, wait).await?;
                }
            }
        }
    }

    /// One transaction. A run of a blamed one that begins `again`, because the store was away, was counted before.
    async fn deal_with(&self, part: &[Work<'_, S>], apart: bool, again: bool) -> Result<(), Trouble> {
        if let [work] = part
            && work.blamed
            && !again
            && let Some(fault) = self.deadly(work).await?
        {
            return self.give_up(work, &fault, DEATHS, History::default()).await;
        }
        self.attempt(part, apart).await
    }

    /// Counts runs that are about to begin.
    async fn runs_begin(&self, what: &[String]) -> Result<Vec<u32>, Trouble> {
        Ok(self.service.store.runs_begin(&self.service.name, what).await?)
    }

    /// Counts a run that is about to begin, and says so when too many have begun and never ended.
    pub(super) async fn deadly(&self, work: &Work<'_, S>) -> Result<Option<Fault>, Trouble> {
        let runs = self.runs_begin(&[work.what()]).await?[0];
        let why = || format!("the process died {} times while it handled this", runs - 1);
        Ok((runs > DEATHS).then(|| Fault::of_class(Class::Final, &why())))
    }

    /// What becomes of a message after its first attempt.
    pub(super) fn sentence(&self, work: &Work<'_, S>, fault: &Fault) -> Sentence {
        let policy = self.service.policy(work.kind());
        let (next, attempts) = fault.verdict(&policy, 1, Duration::ZERO);
        let mut history = History::default();
        history.push(fault.entry(self.now(), 1));
        let wait = match next {
            retry::Next::Again(wait) => wait,
            // a key that is to be held has its message tried once more, from its lane, and held there
            retry::Next::GiveUp if policy.then == retry::Then::Hold && work.envelope().is_some() => Duration::ZERO,
            retry::Next::GiveUp => {
                let attempts = attempts.max(1);
                tracing::warn!(service = %self.service.name, event = work.what(), attempts, "dead letter: {}", fault.why);
                let dead = work.dead(&self.service.name, fault.class, &fault.why, attempts, history);
                return Sentence::Dead(Box::new(dead));
            }
        };
        tracing::warn!(service = %self.service.name, event = work.what(), "parked, tried again in {wait:?}: {}", fault.why);
        Sentence::Park(Failed { class: fault.class, error: fault.why.clone(), attempts, history, wait })
    }

    /// Parks a message after its first attempt, or gives it up, in a transaction of its own.
    pub(super) async fn after_failure(&self, work: &Work<'_, S>, fault: &Fault) -> Result<(), Trouble> {
        match self.sentence(work, fault) {
            Sentence::Park(failed) => {
                self.park_run(self.begin().await?, std::slice::from_ref(work), Some(failed)).await.map(drop)
            }
            Sentence::Dead(dead) => self.set_aside(work, &dead).await,
        }
    }

    /// Parks members of one lane in their order, the first with its setback, in this transaction, and ends it.
    /// False if the one that failed is known by now: whoever dealt with it meanwhile says what becomes of the
    /// others.
    pub(super) async fn park_run(
        &self,
        mut tx: S::Tx,
        run: &[Work<'_, S>],
        setback: Option<Failed>,
    ) -> Result<bool, Trouble> {
        let store = &self.service.store;
        let admissions: Vec<Admission> = run.iter().filter_map(Work::admission).collect();
        let mut new = store.admit(&mut tx, &self.service.name, &admissions).await?.into_iter();
        let fresh: Vec<bool> = run.iter().map(|work| work.admission().is_none() || new.next() == Some(true)).collect();
        if setback.is_some() && fresh.first() == Some(&false) {
            tx.rollback().await?;
            let mut tx = self.begin().await?;
            self.runs_ended(&mut tx, &run[..1]).await?;
            tx.commit().await?;
            return Ok(false);
        }
        let mut setback = setback;
        let fresh = run.iter().zip(fresh).filter(|(_, fresh)| *fresh);
        let letters: Vec<_> = fresh.map(|(work, _)| work.park(setback.take())).collect();
        store.park(&mut tx, &self.service.name, &letters).await?;
        self.runs_ended(&mut tx, run).await?;
        tx.commit().await?;
        self.parked.notify_one();
        Ok(true)
    }

    /// All of these in one transaction; kept `apart`, what fails takes none of the others along.
    async fn attempt(&self, members: &[Work<'_, S>], apart: bool) -> Result<(), Trouble> {
        let mut tx = self.begin().await?;
        match self.run_all(&mut tx, members, apart).await {
            Ok(tally) => {
                tx.commit().await.map_err(|error| Trouble::at_commit(&self.service.store, error))?;
                self.count(tally.handled, tally.duplicates);
                if tally.parked {
                    self.parked.notify_one();
                }
                Ok(())
            }
            Err(trouble) => {
                // what the rollback has to say matters less than why it came to it
                let _ = tx.rollback().await;
                Err(trouble)
            }
        }
    }

    async fn run_all(&self, tx: &mut S::Tx, members: &[Work<'_, S>], apart: bool) -> Result<Tally, Trouble> {
        let (store, name) = (&self.service.store, &*self.service.name);
        let handled = members.iter().filter_map(|work| match &work.task {
            Task::Handle(envelope, handler) => Some(Member { work, envelope, handler: *handler }),
            _ => None,
        });
        let ids: Vec<Admission> = handled.clone().map(|member| Admission::of(member.envelope)).collect();
        let new = if ids.is_empty() { Vec::new() } else { store.admit(tx, name, &ids).await? };
        let news: Vec<_> = handled
            .zip(new)
            .filter(|(_, new)| *new || malote_core::planted::is("ignore-inbox"))
            .map(|(member, _)| member)
            .collect();
        let lanes = self.lanes(tx, news.iter().map(|member| &member.work.lane)).await?;
        let mut written = Written { lanes, ..Written::default() };
        match apart {
            true => self.run_apart(tx, &news, &mut written).await?,
            false => {
                let came = self.run_stretch(tx, &news, &written.lanes).await?;
                written.take(came.map_err(|(_, fault)| Trouble::Message(fault))?);
            }
        }
        for work in members {
            if let Task::Hopeless(_, why) = &work.task {
                tracing::warn!(service = name, place = work.what(), "set aside: {why}");
                written.dead.push(work.dead(name, Class::Final, why, 1, History::default()));
            }
        }
        let duplicates = (ids.len() - news.len()) as u64;
        let tally = Tally { handled: written.handled, duplicates, parked: !written.park.is_empty() };
        self.write(tx, written).await?;
        self.runs_ended(tx, members).await?;
        Ok(tally)
    }

    /// Writes what the handlers of a transaction came to, a statement for each kind.
    async fn write(&self, tx: &mut S::Tx, written: Written) -> Result<(), Trouble> {
        let (store, name, Written { out, park, dead, passing, .. }) =
            (&self.service.store, &*self.service.name, written);
        self.lock_lanes(tx, &park, &dead, &passing).await?;
        if !park.is_empty() {
            store.park(tx, name, &park).await.map_err(Trouble::after_handler)?;
        }
        for dead in &dead {
            store.set_aside(tx, dead).await.map_err(Trouble::after_handler)?;
        }
        if !passing.is_empty() {
            store.pass(tx, name, &passing).await.map_err(Trouble::after_handler)?;
        }
        if malote_core::planted::is("said-apart") {
            for said in out.chunks(50) {
                let mut apart = self.begin().await?;
                apart.append(said.to_vec()).await?;
                apart.commit().await?;
            }
        } else if !out.is_empty() {
            tx.append(out).await.map_err(Trouble::after_handler)?;
        }
        Ok(())
    }

    /// Locks the lanes that are about to change, where there are several: each statement locks its own, and in
    /// an order of its own. Lanes that something only goes behind do not change.
    async fn lock_lanes(
        &self,
        tx: &mut S::Tx,
        park: &[ToPark],
        dead: &[Dead],
        passing: &[Lane],
    ) -> Result<(), Trouble> {
        let parked = park.iter().filter(|letter| letter.setback.is_some()).map(|letter| letter.lane.clone());
        let buried = dead.iter().filter_map(|dead| Some(Lane { topic: dead.topic.clone(), key: dead.key.clone()? }));
        let lanes: BTreeSet<Lane> = parked.chain(buried).chain(passing.iter().cloned()).collect();
        if lanes.len() < 2 || malote_core::planted::is("lanes-by-statement") {
            return Ok(());
        }
        let lanes: Vec<Lane> = lanes.into_iter().collect();
        self.service.store.lock_lanes(tx, &self.service.name, &lanes).await.map_err(Trouble::after_handler)
    }

    /// The state of the lanes that are not free.
    pub(super) async fn lanes<'l>(
        &self,
        tx: &mut S::Tx,
        lanes: impl Iterator<Item = &'l Lane>,
    ) -> Result<HashMap<Lane, LaneState>, Trouble> {
        let mut lanes: Vec<Lane> = lanes.cloned().collect();
        lanes.sort_unstable();
        lanes.dedup();
        if lanes.is_empty() || malote_core::planted::is("lanes-unseen") {
            return Ok(HashMap::new());
        }
        let states = self.service.store.lanes(tx, &self.service.name, &lanes).await?;
        Ok(lanes.into_iter().zip(states).filter(|(_, state)| *state != LaneState::Free).collect())
    }

    async fn runs_ended(&self, tx: &mut S::Tx, members: &[Work<'_, S>]) -> Result<(), Trouble> {
        let suspects: Vec<String> = members.iter().filter(|work| work.suspect).map(Work::what).collect();
        if suspects.is_empty() {
            return Ok(());
        }
        self.service.store.runs_ended(tx, &self.service.name, &suspects).await.map_err(Trouble::after_handler)
    }

    /// Runs a handler, within its time; a panic is a failure like another.
    pub(super) async fn react(
        &self,
        tx: &mut S::Tx,
        envelope: &Envelope,
        handler: &dyn Handle<S>,
    ) -> Result<Vec<Envelope>, Fault> {
        tx.sealer().cause = self.cause_of(envelope);
        let begun = Instant::now();
        let handled = match self.guarded(envelope) {
            Ok(()) => self.within(envelope, handler.handle(envelope, tx)).await,
            Err(failure) => Err(failure),
        };
        // what the next one did would be lost with it
        let handled = handled.and_then(|said| tx.check().map(|()| said).map_err(Failure::from));
        let out = match handled {
            Ok(sealed) => Ok(sealed),
            Err(failure) => {
                let fault = Fault::of(&self.service.store, failure);
                tracing::Span::current().record("error.type", fault.class.as_str());
                Err(fault)
            }
        };
        self.processed(envelope, begun, &out);
        out
    }

    /// Notes how an attempt went.
    pub(super) fn processed<T>(&self, envelope: &Envelope, begun: Instant, outcome: &Result<T, Fault>) {
        let error = outcome.as_ref().err().map(|fault| fault.class);
        let system = self.service.transport.system();
        messaging::processed(system, &self.service.name, envelope, error, begun.elapsed());
    }

    /// Whether the service lets this be handled now.
    pub(super) fn guarded(&self, envelope: &Envelope) -> Outcome {
        self.service.guard.as_ref().map_or(Ok(()), |guard| guard(envelope))
    }

    /// The outcome of a handler or an effect that takes no longer than it may.
    pub(super) async fn within<T>(&self, envelope: &Envelope, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let ignored = malote_core::planted::is("deadline-ignored");
        let deadline =
            if ignored { Duration::from_secs(3600) } else { self.service.policy(Some(&envelope.kind)).deadline };
        match tokio::time::timeout(deadline, AssertUnwindSafe(work).catch_unwind()).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Err(Failure::retry(format!("it panicked: {}", said(&*panic)))),
            Err(_) => Err(Failure::retry(format!("it was not done within {deadline:?}"))),
        }
    }

    /// What came before, under the trace of the current span.
    pub(super) fn cause_of(&self, envelope: &Envelope) -> Cause {
        let cause = Cause::of(envelope);
        Cause { trace: telemetry::current().or(cause.trace), ..cause }
    }

    /// For the saga that asked, if one did: a command was given up, and no answer will come.
    pub(super) fn tell_of(&self, tx: &mut S::Tx, work: &Work<'_, S>, dead: &Dead) -> Option<Envelope> {
        let envelope = work.envelope().filter(|_| !malote_core::planted::is("saga-given-up-untold"))?;
        let answers = self.service.routes.get(&envelope.kind)?.answers.as_deref();
        let (message, attributes) = saga::given_up(envelope, answers, dead.class, &dead.reason)?;
        tx.sealer().cause = self.cause_of(envelope);
        saga::seal(tx, message, attributes).ok()
    }

    /// Gives a message up, in a transaction of its own.
    async fn give_up(&self, work: &Work<'_, S>, fault: &Fault, attempts: u32, history: History) -> Result<(), Trouble> {
        tracing::warn!(service = %self.service.name, event = work.what(), attempts, "dead letter: {}", fault.why);
        self.set_aside(work, &work.dead(&self.service.name, fault.class, &fault.why, attempts, history)).await
    }

    /// Marks a message as given up and sets it aside, in one transaction.
    async fn set_aside(&self, work: &Work<'_, S>, dead: &Dead) -> Result<(), Trouble> {
        let mut tx = self.begin().await?;
        let new = match work.admission() {
            Some(admission) => self.service.store.admit(&mut tx, &self.service.name, &[admission]).await? == [true],
            None => true,
        };
        if new {
            self.service.store.set_aside(&mut tx, dead).await?;
            if let Some(notice) = self.tell_of(&mut tx, work, dead) {
                tx.append(vec![notice]).await?;
            }
        }
        self.runs_ended(&mut tx, std::slice::from_ref(work)).await?;
        Ok(tx.commit().await?)
    }
}

/// What becomes of a message that failed.
pub(super) enum Sentence {
    Park(Failed),
    Dead(Box<Dead>),
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("nothing")
}
