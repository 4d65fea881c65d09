//! One named participant: a store, a transport, and what it reacts to.

use crate::{
    Outbox, Retention,
    saga::{Answers, GIVEN_UP, Obey, Obeyed, Obeying, Remote, Sagas},
};
use malote_core::{
    BoxFuture, Budget, Effect, Envelope, Event, EventType, Events, Failure, FullStore, Handler, IdempotencyKey,
    Message, Outcome, Record, Store, Transaction, Transport, Unfit,
    retry::{Backoff, Policy},
    saga::{Answer, Command, CommandType},
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
    pub(crate) sagas: Option<Sagas<S>>,
    flow: ServiceFlow,
}

/// Asked before anything is handled; see [`Service::guard`].
pub(crate) type Guard = Box<dyn Fn(&Envelope) -> Outcome + Send + Sync>;

/// What reacts to a type of event, and how it is tried again.
pub(crate) struct Entry<S: Store> {
    pub reactor: Reactor<S>,
    pub policy: Option<Policy>,
    /// Of a command: where its answers go.
    pub answers: Option<String>,
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
    /// What it says is sealed already.
    fn handle<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Vec<Envelope>>>;
}

/// What an effect left to be written down.
pub(crate) type Note<S> =
    Box<dyn for<'t> FnOnce(&'t mut <S as Store>::Tx) -> BoxFuture<'t, Outcome<Vec<Envelope>>> + Send>;

/// Opens an envelope and calls the outside with it.
pub(crate) trait Call<S: Store>: Send + Sync {
    fn call<'t>(&'t self, envelope: &Envelope, key: IdempotencyKey) -> BoxFuture<'t, Outcome<Note<S>>>;
}

struct Opened<M, H>(H, std::marker::PhantomData<fn(M)>);

impl<S: Store, M: 'static, H: Handler<S, M>> Handle<S> for Opened<M, H> {
    fn handle<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Vec<Envelope>>> {
        match envelope.open::<H::Consumes>() {
            Ok(event) => Box::pin(async move {
                let events = self.0.handle(event, tx).await?;
                sealed(tx, events)
            }),
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
            let note: Note<S> = Box::new(move |tx| {
                Box::pin(async move {
                    let events = record.record(yielded, tx).await?;
                    sealed(tx, events)
                })
            });
            Ok(note)
        })
    }
}

/// Seals what a handler says.
fn sealed<T: Transaction>(tx: &mut T, events: impl Events) -> Outcome<Vec<Envelope>> {
    let mut messages: Vec<Message> = Vec::new();
    // an event that cannot be written as JSON, or is too large, will not be any better tomorrow
    let unfit = |unfit: Unfit| Failure::reject(unfit.to_string());
    events.write(&mut messages).map_err(unfit)?;
    let sealer = tx.sealer();
    messages.into_iter().map(|message| sealer.seal(message).map_err(unfit)).collect()
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
            sagas: None,
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

    fn route<E: Event, O: Events>(self, by: Reaction, reactor: Reactor<S>, policy: Option<Policy>) -> Self {
        let mut emits = Vec::new();
        O::types(&mut emits);
        let route = Route { consumes: EventType::of::<E>(), by, emits };
        self.routed(route, Entry { reactor, policy, answers: None })
    }

    fn routed(mut self, route: Route, entry: Entry<S>) -> Self {
        self.react_to(&route.consumes.name, entry);
        self.flow.routes.push(route);
        self
    }

    fn react_to(&mut self, kind: &str, entry: Entry<S>) {
        if self.routes.insert(kind.to_owned(), entry).is_some() {
            self.faults.push(format!("service {} has two handlers for {kind}: one must do", self.name));
        }
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

    /// Most calls of effects under way at once, in a process; 16 unless set. What has no place waits, in order.
    /// As many may be tried again beside them, but 16 at most.
    pub fn effects_at_once(mut self, most: usize) -> Self {
        self.settings.effects = most.max(1);
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

    /// Whether it calls the outside.
    pub(crate) fn calls(&self) -> bool {
        self.routes.values().any(|entry| matches!(entry.reactor, Reactor::Effect(_)))
    }

    /// The longest time that an attempt at anything may take.
    pub(crate) fn longest(&self) -> Duration {
        let each = self.routes.values().map(|entry| entry.policy.unwrap_or(self.settings.retry).deadline);
        each.max().unwrap_or(self.settings.retry.deadline)
    }

    /// For edges: begins transactions in which this service speaks.
    pub fn outbox(&self) -> Outbox<S> {
        Outbox::new(&self.name, self.store.clone())
    }
}

/// Sagas: obeying their commands, and coordinating them.
impl<S: FullStore> Service<S> {
    /// Adds the handler of a command: `async fn(command, &mut Tx) -> Outcome<Answer<Command>>`. Asked for the
    /// same operation again it is not run again, and the answer is the same; an operation that was undone
    /// before it came is not done at all. A handler that undoes something must accept that it was never
    /// done. See [`Addressed`](malote_core::saga::Addressed) for one that wants to know which operation.
    pub fn command<M, H>(self, handler: H) -> Self
    where
        M: 'static,
        H: Handler<S, M, Emits = Answer<<H as Handler<S, M>>::Consumes>>,
        H::Consumes: Command,
    {
        let policy = handler.policy();
        let obeyed: Box<dyn Obey<S>> = Box::new(Obeyed(handler, std::marker::PhantomData::<fn(M)>));
        let obeying = Obeying::new(&self.name, &self.store, obeyed);
        self.obeys::<H::Consumes>(Reaction::Handler, Reactor::Handler(Box::new(obeying)), policy)
    }

    /// Adds a command that is obeyed by a call to the outside, and what writes down what came of it and
    /// gives the answer: `async fn(yielded, &mut Tx) -> Outcome<Answer<Command>>`. The key of the call is that of the
    /// operation: the same whenever it is asked for.
    pub fn command_effect<M, E, R>(self, effect: E, record: R) -> Self
    where
        M: 'static,
        E: Effect<M>,
        E::Consumes: Command,
        R: Record<S, E::Yields, Answer<<E as Effect<M>>::Consumes>>,
    {
        let policy = effect.policy();
        let remote = Remote::<S, M, E, R>::new(&self.name, &self.store, effect, record);
        self.obeys::<E::Consumes>(Reaction::Effect, Reactor::Effect(Box::new(remote)), policy)
    }

    fn obeys<C: Command>(self, by: Reaction, reactor: Reactor<S>, policy: Option<Policy>) -> Self {
        let emits = CommandType::of::<C>().answers().cloned().collect();
        let answers = Some(C::Done::topic().to_owned());
        self.routed(Route { consumes: EventType::of::<C>(), by, emits }, Entry { reactor, policy, answers })
    }

    /// Coordinates these sagas: their answers and timers come to this service.
    pub fn sagas(mut self, sagas: Sagas<S>) -> Self {
        let coordinator = sagas.coordinator().clone();
        let mistakes = coordinator.check(&self.name);
        self.faults.extend(mistakes.iter().cloned());
        self.flow.mistakes.extend(mistakes);
        self.flow.sagas.extend(coordinator.outlines());
        if self.sagas.is_some() {
            self.faults.push(format!("service {} has sagas twice: define all of them in one", self.name));
        }
        let entry = || {
            let reactor = Reactor::Handler(Box::new(Answers(coordinator.clone())));
            Entry { reactor, policy: None, answers: None }
        };
        self.react_to(GIVEN_UP, entry());
        self.flow.emits.extend(coordinator.emits());
        for route in coordinator.routes() {
            self = self.routed(route, entry());
        }
        self.sagas = Some(sagas);
        self
    }
}
