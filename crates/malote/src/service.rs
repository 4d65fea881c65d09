//! One named participant: a store, a transport, and what it reacts to.

use crate::{Outbox, Retention};
use malote_core::{
    BoxFuture, Budget, Effect, Envelope, Event, EventType, Events, Failure, Handler, IdempotencyKey, Message, Outcome,
    Record, Store, Transport,
    retry::{Backoff, Policy},
    topology::{Reaction, Route, ServiceFlow},
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// One named participant: a store, a transport, and what it reacts to.
///
/// The name is also its consumer group and the `source` of what it says. Run it with a
/// [`Runtime`](crate::Runtime); any number of processes may run the same service.
pub struct Service<S: Store> {
    pub(crate) name: Arc<str>,
    pub(crate) store: S,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) routes: HashMap<String, Entry<S>>,
    pub(crate) guard: Option<Guard>,
    pub(crate) settings: Settings,
    pub(crate) faults: Vec<String>,
    flow: ServiceFlow,
}

/// Asked before anything is handled; see [`Service::guard`].
pub(crate) type Guard = Box<dyn Fn(&Envelope) -> Outcome + Send + Sync>;

/// What reacts to a type of event, and how it is tried again.
pub(crate) struct Entry<S: Store> {
    pub reactor: Reactor<S>,
    pub policy: Option<Policy>,
}

/// How a service is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long a relay's lease lasts without being renewed.
    pub lease: Duration,
    /// Most records in one transaction of the consumer.
    pub batch: usize,
    /// Longest pause between two looks at an idle outbox.
    pub idle_poll: Duration,
    /// Waits while the store or the transport is away.
    pub backoff: Backoff,
    /// How a message that fails is tried again, unless its handler says otherwise.
    pub retry: Policy,
    /// How many second and later attempts all processes of the service may make together.
    pub budget: Budget,
    /// How long things are kept.
    pub retention: Retention,
    /// How many effects may be under way at once.
    pub effects: usize,
    /// Whether this process moves the outbox.
    pub relay: bool,
    /// How it does that.
    pub sending: crate::relay::Sending,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            batch: 500,
            idle_poll: Duration::from_millis(2500),
            backoff: Backoff::default(),
            retry: Policy::default(),
            budget: Budget::default(),
            retention: Retention::default(),
            effects: 16,
            relay: true,
            sending: crate::relay::Sending::default(),
        }
    }
}

/// A handler or effect with its types forgotten.
pub(crate) enum Reactor<S: Store> {
    Handler(Box<dyn Handle<S>>),
    Effect(Box<dyn Call<S>>),
}

/// Opens an envelope and handles it in a transaction.
pub(crate) trait Handle<S: Store>: Send + Sync {
    fn handle<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Vec<Message>>>;
}

/// What an effect left to be written down.
pub(crate) type Note<S> =
    Box<dyn for<'t> FnOnce(&'t mut <S as Store>::Tx) -> BoxFuture<'t, Outcome<Vec<Message>>> + Send>;

/// Opens an envelope and calls the outside with it.
pub(crate) trait Call<S: Store>: Send + Sync {
    fn call<'t>(&'t self, envelope: &Envelope, key: IdempotencyKey) -> BoxFuture<'t, Outcome<Note<S>>>;
}

struct Opened<M, H>(H, std::marker::PhantomData<fn(M)>);

impl<S: Store, M: 'static, H: Handler<S, M>> Handle<S> for Opened<M, H> {
    fn handle<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Vec<Message>>> {
        match envelope.open::<H::Consumes>() {
            Ok(event) => Box::pin(async move { written(self.0.handle(event, tx).await?) }),
            Err(unfit) => Box::pin(std::future::ready(Err(Failure::reject(unfit.to_string())))),
        }
    }
}

struct Noted<M, E, R, O> {
    effect: E,
    record: Arc<R>,
    types: std::marker::PhantomData<fn(M, O)>,
}

impl<S, M, E, R, O> Call<S> for Noted<M, E, R, O>
where
    S: Store,
    M: 'static,
    E: Effect<M>,
    R: Record<S, E::Yields, O>,
    O: Events,
{
    fn call<'t>(&'t self, envelope: &Envelope, key: IdempotencyKey) -> BoxFuture<'t, Outcome<Note<S>>> {
        let event = match envelope.open::<E::Consumes>() {
            Ok(event) => event,
            Err(unfit) => return Box::pin(std::future::ready(Err(Failure::reject(unfit.to_string())))),
        };
        Box::pin(async move {
            let yielded = self.effect.call(event, key).await?;
            let record = self.record.clone();
            let note: Note<S> = Box::new(move |tx| Box::pin(async move { written(record.record(yielded, tx).await?) }));
            Ok(note)
        })
    }
}

fn written(events: impl Events) -> Outcome<Vec<Message>> {
    let mut messages = Vec::new();
    // an event that cannot be written as JSON will not be written tomorrow either
    events.write(&mut messages).map_err(|unfit| Failure::reject(unfit.to_string()))?;
    Ok(messages)
}

impl<S: Store> Service<S> {
    /// A service that reacts to nothing yet.
    pub fn new(name: &str, store: S, transport: Arc<dyn Transport>) -> Self {
        Self {
            name: name.into(),
            store,
            transport,
            routes: HashMap::new(),
            guard: None,
            settings: Settings::default(),
            faults: Vec::new(),
            flow: ServiceFlow { name: name.into(), ..ServiceFlow::default() },
        }
    }

    /// Adds a handler: its signature says what it consumes and what it emits.
    pub fn on<M: 'static, H: Handler<S, M>>(self, handler: H) -> Self {
        let policy = handler.policy();
        let opened = Opened(handler, std::marker::PhantomData::<fn(M)>);
        self.route::<H::Consumes, H::Emits>(Reaction::Handler, Reactor::Handler(Box::new(opened)), policy)
    }

    /// Adds an effect, and what writes down what came of it.
    pub fn effect<M, E, R, O>(self, effect: E, record: R) -> Self
    where
        M: 'static,
        E: Effect<M>,
        R: Record<S, E::Yields, O>,
        O: Events,
    {
        let policy = effect.policy();
        let noted = Noted { effect, record: Arc::new(record), types: std::marker::PhantomData::<fn(M, O)> };
        self.route::<E::Consumes, O>(Reaction::Effect, Reactor::Effect(Box::new(noted)), policy)
    }

    fn route<E: Event, O: Events>(mut self, by: Reaction, reactor: Reactor<S>, policy: Option<Policy>) -> Self {
        let mut emits = Vec::new();
        O::types(&mut emits);
        if self.routes.insert(E::TYPE.to_owned(), Entry { reactor, policy }).is_some() {
            self.faults.push(format!("service {} has two handlers for {}: one must do", self.name, E::TYPE));
        }
        self.flow.routes.push(Route { consumes: EventType::of::<E>(), by, emits });
        self
    }

    /// Declares an event that the service's edge emits, unasked by an event.
    pub fn emits<E: Event>(mut self) -> Self {
        self.flow.emits.push(EventType::of::<E>());
        self
    }

    /// Declares an event that nobody is expected to consume.
    pub fn terminal<E: Event>(mut self) -> Self {
        self.flow.terminal.push(EventType::of::<E>());
        self
    }

    /// How long the relay's lease lasts without renewal, and so how long a killed relay is waited
    /// for (5 s by default; not under 500 ms).
    pub fn lease(mut self, lasts: Duration) -> Self {
        self.settings.lease = lasts.max(Duration::from_millis(500));
        self
    }

    /// Most records in one transaction (500 by default).
    pub fn batch(mut self, most: usize) -> Self {
        self.settings.batch = most.max(1);
        self
    }

    /// How a message that fails is tried again, and when it is given up; for handlers and effects that
    /// say nothing themselves ([`retrying`](crate::retrying)).
    pub fn retry(mut self, policy: Policy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// How many second and later attempts all processes of the service may make together (100 a second
    /// by default), so that an outage does not end in a storm.
    pub fn retry_budget(mut self, budget: Budget) -> Self {
        self.settings.budget = budget;
        self
    }

    /// How long things are kept.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Asks `guard` before each event is handled, or an effect called; what it fails with counts as the
    /// handler's failure. For switches that stop a service on purpose.
    pub fn guard(mut self, guard: impl Fn(&Envelope) -> Outcome + Send + Sync + 'static) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Waits while the store or the transport is away (50 ms to 10 s by default).
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Leaves the outbox to relays in other processes.
    pub fn without_relay(mut self) -> Self {
        self.settings.relay = false;
        self
    }

    /// The service's part of the flow, from its handlers' types.
    pub fn flow(&self) -> &ServiceFlow {
        &self.flow
    }

    /// How messages of this type are tried again.
    pub(crate) fn policy(&self, kind: Option<&str>) -> Policy {
        kind.and_then(|kind| self.routes.get(kind)).and_then(|entry| entry.policy).unwrap_or(self.settings.retry)
    }

    /// For edges: begins transactions in which this service speaks.
    pub fn outbox(&self) -> Outbox<S> {
        Outbox::new(&self.name, self.store.clone())
    }
}
