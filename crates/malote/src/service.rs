//! One named participant: a store, a transport, and what it reacts to.

use crate::Outbox;
use malote_core::{
    BoxFuture, Effect, Envelope, Event, EventType, Events, Failure, Handler, IdempotencyKey, Message, Outcome, Record,
    Store, Transport,
    retry::Backoff,
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
    pub(crate) routes: HashMap<String, Reactor<S>>,
    pub(crate) settings: Settings,
    pub(crate) faults: Vec<String>,
    flow: ServiceFlow,
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
    /// Waits between attempts.
    pub backoff: Backoff,
    /// How many effects may be under way at once.
    pub effects: usize,
    /// Whether this process moves the outbox.
    pub relay: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            batch: 500,
            idle_poll: Duration::from_millis(2500),
            backoff: Backoff::default(),
            effects: 16,
            relay: true,
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
            settings: Settings::default(),
            faults: Vec::new(),
            flow: ServiceFlow { name: name.into(), ..ServiceFlow::default() },
        }
    }

    /// Adds a handler: its signature says what it consumes and what it emits.
    pub fn on<M: 'static, H: Handler<S, M>>(self, handler: H) -> Self {
        let opened = Opened(handler, std::marker::PhantomData::<fn(M)>);
        self.route::<H::Consumes, H::Emits>(Reaction::Handler, Reactor::Handler(Box::new(opened)))
    }

    /// Adds an effect, and what writes down what came of it.
    pub fn effect<M, E, R, O>(self, effect: E, record: R) -> Self
    where
        M: 'static,
        E: Effect<M>,
        R: Record<S, E::Yields, O>,
        O: Events,
    {
        let noted = Noted { effect, record: Arc::new(record), types: std::marker::PhantomData::<fn(M, O)> };
        self.route::<E::Consumes, O>(Reaction::Effect, Reactor::Effect(Box::new(noted)))
    }

    fn route<E: Event, O: Events>(mut self, by: Reaction, reactor: Reactor<S>) -> Self {
        let mut emits = Vec::new();
        O::types(&mut emits);
        if self.routes.insert(E::TYPE.to_owned(), reactor).is_some() {
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

    /// Waits between attempts (50 ms to 10 s by default).
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

    /// For edges: begins transactions in which this service speaks.
    pub fn outbox(&self) -> Outbox<S> {
        Outbox::new(&self.name, self.store.clone())
    }
}
