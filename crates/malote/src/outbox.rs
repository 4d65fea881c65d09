//! How an edge (an HTTP handler, a job) writes state and event together.

use crate::{SystemClock, telemetry};
use malote_core::{Cause, Clock, Sealer, Store, StoreError};
use std::sync::Arc;

/// Begins the transactions in which a service speaks without being asked by an event.
///
/// ```no_run
/// # #[cfg(feature = "sqlite")] mod example {
/// # use malote::{Event, Outbox, sqlite::Sqlite};
/// # async fn pay<E: Event>(outbox: Outbox<Sqlite>, received: E) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = outbox.begin().await?;
/// sqlx::query("insert into payments (id) values ($1)").bind("p1").execute(&mut *tx).await?;
/// tx.publish(received).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// # }
/// ```
#[derive(Clone)]
pub struct Outbox<S> {
    store: S,
    source: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl<S: Store> Outbox<S> {
    /// An outbox that speaks as `source`, the service's name.
    pub fn new(source: &str, store: S) -> Self {
        Self { store, source: source.into(), clock: Arc::new(SystemClock) }
    }

    /// Begins a transaction. What it publishes belongs to the trace of the current span.
    pub async fn begin(&self) -> Result<S::Tx, StoreError> {
        self.begin_after(Cause { trace: telemetry::current(), ..Cause::default() }).await
    }

    /// Begins a transaction with a cause of the caller's choice.
    pub async fn begin_after(&self, cause: Cause) -> Result<S::Tx, StoreError> {
        self.store.begin(self.sealer(cause)).await
    }

    /// The store behind it.
    pub fn store(&self) -> &S {
        &self.store
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn sealer(&self, cause: Cause) -> Sealer {
        Sealer { source: self.source.clone(), cause, clock: self.clock.clone(), tracer: telemetry::tracer() }
    }
}
