//! [`Tx`]: a transaction that can publish.
//!
//! It dereferences to sqlx's connection, so a service's own statements run on it (`&mut *tx` of a
//! `Tx`, `&mut **tx` of a `&mut Tx`). It is malote's own type so that `publish` knows why something is
//! said, commit can wake the relay, and nothing is left open:
//!
//! * Dropped, it rolls back before its connection is handed to anyone (see `connect.rs`).
//! * A transaction in which a statement failed is dead, but PostgreSQL answers its `COMMIT` with
//!   `ROLLBACK` and no error. `commit` sends `SELECT` along, which fails in a dead transaction, so a
//!   swallowed error is not taken for success. `AND CHAIN` leaves a transaction open for sqlx, which
//!   believes to be in one, to roll back.

use crate::{Problem, error::class_of_commit, store::Inner};
use malote_core::{Class, Envelope, Event, Message, Sealer, StoreError, Transaction, When, planted};
use sqlx::{Executor, PgConnection, Postgres as Db};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Handle;
use uuid::Uuid;

/// A transaction on a service's PostgreSQL database.
pub struct Tx {
    /// Always there, until the drop.
    open: Option<sqlx::Transaction<'static, Db>>,
    sealer: Sealer,
    inner: Arc<Inner>,
    appended: bool,
    /// Attempts that have begun and not ended.
    attempts: u32,
    /// How many those were at the savepoint, once there is one.
    at_savepoint: Option<u32>,
    /// Whether its statements have a time limit.
    bounded: bool,
    /// Where the clean-up runs, wherever this is dropped.
    runtime: Handle,
}

impl Tx {
    /// No statement goes on for longer than `most`, where that is given.
    pub(crate) async fn begin(inner: Arc<Inner>, sealer: Sealer, most: Option<Duration>) -> Result<Self, StoreError> {
        let open = match inner.begin_bounded(most).await {
            // The pool does not test connections before use. Nothing has been done yet, so when this
            // one turns out to be dead the next, which is a fresh one, may do it.
            Err(error) if matches!(error, sqlx::Error::Io(_) | sqlx::Error::Database(_)) => {
                inner.trust.learn(&error);
                inner.begin_bounded(most).await
            }
            begun => begun,
        };
        let open = open.map_err(|error| inner.failed("beginning a transaction", error))?;
        Ok(Self {
            open: Some(open),
            sealer,
            inner,
            appended: false,
            attempts: 0,
            at_savepoint: None,
            bounded: most.is_some(),
            runtime: Handle::current(),
        })
    }

    /// Says that something happened, in this transaction; returns the envelope's id.
    ///
    /// # Errors
    /// When the event could never be delivered (too large, a NUL in its key), or the statement fails.
    pub async fn publish<E: Event>(&mut self, event: E) -> Result<Uuid, StoreError> {
        let envelope = self.seal(&event, "publishing")?;
        let id = envelope.id;
        Transaction::append(self, vec![envelope]).await?;
        Ok(id)
    }

    /// Says something later, in this transaction: after a time or at one, by the database's clock, never
    /// before it. Returns the envelope's id, by which it can be taken back until then.
    ///
    /// # Errors
    /// See [`Tx::publish`].
    pub async fn schedule<E: Event>(&mut self, event: E, when: impl Into<When>) -> Result<Uuid, StoreError> {
        let envelope = self.seal(&event, "scheduling")?;
        let id = envelope.id;
        Transaction::schedule(self, when.into(), envelope).await?;
        Ok(id)
    }

    /// Takes back what was scheduled, in this transaction; false when it has been sent, or taken back.
    ///
    /// # Errors
    /// When the statement fails.
    pub async fn cancel(&mut self, id: Uuid) -> Result<bool, StoreError> {
        Transaction::cancel(self, id).await
    }

    fn seal<E: Event>(&self, event: &E, doing: &str) -> Result<Envelope, StoreError> {
        let sealed = Message::of(event).and_then(|message| self.sealer.seal(message));
        sealed.map_err(|unfit| Problem::from(unfit).while_doing(format!("{doing} {}", E::TYPE)))
    }

    /// Commits, and wakes the relay if anything was published.
    ///
    /// # Errors
    /// [`malote_core::Class::Unknown`] when the connection was lost meanwhile: it may have taken effect. Any other
    /// class: nothing was changed; so too when an earlier error of this transaction was swallowed.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        if self.attempts > 0 {
            return Err(Problem::Unended.while_doing("committing a transaction"));
        }
        // A limit would end the wait for a synchronous copy, too, and the commit would count as done without it.
        let statement = match self.bounded {
            _ if planted::is("commit-unchecked") => "COMMIT AND CHAIN",
            true => "SET LOCAL statement_timeout = 0; COMMIT AND CHAIN",
            false => "SELECT; COMMIT AND CHAIN",
        };
        let committed = Executor::execute(&mut *self, statement).await;
        if let Err(error) = committed {
            let class = class_of_commit(&error);
            return Err(StoreError { class, ..self.inner.failed("committing a transaction", error) });
        }
        if self.appended {
            self.inner.wake.appended(&self.inner);
        }
        Ok(())
    }

    /// Rolls back. Dropping does the same without saying how it went.
    ///
    /// # Errors
    /// When the connection is lost; then the server rolls back by itself.
    pub async fn rollback(mut self) -> Result<(), StoreError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.rollback().await.map_err(|error| self.inner.failed("rolling back a transaction", error))
    }

    /// Does something that may fail without spoiling the transaction (a savepoint). When it fails,
    /// what it did is undone and what came before stays. The outer result says whether the savepoint
    /// itself went well, the inner one is `work`'s own.
    ///
    /// ```no_run
    /// # async fn f(tx: &mut malote_postgres::Tx) -> Result<(), Box<dyn std::error::Error>> {
    /// let name = "bob";
    /// let insert = "INSERT INTO nickname VALUES ($1)";
    /// let taken = tx.attempt(async |tx| sqlx::query(insert).bind(name).execute(&mut **tx).await).await?.is_err();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the connection is lost. If the future is dropped before it is done, the transaction can
    /// no longer commit.
    pub async fn attempt<T, E, W>(&mut self, work: W) -> Result<Result<T, E>, StoreError>
    where
        W: AsyncFnOnce(&mut Self) -> Result<T, E>,
    {
        self.savepoint("SAVEPOINT malote_attempt").await?;
        self.attempts += 1;
        let outcome = work(self).await;
        let end = match outcome {
            Ok(_) => "RELEASE SAVEPOINT malote_attempt",
            Err(_) => "ROLLBACK TO SAVEPOINT malote_attempt; RELEASE SAVEPOINT malote_attempt",
        };
        self.savepoint(end).await?;
        self.attempts -= 1;
        Ok(outcome)
    }

    async fn savepoint(&mut self, statement: &'static str) -> Result<(), StoreError> {
        let done = Executor::execute(&mut **self, statement).await;
        done.map(drop).map_err(|error| self.inner.failed("attempting a part of a transaction", error))
    }

    /// Changes what is published from here on is sealed with.
    pub fn sealer(&mut self) -> &mut Sealer {
        &mut self.sealer
    }
}

impl Transaction for Tx {
    async fn append(&mut self, envelopes: Vec<Envelope>) -> Result<(), StoreError> {
        if envelopes.is_empty() {
            return Ok(());
        }
        let inner = self.inner.clone();
        inner.append(self, &envelopes).await?;
        self.appended = true;
        Ok(())
    }

    async fn schedule(&mut self, when: When, envelope: Envelope) -> Result<(), StoreError> {
        let inner = self.inner.clone();
        inner.schedule(self, when, &envelope).await
    }

    async fn cancel(&mut self, id: Uuid) -> Result<bool, StoreError> {
        let inner = self.inner.clone();
        inner.cancel(self, id).await
    }

    async fn set_savepoint(&mut self) -> Result<(), StoreError> {
        let moved = self.at_savepoint.replace(self.attempts).is_some();
        self.savepoint(match moved {
            true => "RELEASE SAVEPOINT malote_member; SAVEPOINT malote_member",
            false => "SAVEPOINT malote_member",
        })
        .await
    }

    async fn undo_to_savepoint(&mut self) -> Result<(), StoreError> {
        // attempts that were given up half-way since then are undone with the rest
        self.attempts = if planted::is("unended-forgotten") { 0 } else { self.at_savepoint.unwrap_or(0) };
        const UNDO: &str = "ROLLBACK TO SAVEPOINT malote_member";
        match self.savepoint(UNDO).await {
            // of a statement that nobody waits for any more, and that has failed: the driver hands its error to
            // whoever comes next, and has sent nothing
            Err(error) if error.class == Class::Transient && !planted::is("error-of-another") => {
                self.savepoint(UNDO).await
            }
            done => done,
        }
    }

    fn sealer(&mut self) -> &mut Sealer {
        Self::sealer(self)
    }

    async fn commit(self) -> Result<(), StoreError> {
        Self::commit(self).await
    }

    async fn rollback(self) -> Result<(), StoreError> {
        Self::rollback(self).await
    }
}

// `open` is empty only while the value is being consumed, when nobody can dereference it.
const OPEN: &str = "a transaction is open until it is consumed";

impl Deref for Tx {
    type Target = PgConnection;
    #[allow(clippy::expect_used)]
    fn deref(&self) -> &PgConnection {
        self.open.as_ref().expect(OPEN)
    }
}

impl DerefMut for Tx {
    #[allow(clippy::expect_used)]
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.open.as_mut().expect(OPEN)
    }
}

impl Drop for Tx {
    /// sqlx queues a ROLLBACK and spawns the return to the pool, which needs a runtime: the one it
    /// began on, since this may be dropped anywhere. If that has ended, the connection is closed.
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        drop(self.open.take());
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("appended", &self.appended).finish_non_exhaustive()
    }
}
