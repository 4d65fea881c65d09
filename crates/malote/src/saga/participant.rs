//! Obeying a saga's commands: an operation takes effect once, however often it is asked for, and not at
//! all once it has been called off.
//!
//! ```text
//!   command ─▶ answered before? ──▶ the same answer
//!              called off?      ──▶ nothing: its undoing came first
//!              neither          ──▶ (an undoing calls off what it undoes) ─▶ handler ─▶ answer, remembered
//! ```

use super::seal;
use crate::{
    Outbox,
    service::{Call, Handle, Note},
};
use malote_core::{
    BoxFuture, Cause, Effect, Envelope, Failure, FullStore, Handler, IdempotencyKey, Message, Outcome, Record, Store,
    Transaction, planted,
    saga::{Address, Answer, Command, Recalled},
};
use std::{marker::PhantomData, sync::Arc};

/// Opens a command, handles it in a transaction, and gives the answer.
pub(crate) trait Obey<S: Store>: Send + Sync {
    fn obey<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Message>>;
}

/// A command's handler with its types forgotten.
pub(crate) struct Obeyed<M, H>(pub H, pub PhantomData<fn(M)>);

impl<S, M, H> Obey<S> for Obeyed<M, H>
where
    S: Store,
    M: 'static,
    H: Handler<S, M, Emits = Answer<<H as Handler<S, M>>::Consumes>>,
    H::Consumes: Command,
{
    fn obey<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Message>> {
        match envelope.open::<H::Consumes>() {
            Ok(command) => Box::pin(async move { answer::<H::Consumes>(&self.0.handle(command, tx).await?) }),
            Err(unfit) => Box::pin(std::future::ready(Err(Failure::reject(unfit.to_string())))),
        }
    }
}

/// An answer as a message.
fn answer<C: Command>(answer: &Answer<C>) -> Outcome<Message> {
    let message = match answer {
        Ok(done) => Message::of(done),
        Err(refused) => Message::of(refused),
    };
    // what cannot be written as JSON will not be written tomorrow either
    message.map_err(|unfit| Failure::reject(unfit.to_string()))
}

/// What a participant has in its own store.
struct Desk<S> {
    service: Arc<str>,
    store: S,
}

impl<S: FullStore> Desk<S> {
    /// Whether an operation is to be done; if so, what it undoes is called off. Otherwise what to say instead.
    async fn begin(&self, tx: &mut S::Tx, address: &Address) -> Outcome<Result<(), Vec<Envelope>>> {
        match self.store.recall(tx, &self.service, &address.operation).await? {
            Recalled::Answered(_) if planted::is("saga-operation-done-again") => Ok(Ok(())),
            Recalled::Answered(known) => Ok(Err(vec![seal(tx, known, address.headers())?])),
            Recalled::CalledOff => {
                tracing::info!(service = %self.service, operation = %address.operation, "not done: it was undone before it came");
                Ok(Err(Vec::new()))
            }
            Recalled::Unknown => {
                if let Some(undone) = &address.undoes
                    && !planted::is("saga-undo-calls-nothing-off")
                {
                    self.store.call_off(tx, &self.service, undone).await?;
                }
                Ok(Ok(()))
            }
        }
    }

    /// Remembers an answer and seals it.
    async fn end(&self, tx: &mut S::Tx, address: &Address, answer: Message) -> Outcome<Vec<Envelope>> {
        self.store.remember(tx, &self.service, &address.operation, &answer).await?;
        Ok(vec![seal(tx, answer, address.headers())?])
    }
}

fn address_of(envelope: &Envelope) -> Outcome<Option<Address>> {
    Address::of(envelope).map_err(|bad| Failure::reject(bad.to_string()))
}

/// A command's handler at work.
pub(crate) struct Obeying<S: Store> {
    desk: Desk<S>,
    handler: Box<dyn Obey<S>>,
}

impl<S: FullStore> Obeying<S> {
    pub(crate) fn new(service: &Arc<str>, store: &S, handler: Box<dyn Obey<S>>) -> Self {
        Self { desk: Desk { service: service.clone(), store: store.clone() }, handler }
    }
}

impl<S: FullStore> Handle<S> for Obeying<S> {
    fn handle<'t>(&'t self, envelope: &Envelope, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Vec<Envelope>>> {
        let envelope = envelope.clone();
        Box::pin(async move {
            let Some(address) = address_of(&envelope)? else {
                // nobody's saga: a command like any event
                let answer = self.handler.obey(&envelope, tx).await?;
                return Ok(vec![seal(tx, answer, Vec::new())?]);
            };
            match self.desk.begin(tx, &address).await? {
                Err(instead) => Ok(instead),
                Ok(()) => {
                    let answer = self.handler.obey(&envelope, tx).await?;
                    self.desk.end(tx, &address, answer).await
                }
            }
        })
    }
}

/// A command that is obeyed by a call to the outside, at work.
pub(crate) struct Remote<S: Store, M, E, R> {
    desk: Arc<Desk<S>>,
    outbox: Outbox<S>,
    effect: E,
    record: Arc<R>,
    types: PhantomData<fn(M)>,
}

impl<S: FullStore, M, E, R> Remote<S, M, E, R> {
    pub(crate) fn new(service: &Arc<str>, store: &S, effect: E, record: R) -> Self {
        let desk = Arc::new(Desk { service: service.clone(), store: store.clone() });
        let outbox = Outbox::new(service, store.clone());
        Self { desk, outbox, effect, record: Arc::new(record), types: PhantomData }
    }

    /// Looks, before the call, whether it is to be made; what it undoes is called off for good before.
    async fn begin(&self, envelope: &Envelope, address: &Address) -> Outcome<Result<(), Note<S>>> {
        let mut tx = self.desk.store.begin(self.outbox.sealer(Cause::of(envelope))).await?;
        let begun = self.desk.begin(&mut tx, address).await?;
        tx.commit().await?;
        Ok(begun.map_err(|instead| -> Note<S> { Box::new(move |_| Box::pin(std::future::ready(Ok(instead)))) }))
    }
}

impl<S, M, E, R> Call<S> for Remote<S, M, E, R>
where
    S: FullStore,
    M: 'static,
    E: Effect<M>,
    E::Consumes: Command,
    R: Record<S, E::Yields, Answer<E::Consumes>>,
{
    fn call<'t>(&'t self, envelope: &Envelope, key: IdempotencyKey) -> BoxFuture<'t, Outcome<Note<S>>> {
        let envelope = envelope.clone();
        Box::pin(async move {
            let command = envelope.open::<E::Consumes>().map_err(|unfit| Failure::reject(unfit.to_string()))?;
            let address = address_of(&envelope)?;
            let mut key = key;
            if let Some(address) = &address {
                if let Err(instead) = self.begin(&envelope, address).await? {
                    return Ok(instead);
                }
                if !planted::is("saga-key-per-call") {
                    key = address.operation.idempotency_key();
                }
            }
            let yielded = self.effect.call(command, key).await?;
            let (desk, record) = (self.desk.clone(), self.record.clone());
            let note: Note<S> = Box::new(move |tx| {
                Box::pin(async move {
                    if let Some(address) = &address
                        && let Recalled::Answered(known) =
                            desk.store.recall(tx, &desk.service, &address.operation).await?
                    {
                        // somebody else made the same call, under the same key, and was faster
                        return Ok(vec![seal(tx, known, address.headers())?]);
                    }
                    let answer = answer::<E::Consumes>(&record.record(yielded, tx).await?)?;
                    match &address {
                        Some(address) => desk.end(tx, address, answer).await,
                        None => Ok(vec![seal(tx, answer, Vec::new())?]),
                    }
                })
            });
            Ok(note)
        })
    }
}
