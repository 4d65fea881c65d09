//! One turn of a coordinator: what happens to an instance, in one transaction.
//!
//! ```text
//!   load ─▶ advance ─┬─ a local step: its handler, now; its answer is the next input ─┐
//!             ▲      ├─ commands, sealed for the outbox                               │
//!             │      ├─ timers set and taken back                                     │
//!             │      └─ entries of the history                                        │
//!             └───────────────────────────────────────────────────────────────────────┘
//!   … then save, if the revision is still the one that was loaded
//! ```

use super::{
    Obey,
    notice::{self, Fired, GIVEN_UP, GivenUp},
    seal,
};
use crate::{Outbox, service::Handle};
use malote_core::{
    BoxFuture, Class, Envelope, EventType, Failure, FullStore, Outcome, Sealer, Store, StoreError, Transaction,
    planted,
    saga::{
        Address, DEFINITION, Decision, Entry, INSTANCE, Input, Loaded, Machine, Outline, Reception, Reply, Send,
        Stored, Timer, VERSION, Verdict, What, timer_id,
    },
    topology::{Reaction, Route},
    unread,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

/// How long an answer waits whose instance is not stored yet.
const EARLY: Duration = Duration::from_millis(500);
/// How long a message waits for a process that has code for its version.
const LACKING: Duration = Duration::from_secs(5);

/// The sagas of one service.
pub(crate) struct Coordinator<S: Store> {
    pub(super) service: Arc<str>,
    pub(super) outbox: Outbox<S>,
    machines: BTreeMap<(String, u32), Box<dyn Machine>>,
    locals: HashMap<String, Box<dyn Obey<S>>>,
    pub(crate) faults: Vec<String>,
    /// The type of its timers, which is also their topic.
    timers: EventType,
}

/// What a turn comes to, beside the changed instance.
#[derive(Default)]
pub(super) struct Turn {
    pub out: Vec<Envelope>,
    pub log: Vec<Entry>,
}

impl<S: FullStore> Coordinator<S> {
    pub(super) fn new(service: &str, store: S) -> Self {
        let (outbox, timers) = (Outbox::new(service, store), notice::timer_type(service));
        let (machines, locals) = (BTreeMap::new(), HashMap::new());
        Self { service: service.into(), outbox, machines, locals, faults: Vec::new(), timers }
    }

    pub(super) fn define(&mut self, machine: Box<dyn Machine>) {
        if let Err(bad) = machine.check() {
            self.faults.push(bad.to_string());
        }
        let outline = machine.outline();
        let (name, version) = (outline.saga, outline.version);
        if self.machines.insert((name.clone(), version), machine).is_some() {
            self.faults.push(format!("version {version} of saga {name:?} is defined twice"));
        }
    }

    pub(super) fn local(&mut self, kind: &str, handler: Box<dyn Obey<S>>) {
        if self.locals.insert(kind.to_owned(), handler).is_some() {
            self.faults.push(format!("two handlers for the local command {kind}: one must do"));
        }
    }

    pub(crate) fn outlines(&self) -> Vec<Outline> {
        self.machines.values().map(|machine| machine.outline()).collect()
    }

    /// What is wrong with the definitions, together.
    pub(crate) fn check(&self, service: &str) -> Vec<String> {
        let mut faults = self.faults.clone();
        if *self.service != *service {
            faults.push(format!("the sagas are those of {:?}, and the service is {service:?}", self.service));
        }
        for Outline { saga, steps, .. } in self.outlines() {
            let locals = steps.iter().flat_map(|step| {
                let own = step.deadline_ms.is_none().then_some(&step.asks.command.name);
                own.into_iter().chain(step.undone_by.iter().filter(|u| u.local).map(|u| &u.asks.command.name))
            });
            faults.extend(locals.filter(|kind| !self.locals.contains_key(*kind)).map(|kind| {
                format!("saga {saga:?} has a local step {kind}, and nothing does it: add .local(…) with its handler")
            }));
        }
        faults.sort_unstable();
        faults.dedup();
        faults
    }

    /// What the service reacts to because of its sagas; timers included.
    pub(crate) fn routes(&self) -> Vec<Route> {
        let mut routes: Vec<Route> = Vec::new();
        for route in self.machines.values().flat_map(|machine| machine.outline().routes()) {
            match routes.iter_mut().find(|known| known.consumes == route.consumes) {
                Some(known) => {
                    let new: Vec<_> = route.emits.into_iter().filter(|event| !known.emits.contains(event)).collect();
                    known.emits.extend(new);
                }
                None => routes.push(route),
            }
        }
        routes.push(Route { consumes: self.timers.clone(), by: Reaction::Saga, emits: Vec::new() });
        routes
    }

    /// What it says unasked by an event: the first commands, compensations after a silence, timers.
    pub(crate) fn emits(&self) -> Vec<EventType> {
        let mut emits = vec![self.timers.clone()];
        for step in self.machines.values().flat_map(|machine| machine.outline().steps) {
            let asks = step.deadline_ms.is_some().then_some(step.asks.command);
            emits.extend(
                asks.into_iter()
                    .chain(step.undone_by.into_iter().filter(|undo| !undo.local).map(|undo| undo.asks.command)),
            );
        }
        emits.sort_unstable();
        emits.dedup();
        emits
    }

    /// The versions of a definition that there is code for.
    fn versions(&self, definition: &str) -> Vec<u32> {
        self.machines.keys().filter(|(name, _)| name == definition).map(|(_, version)| *version).collect()
    }

    pub(super) fn machine(&self, definition: &str, version: u32) -> Option<&dyn Machine> {
        self.machines.get(&(definition.to_owned(), version)).map(|machine| &**machine)
    }

    /// The newest version of each definition.
    pub(super) fn newest(&self, definition: &str) -> Option<u32> {
        self.versions(definition).into_iter().max()
    }

    fn store(&self) -> &S {
        self.outbox.store()
    }

    /// What a failure means.
    pub(super) fn class(&self, failure: &Failure) -> Class {
        match failure {
            Failure::Error(error) => self.store().classify(&**error),
            Failure::Reject(_) => Class::Final,
            _ => Class::Transient,
        }
    }

    /// A failure as an error of the store that was used, with what was being attempted.
    pub(super) fn error(&self, doing: String, failure: Failure) -> StoreError {
        let class = self.class(&failure);
        let source = match failure {
            Failure::Error(error) => error,
            other => other.to_string().into(),
        };
        StoreError { doing, class, source }
    }

    pub(super) async fn start(&self, tx: &mut S::Tx, saga: &str, id: Uuid, state: String) -> Result<bool, StoreError> {
        let started = self.try_to_start(tx, saga, id, state).await;
        started.map_err(|failure| self.error(format!("starting saga {saga} {id}"), failure))
    }

    async fn try_to_start(&self, tx: &mut S::Tx, saga: &str, id: Uuid, state: String) -> Outcome<bool> {
        let machine = self.newest(saga).and_then(|version| self.machine(saga, version));
        let Some(machine) = machine else {
            return Err(Failure::reject(format!("{} has no definition of a saga {saga:?}", self.service)));
        };
        let mut instance = machine.begin_stored(id, state)?;
        // first the row: of two who begin it at once, one waits here for the other
        if !self.store().insert_saga(tx, &instance, &[]).await? {
            return Ok(false);
        }
        let (_, turn) = self.carry_out(tx, machine, &mut instance, Input::Started).await?;
        self.save(tx, &instance, &turn.log).await?;
        tx.append(turn.out).await?;
        Ok(true)
    }

    /// An answer, a timer or a notice has come for an instance.
    async fn receive(&self, tx: &mut S::Tx, to: To, input: Input) -> Outcome<Vec<Envelope>> {
        let versions = self.versions(&to.definition);
        let loaded = self.store().load_saga(tx, to.saga).await?;
        let mut instance = match (to.reception(&versions, &loaded), loaded) {
            (Reception::NotMine, _) => return Ok(Vec::new()),
            (Reception::Ended, _) => {
                tracing::debug!(service = %self.service, saga = %to.saga, "too late: the saga has ended and was removed");
                return Ok(Vec::new());
            }
            (Reception::Lacking, _) if planted::is("saga-lacking-dropped") => return Ok(Vec::new()),
            (Reception::Lacking, _) => {
                let (name, version) = (&to.definition, to.version);
                tracing::warn!(service = %self.service, saga = %to.saga, "left alone: no code for version {version} of {name}");
                return Err(to.lacking());
            }
            (Reception::Advance, Loaded::Present(instance)) => instance,
            (Reception::Early | Reception::Advance, _) => return Err(to.early()),
        };
        let Some(machine) = self.machine(&instance.definition, instance.version) else {
            return Err(to.lacking());
        };
        let (_, turn) = self.carry_out(tx, machine, &mut instance, input).await?;
        self.save(tx, &instance, &turn.log).await?;
        Ok(turn.out)
    }

    /// Has the saga decide, and does what it says, until nothing local is left to do. The instance is
    /// changed, and not saved. Where the input is denied, nothing has been done.
    pub(super) async fn carry_out(
        &self,
        tx: &mut S::Tx,
        machine: &dyn Machine,
        instance: &mut Stored,
        input: Input,
    ) -> Outcome<(Verdict, Turn)> {
        let (mut turn, mut inputs, mut verdict) = (Turn::default(), VecDeque::from([input]), None);
        while let Some(input) = inputs.pop_front() {
            let decision = machine.advance_stored(instance, input)?;
            let Decision { sends, timers, mut log, verdict: this, ended } = decision;
            for timer in timers {
                self.set(tx, instance, timer).await?;
            }
            for send in sends {
                match send.local {
                    true => inputs.push_back(self.do_here(tx, send).await?),
                    false => turn.out.push(asked(tx, send, &mut log)?),
                }
            }
            turn.log.extend(log);
            if let Some(status) = ended {
                tracing::debug!(service = %self.service, saga = %instance.id, "{}", status.as_str());
            }
            verdict.get_or_insert(this);
        }
        Ok((verdict.unwrap_or(Verdict::Acted), turn))
    }

    async fn set(&self, tx: &mut S::Tx, instance: &Stored, timer: Timer) -> Outcome {
        match timer {
            Timer::Cancel { .. } if planted::is("saga-timers-not-cancelled") => {}
            Timer::Cancel { .. } if planted::is("saga-timers-all-cancelled") => {
                for name in instance.legs.iter().filter_map(|leg| leg.doing.timer.as_ref()) {
                    tx.cancel(timer_id(instance.id, name)).await?;
                }
            }
            Timer::Cancel { name } => {
                tx.cancel(timer_id(instance.id, &name)).await?;
            }
            Timer::Set { name, after } => {
                let version = (&*instance.definition, instance.version);
                let (message, attributes) = notice::timer(&self.timers, version, instance.id, &name);
                let sealed = seal(&mut *tx, message, attributes)?;
                tx.schedule(after.into(), Envelope { id: timer_id(instance.id, &name), ..sealed }).await?;
            }
        }
        Ok(())
    }

    /// A local step: its answer.
    async fn do_here(&self, tx: &mut S::Tx, send: Send) -> Outcome<Input> {
        let Some(handler) = self.locals.get(&send.message.kind) else {
            return Err(Failure::retry(format!(
                "{} has no handler for the local command {}",
                self.service, send.message.kind
            )));
        };
        // an envelope only in form: it is not sent, so it leaves no span
        let silent = Sealer { tracer: None, ..tx.sealer().clone() };
        let sealed = silent.seal(send.message).map_err(|unfit| Failure::reject(unfit.to_string()))?;
        let operation = send.address.operation.clone();
        let envelope = Envelope { headers: send.address.headers(), ..sealed };
        let answer = handler.obey(&envelope, tx).await?;
        Ok(Input::Reply(Reply { operation, kind: answer.kind, payload: answer.payload, envelope: None }))
    }

    pub(super) async fn save(&self, tx: &mut S::Tx, instance: &Stored, log: &[Entry]) -> Result<(), StoreError> {
        if self.store().save_saga(tx, instance, log).await? {
            return Ok(());
        }
        Err(StoreError {
            doing: format!("saving saga {}", instance.id),
            class: Class::Conflict,
            source: "somebody else changed it in the meantime".into(),
        })
    }
}

/// Seals a command, and writes its envelope into the history.
fn asked<T: Transaction>(tx: &mut T, send: Send, log: &mut [Entry]) -> Outcome<Envelope> {
    let operation = send.address.operation.clone();
    let envelope = seal(tx, send.message, send.address.headers())?;
    let intent = |entry: &&mut Entry| {
        entry.what == What::Asked
            && entry.envelope.is_none()
            && entry.operation(operation.saga).is_some_and(|of| of == operation)
    };
    if let Some(entry) = log.iter_mut().find(intent) {
        entry.envelope = Some(envelope.id);
    }
    Ok(envelope)
}

/// To which instance something is addressed.
struct To {
    definition: String,
    version: u32,
    saga: Uuid,
    address: Option<Address>,
}

impl To {
    fn early(&self) -> Failure {
        let Self { definition, saga, .. } = self;
        Failure::defer(
            EARLY,
            format!(
                "saga {saga} of {definition} is not here: its start has not committed yet, or it is in another database, \
             or lost. Looked for again every {EARLY:?}; meanwhile what has the same key waits"
            ),
        )
    }

    fn lacking(&self) -> Failure {
        let Self { definition, version, saga, .. } = self;
        Failure::defer(
            LACKING,
            format!("saga {saga}: this process has no code for version {version} of {definition}; start one that has"),
        )
    }

    fn reception(&self, versions: &[u32], loaded: &Loaded) -> Reception {
        match &self.address {
            Some(address) => address.receive(versions, loaded.row()),
            // a timer: set in the transaction of the instance, so it is never early
            None => match loaded {
                _ if versions.is_empty() => Reception::NotMine,
                Loaded::Present(_) if versions.contains(&self.version) => Reception::Advance,
                Loaded::Present(_) => Reception::Lacking,
                Loaded::Absent | Loaded::Tombstone(_) => Reception::Ended,
            },
        }
    }
}

/// Hands answers, timers and notices to the coordinator.
pub(crate) struct Answers<S: Store>(pub(crate) Arc<Coordinator<S>>);

impl<S: FullStore> Handle<S> for Answers<S> {
    fn handle<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Vec<Envelope>>> {
        let read = read(&self.0.timers, envelope);
        Box::pin(async move {
            match read? {
                Some((to, input)) => self.0.receive(tx, to, input).await,
                // an event of this type that no saga asked for
                None => Ok(Vec::new()),
            }
        })
    }
}

/// What has come, and for whom.
fn read(timers: &EventType, envelope: &Envelope) -> Outcome<Option<(To, Input)>> {
    if envelope.kind == timers.name {
        let fired: Fired = opened(envelope)?;
        return Ok(Some((timer_of(envelope)?, Input::Deadline(fired.timer))));
    }
    let Some(address) = Address::of(envelope).map_err(|bad| Failure::reject(bad.to_string()))? else {
        return Ok(None);
    };
    let operation = address.operation.clone();
    let input = match envelope.kind.as_str() {
        GIVEN_UP => Input::GivenUp { operation, reason: opened::<GivenUp>(envelope)?.reason },
        kind => Input::Reply(Reply {
            operation,
            kind: kind.to_owned(),
            payload: envelope.payload.clone(),
            envelope: Some(envelope.id),
        }),
    };
    let (definition, version, saga) = (address.definition.clone(), address.version, address.operation.saga);
    Ok(Some((To { definition, version, saga, address: Some(address) }, input)))
}

fn timer_of(envelope: &Envelope) -> Outcome<To> {
    let find = |name: &str| {
        let found = envelope.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        found.ok_or_else(|| Failure::reject(format!("a timer without the attribute {name}")))
    };
    let number = |name: &str| Failure::reject(format!("the attribute {name} of a timer cannot be read"));
    Ok(To {
        definition: find(DEFINITION)?,
        version: find(VERSION)?.parse().map_err(|_| number(VERSION))?,
        saga: find(INSTANCE)?.parse().map_err(|_| number(INSTANCE))?,
        address: None,
    })
}

fn opened<T: serde::de::DeserializeOwned>(envelope: &Envelope) -> Outcome<T> {
    let why = |error| Failure::reject(format!("the payload is not a {}: {}", envelope.kind, unread(&error)));
    serde_json::from_slice(&envelope.payload).map_err(why)
}
