//! Sagas at work: who coordinates them, and who obeys.
//!
//! What happens next is decided elsewhere, without I/O ([`Saga::advance`](malote_core::saga::Saga::advance));
//! here it is carried out. A coordinator is a consumer like any other: an answer, a timer or a notice
//! comes, and in one transaction the instance changes, its history grows, commands go to the outbox and
//! timers are set and taken back. So a process that dies loses nothing, and any number of them may
//! coordinate the same sagas.
//!
//! ```text
//!   start ─┐                             ┌─▶ saga, saga_log
//!   answer ├─▶ inbox ─▶ load ─▶ advance ─┼─▶ outbox ─▶ a participant ─▶ its answer
//!   timer  │                             └─▶ scheduled ─▶ a timer of its own
//!   person ┘
//! ```

mod acts;
mod coordinator;
mod notice;
mod participant;

pub(crate) use acts::Desk;
pub(crate) use coordinator::Answers;
pub(crate) use notice::{GIVEN_UP, given_up};
pub(crate) use participant::{Obey, Obeyed, Obeying, Remote};

use coordinator::Coordinator;
pub use malote_core::saga::{
    Address, Addressed, Answer, BadDefinition, Command, Compensation, Deed, DeedOutcome, Direction, Entry, Group,
    Instance, Leg, LegId, LogRow, Machine, Mistake, Never, OperationId, Outline, Saga, SagaFilter, SagaRow, Status,
    Step, StepKind, StepOutline, StepState, Stored, UnreadableState, What, compensation, compensation_each, each, step,
};
use malote_core::{Class, FullStore, Handler, Message, Outcome, Store, StoreError, inspect::Act};
use serde::{Serialize, de::DeserializeOwned};
use std::{marker::PhantomData, sync::Arc};
use uuid::Uuid;

/// The sagas that a service coordinates: their definitions, and the handlers of their local steps.
///
/// ```no_run
/// # #[cfg(feature = "sqlite")] mod example {
/// # use malote::{Outcome, Outbox, Service, Transport, saga::{Saga, Sagas}, sqlite::Sqlite};
/// # use std::sync::Arc;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Order { id: uuid::Uuid }
/// # fn place_order() -> Saga<Order> { Saga::named("place-order", 1) }
/// # async fn run(store: Sqlite, log: Arc<dyn Transport>, outbox: Outbox<Sqlite>, order: Order) -> Outcome {
/// let sagas = Sagas::new("order", store.clone()).define(place_order());
/// let service = Service::new("order", store, log).sagas(sagas.clone());
/// // at the edge, in the transaction that takes the order
/// let mut tx = outbox.begin().await?;
/// sagas.start(&mut tx, "place-order", order.id, &order).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// # use malote::Transaction;
/// # }
/// ```
pub struct Sagas<S: Store>(Arc<Coordinator<S>>);

impl<S: Store> Clone for Sagas<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: FullStore> Sagas<S> {
    /// None yet; `service` is the name of the service that coordinates them, on its own store.
    pub fn new(service: &str, store: S) -> Self {
        Self(Arc::new(Coordinator::new(service, store)))
    }

    /// Adds a definition. Several versions of one may stand side by side: an instance ends under the
    /// version under which it began, new ones begin under the newest.
    pub fn define(self, machine: impl Machine) -> Self {
        self.change(|coordinator| coordinator.define(Box::new(machine)))
    }

    /// Adds the handler of a local step, or of a local compensation: it runs within the transaction that
    /// advances the saga, and its answer goes on from there. When it fails, nothing has happened, and the
    /// message that led to it is tried again.
    pub fn local<M, H>(self, handler: H) -> Self
    where
        M: 'static,
        H: Handler<S, M, Emits = Answer<<H as Handler<S, M>>::Consumes>>,
        H::Consumes: Command,
    {
        let obeyed = Obeyed(handler, PhantomData::<fn(M)>);
        self.change(|coordinator| coordinator.local(<H::Consumes as malote_core::Event>::TYPE, Box::new(obeyed)))
    }

    fn change(self, change: impl FnOnce(&mut Coordinator<S>)) -> Self {
        let mut coordinator = self.0;
        match Arc::get_mut(&mut coordinator) {
            Some(own) => change(own),
            None => {
                // a clone is at work already: what it does not know would never be done
                let mut own = Coordinator::new(&coordinator.service, coordinator.outbox.store().clone());
                own.faults.push("sagas were defined after a clone had been made: define all of them first".into());
                coordinator = Arc::new(own);
            }
        }
        Self(coordinator)
    }

    /// Begins a saga in the caller's transaction, under the newest version of its definition: it exists,
    /// and its first commands are in the outbox, when that commits. False, and nothing written, where one
    /// of this id has begun before, even if it has ended and been removed.
    ///
    /// # Errors
    /// When the store cannot be used, when there is no such definition, when the state cannot be written as JSON, and
    /// when a local step fails; the transaction is of no use then.
    pub async fn start<T: Serialize + Sync>(
        &self,
        tx: &mut S::Tx,
        saga: &str,
        id: Uuid,
        state: &T,
    ) -> Result<bool, StoreError> {
        let written = serde_json::to_string(state).map_err(|error| StoreError {
            doing: format!("writing the state of saga {saga} {id}"),
            class: Class::Final,
            source: error.into(),
        });
        self.0.start(tx, saga, id, written?).await
    }

    /// Does what a person asks, now; see [`Deed`]. What came of it is in the audit, too.
    pub async fn act(&self, act: &Act, saga: Uuid, deed: &Deed) -> Result<DeedOutcome, StoreError> {
        self.0.act(act, saga, deed).await
    }

    /// An instance as it is stored, outside of any transaction; none where it is not there, or only its
    /// tombstone.
    pub async fn find(&self, id: Uuid) -> Result<Option<Stored>, StoreError> {
        self.0.outbox.store().saga(id).await
    }

    /// An instance with its state; see [`find`](Self::find).
    pub async fn read<T: DeserializeOwned>(&self, id: Uuid) -> Outcome<Option<Instance<T>>> {
        let stored = self.find(id).await?;
        let typed: Result<Option<Instance<T>>, UnreadableState> = stored.map(Stored::into_typed).transpose();
        Ok(typed?)
    }

    /// The definitions as data.
    pub fn outlines(&self) -> Vec<Outline> {
        self.0.outlines()
    }
}

impl<S: Store> Sagas<S> {
    pub(crate) fn coordinator(&self) -> &Arc<Coordinator<S>> {
        &self.0
    }
}

/// Seals messages that belong to a saga, with its attributes.
pub(crate) fn seal<T: malote_core::Transaction>(
    tx: &mut T,
    message: Message,
    attributes: Vec<(String, String)>,
) -> Outcome<malote_core::Envelope> {
    let sealed = tx.sealer().seal(message).map_err(|unfit| malote_core::Failure::reject(unfit.to_string()))?;
    let envelope = malote_core::Envelope { headers: attributes, ..sealed };
    envelope.check().map_err(|unfit| malote_core::Failure::reject(unfit.to_string()))?;
    Ok(envelope)
}
