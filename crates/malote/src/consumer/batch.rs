//! A batch of handlers: together in one transaction, or one by one after a failure.

use super::Consumer;
use crate::{
    service::{Call, Handle, Reactor},
    telemetry,
};
use malote_core::{
    Admission, Cause, Class, Dead, Delivery, Envelope, Failure, Message, Store, StoreError, Transaction,
    isolation::{Isolation, Next, Verdict},
    wire,
};
use std::{collections::HashSet, ops::ControlFlow};
use tracing::Instrument;

/// What is to be done about one delivery.
pub(super) struct Work<'s, S: Store> {
    pub(super) task: Task<'s, S>,
    /// Where it lay, in words.
    pub(super) place: String,
}

pub(super) enum Task<'s, S: Store> {
    Handle(Envelope, &'s dyn Handle<S>),
    Call(Envelope, &'s dyn Call<S>),
    SetAside(Box<Dead>),
}

impl<S: Store> Work<'_, S> {
    pub(super) fn is_effect(&self) -> bool {
        matches!(self.task, Task::Call(..))
    }

    /// What must stay in order: topic and key; an unreadable record stands for itself.
    pub(super) fn lane(&self) -> String {
        match &self.task {
            Task::Handle(e, _) | Task::Call(e, _) => format!("{}\n{}", e.topic, e.key),
            Task::SetAside(_) => self.place.clone(),
        }
    }
}

/// Why a transaction did not come to its end.
pub(super) struct Setback {
    class: Class,
    why: String,
    pub(super) defer: Option<std::time::Duration>,
}

impl From<StoreError> for Setback {
    fn from(error: StoreError) -> Self {
        // a commit of unknown outcome is safe to repeat here: the inbox row is its operation id
        let class = if error.class == Class::Unknown { Class::Transient } else { error.class };
        let why = Failure::from(error).to_string();
        // the store's own statements are not the message's fault: never a reason to set it aside
        let class = if class == Class::Final { Class::Transient } else { class };
        Self { class, why, defer: None }
    }
}

impl Setback {
    pub(super) fn of<S: Store>(store: &S, failure: Failure) -> Self {
        let why = failure.to_string();
        let (class, defer) = match failure {
            Failure::Retry(_) => (Class::Transient, None),
            Failure::Reject(_) => (Class::Final, None),
            Failure::Defer(after) => (Class::Transient, Some(after)),
            Failure::Error(error) => (store.classify(&*error), None),
            _ => (Class::Transient, None),
        };
        Self { class, why, defer }
    }
    pub(super) fn is_final(&self) -> bool {
        self.class == Class::Final
    }
    pub(super) fn is_conflict(&self) -> bool {
        self.class == Class::Conflict
    }
    pub(super) fn why(&self) -> &str {
        &self.why
    }
}

impl<S: Store> Consumer<S> {
    /// Finds what a delivery is for. Types that this service does not know are other services' affair.
    pub(super) fn sort(&self, delivery: Delivery) -> Option<Work<'_, S>> {
        let Delivery { place, record } = delivery;
        let words = format!("{} partition {} offset {}", place.topic, place.partition, place.offset);
        let task = match wire::decode(&place.topic, &record) {
            Ok(envelope) => match self.service.routes.get(&envelope.kind)? {
                Reactor::Handler(handler) => Task::Handle(envelope, &**handler),
                Reactor::Effect(effect) => Task::Call(envelope, &**effect),
            },
            Err(malformed) => {
                tracing::warn!(service = %self.service.name, place = words, "set aside: {malformed}");
                Task::SetAside(Box::new(Dead {
                    by: self.consumer_name(),
                    what: words.clone(),
                    event_id: None,
                    kind: None,
                    topic: place.topic,
                    partition: Some(place.partition),
                    offset: Some(place.offset),
                    reason: Dead::reason(&malformed.to_string()),
                    attempts: 1,
                    record,
                }))
            }
        };
        Some(Work { task, place: words })
    }

    pub(super) fn consumer_name(&self) -> String {
        format!("consumer {}", self.service.name)
    }

    /// Handles a run of members to the end.
    pub(super) async fn handle_all(&self, run: &[Work<'_, S>]) -> ControlFlow<()> {
        let mut isolation = Isolation::of(run.iter().map(Work::lane).collect());
        loop {
            match isolation.next() {
                Next::Done => return ControlFlow::Continue(()),
                Next::Together(members) => match self.attempt(members.iter().map(|m| &run[*m])).await {
                    Ok(()) => isolation.committed(),
                    Err(setback) => {
                        if !setback.is_conflict() {
                            tracing::debug!(service = %self.service.name, "a batch of {} runs one by one: {}", members.len(), setback.why);
                        }
                        isolation.failed(setback.class);
                    }
                },
                Next::Alone(members) => {
                    let deferred = self.round(run, &mut isolation, &members).await;
                    let wait = isolation.wait(&self.service.settings.backoff, fastrand::f64());
                    self.pause(deferred.map_or(wait, |d| wait.max(d))).await?;
                }
            }
        }
    }

    /// Runs each member alone; a failure holds the later ones of its key until the next round.
    async fn round(
        &self,
        run: &[Work<'_, S>],
        isolation: &mut Isolation,
        members: &[usize],
    ) -> Option<std::time::Duration> {
        let (mut held, mut verdicts, mut deferred) = (HashSet::new(), Vec::new(), None);
        for &member in members {
            if isolation.is_held(member, &held) {
                continue;
            }
            let attempts = isolation.attempts(member) + 1;
            let verdict = match self.alone(&run[member], attempts).await {
                Ok(()) => Verdict::Over,
                Err(setback) => {
                    deferred = deferred.max(setback.defer);
                    held.insert(member);
                    Verdict::Again
                }
            };
            verdicts.push((member, verdict));
        }
        isolation.round(&verdicts);
        deferred
    }

    /// One member in a transaction of its own; one that can never succeed is set aside.
    async fn alone(&self, work: &Work<'_, S>, attempts: u32) -> Result<(), Setback> {
        let Err(setback) = self.attempt(std::iter::once(work)).await else { return Ok(()) };
        tracing::warn!(service = %self.service.name, place = work.place, attempts, "not handled: {}", setback.why);
        match &work.task {
            Task::Handle(envelope, _) if setback.is_final() => self.give_up(envelope, &setback.why, attempts).await,
            _ => Err(setback),
        }
    }

    /// All of these in one transaction.
    async fn attempt<'w>(&self, members: impl Iterator<Item = &'w Work<'w, S>> + Clone) -> Result<(), Setback>
    where
        S: 'w,
    {
        let mut tx = self.service.store.begin(self.outbox.sealer(Cause::default())).await?;
        let result = self.run_all(&mut tx, members).await;
        match result {
            Ok(()) => Ok(tx.commit().await?),
            Err(setback) => {
                // what the rollback has to say matters less than why it came to it
                let _ = tx.rollback().await;
                Err(setback)
            }
        }
    }

    async fn run_all<'w>(
        &self,
        tx: &mut S::Tx,
        members: impl Iterator<Item = &'w Work<'w, S>> + Clone,
    ) -> Result<(), Setback>
    where
        S: 'w,
    {
        let envelopes = members.clone().filter_map(|w| match &w.task {
            Task::Handle(envelope, handler) => Some((envelope, *handler)),
            _ => None,
        });
        let ids: Vec<Admission> = envelopes.clone().map(|(e, _)| Admission::of(e)).collect();
        let new = match ids.is_empty() {
            true => Vec::new(),
            false => self.service.store.admit(tx, &self.service.name, &ids).await?,
        };
        let mut out = Vec::new();
        for ((envelope, handler), new) in envelopes.zip(new) {
            if new || malote_core::planted::is("ignore-inbox") {
                let span = telemetry::process_span(envelope, &self.service.name, self.service.transport.system());
                out.extend(self.react(tx, envelope, handler).instrument(span).await?);
            }
        }
        for dead in members.filter_map(|w| if let Task::SetAside(dead) = &w.task { Some(dead) } else { None }) {
            self.service.store.set_aside(tx, dead).await?;
        }
        if !out.is_empty() {
            tx.append(out).await?;
        }
        Ok(())
    }

    async fn react(
        &self,
        tx: &mut S::Tx,
        envelope: &Envelope,
        handler: &dyn Handle<S>,
    ) -> Result<Vec<Envelope>, Setback> {
        tx.sealer().cause = self.cause_of(envelope);
        match handler.handle(envelope, tx).await {
            Ok(messages) => self.seal(tx, messages),
            Err(failure) => {
                let setback = Setback::of(&self.service.store, failure);
                tracing::Span::current().record("error.type", format!("{:?}", setback.class));
                Err(setback)
            }
        }
    }

    /// What came before, under the trace of the current span.
    pub(super) fn cause_of(&self, envelope: &Envelope) -> Cause {
        let cause = Cause::of(envelope);
        Cause { trace: telemetry::current().or(cause.trace), ..cause }
    }

    pub(super) fn seal(&self, tx: &mut S::Tx, messages: Vec<Message>) -> Result<Vec<Envelope>, Setback> {
        let sealer = tx.sealer();
        let sealed: Result<Vec<_>, _> = messages.into_iter().map(|m| sealer.seal(m)).collect();
        sealed.map_err(|unfit| Setback { class: Class::Final, why: unfit.to_string(), defer: None })
    }

    /// Marks an event as handled and sets it aside, in one transaction.
    pub(super) async fn give_up(&self, envelope: &Envelope, why: &str, attempts: u32) -> Result<(), Setback> {
        let dead = Dead {
            by: self.consumer_name(),
            what: envelope.id.to_string(),
            event_id: Some(envelope.id),
            kind: Some(envelope.kind.clone()),
            topic: envelope.topic.clone(),
            partition: None,
            offset: None,
            reason: Dead::reason(why),
            attempts: attempts.try_into().unwrap_or(i32::MAX),
            record: wire::encode(envelope),
        };
        let mut tx = self.service.store.begin(self.outbox.sealer(Cause::default())).await?;
        if self.service.store.admit(&mut tx, &self.service.name, &[Admission::of(envelope)]).await? == [true] {
            self.service.store.set_aside(&mut tx, &dead).await?;
        }
        tx.commit().await?;
        tracing::warn!(service = %self.service.name, event = %envelope.id, attempts, "set aside: {why}");
        Ok(())
    }
}
