//! What is to be done about one record, and how it can go wrong.

use crate::service::{Call, Handle, Reactor, Service};
use malote_core::{
    Admission, By, Class, Dead, Delivery, Envelope, Failed, Failure, History, Lane, Place, RawRecord, Setback, Store,
    StoreError, ToPark, cut_reason,
    inspect::ONLY_FOR,
    retry::{Next, Policy},
    wire,
};
use std::time::Duration;

/// One record and what it is for.
pub(super) struct Work<'s, S: Store> {
    pub(super) task: Task<'s, S>,
    /// Where it lay; none when it comes from its lane.
    pub(super) place: Option<Place>,
    /// Its name where it has no id: its place, in words.
    name: String,
    pub(super) lane: Lane,
    /// Whether it may be what its partition's last holder died over.
    pub(super) suspect: bool,
    /// Whether it was under way at a second death, too: it runs alone.
    pub(super) blamed: bool,
    record: RawRecord,
}

pub(super) enum Task<'s, S: Store> {
    Handle(Envelope, &'s dyn Handle<S>),
    Call(Envelope, &'s dyn Call<S>),
    /// Nothing can be done with it, for this reason.
    Hopeless(Option<Envelope>, String),
}

impl<'s, S: Store> Work<'s, S> {
    /// Finds what a delivery is for. Types that this service does not know, and what is meant for
    /// another consumer alone, are other services' affair.
    pub(super) fn of(service: &'s Service<S>, delivery: Delivery) -> Option<Self> {
        let Delivery { place, record } = delivery;
        let words = format!("{} partition {} offset {}", place.topic, place.partition, place.offset);
        let task = match wire::decode(&place.topic, &record) {
            Ok(envelope) => {
                let only_for = envelope.headers.iter().find(|(name, _)| name == ONLY_FOR);
                if only_for.is_some_and(|(_, consumer)| **consumer != *service.name) {
                    return None;
                }
                Task::of(service, envelope)?
            }
            Err(malformed) => Task::Hopeless(None, malformed.to_string()),
        };
        let lane = match task.envelope() {
            Some(envelope) => Lane { topic: place.topic.clone(), key: envelope.key.clone() },
            // an unreadable record stands for itself
            None => Lane { topic: place.topic.clone(), key: words.clone() },
        };
        Some(Self { task, place: Some(place), name: words, lane, suspect: false, blamed: false, record })
    }

    /// Finds what a parked message is for.
    pub(super) fn parked(service: &'s Service<S>, lane: &Lane, what: &str, record: RawRecord) -> Self {
        let task = match wire::decode(&lane.topic, &record) {
            Ok(envelope) => Task::of(service, envelope.clone()).unwrap_or_else(|| {
                let why = format!("{} has no handler for {}", service.name, envelope.kind);
                Task::Hopeless(Some(envelope), why)
            }),
            Err(malformed) => Task::Hopeless(None, malformed.to_string()),
        };
        Self { task, place: None, name: what.to_owned(), lane: lane.clone(), suspect: false, blamed: false, record }
    }

    pub(super) fn is_effect(&self) -> bool {
        matches!(self.task, Task::Call(..))
    }

    pub(super) fn envelope(&self) -> Option<&Envelope> {
        self.task.envelope()
    }

    pub(super) fn admission(&self) -> Option<Admission> {
        self.envelope().map(Admission::of)
    }

    pub(super) fn kind(&self) -> Option<&str> {
        self.envelope().map(|envelope| &*envelope.kind)
    }

    /// Names it in its consumer.
    pub(super) fn what(&self) -> String {
        self.envelope().map_or_else(|| self.name.clone(), |envelope| envelope.id.to_string())
    }

    /// The dead letter that it becomes.
    pub(super) fn dead(&self, service: &str, class: Class, reason: &str, attempts: u32, history: History) -> Dead {
        let envelope = self.envelope();
        Dead {
            by: By::Consumer(service.to_owned()),
            what: self.what(),
            admission: self.admission(),
            kind: self.kind().map(str::to_owned),
            topic: self.lane.topic.clone(),
            key: envelope.map(|e| e.key.clone()),
            partition: self.place.as_ref().map(|place| place.partition),
            offset: self.place.as_ref().map(|place| place.offset),
            class,
            reason: cut_reason(reason),
            attempts,
            history,
            correlation_id: envelope.and_then(|e| e.correlation_id.clone()),
            trace: envelope.and_then(|e| e.trace.as_ref()).map(|t| t.parent.clone()),
            record: self.record.clone(),
        }
    }

    /// The parked message that it becomes; without a setback it waits behind another.
    pub(super) fn park(&self, setback: Option<Failed>) -> ToPark {
        ToPark {
            lane: self.lane.clone(),
            what: self.what(),
            admission: self.admission(),
            kind: self.kind().map(str::to_owned),
            record: self.record.clone(),
            setback,
        }
    }
}

impl<'s, S: Store> Task<'s, S> {
    fn of(service: &'s Service<S>, envelope: Envelope) -> Option<Self> {
        Some(match &service.routes.get(&envelope.kind)?.reactor {
            Reactor::Handler(handler) => Self::Handle(envelope, &**handler),
            Reactor::Effect(effect) => Self::Call(envelope, &**effect),
        })
    }

    fn envelope(&self) -> Option<&Envelope> {
        match self {
            Self::Handle(envelope, _) | Self::Call(envelope, _) => Some(envelope),
            Self::Hopeless(envelope, _) => envelope.as_ref(),
        }
    }
}

/// Why a transaction did not come to its end.
pub(super) enum Trouble {
    /// The store is away, or was in somebody's way: not the message's fault.
    Store(Class, String),
    /// The message's handler, or what it returned.
    Message(Fault),
}

/// Why an attempt at a message went wrong.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) class: Class,
    pub(super) why: String,
    pub(super) defer: Option<Duration>,
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        // a commit of unknown outcome is safe to repeat: the inbox row is its operation id
        Self::Store(error.class, Failure::from(error).to_string())
    }
}

impl Trouble {
    /// An error of the store after a handler has run, where the message may be to blame: what it has to say,
    /// an error that it swallowed.
    pub(super) fn after_handler(error: StoreError) -> Self {
        match error.class {
            Class::Final if !malote_core::planted::is("swallowed-is-away") => Self::of_message(error),
            _ => error.into(),
        }
    }

    /// An error of COMMIT, where the message may be to blame: its deferred constraints.
    pub(super) fn at_commit<S: Store>(store: &S, error: StoreError) -> Self {
        match store.blames_rows(&error) {
            true => Self::of_message(error),
            false => error.into(),
        }
    }

    fn of_message(error: StoreError) -> Self {
        Self::Message(Fault::of_class(error.class, &Failure::from(error).to_string()))
    }

    pub(super) fn class(&self) -> Class {
        match self {
            Self::Store(class, _) => *class,
            Self::Message(fault) => fault.class,
        }
    }

    pub(super) fn why(&self) -> &str {
        match self {
            Self::Store(_, why) => why,
            Self::Message(fault) => &fault.why,
        }
    }
}

impl Fault {
    pub(super) fn of_class(class: Class, why: &str) -> Self {
        Self { class, why: cut_reason(why), defer: None }
    }

    pub(super) fn of<S: Store>(store: &S, failure: Failure) -> Self {
        let why = cut_reason(&failure.to_string());
        let (class, defer) = match failure {
            Failure::Reject(_) => (Class::Final, None),
            Failure::Defer { after, .. } if !malote_core::planted::is("put-off-counted") => {
                (Class::Transient, Some(after))
            }
            Failure::Error(error) => (store.classify(&*error), None),
            _ => (Class::Transient, None),
        };
        Self { class, why, defer }
    }

    /// Whether to run it again at once.
    pub(super) fn is_conflict(&self) -> bool {
        self.class == Class::Conflict
    }

    /// What becomes of a message after `attempts` attempts, this one included.
    pub(super) fn verdict(&self, policy: &Policy, attempts: u32, age: Duration) -> (Next, u32) {
        // what is deferred was no attempt
        let counted = if self.defer.is_some() { attempts.saturating_sub(1) } else { attempts };
        (policy.next(self.class, counted, age, self.defer, fastrand::f64()), counted)
    }

    /// For the history of a message.
    pub(super) fn entry(&self, now: chrono::DateTime<chrono::Utc>, attempt: u32) -> Setback {
        Setback::failed(now, attempt, self.class, &self.why)
    }
}
