//! A transaction that can write, from its first statement on.
//!
//! Whoever gives up on a begin or drops a transaction leaves no transaction open behind; whoever gives
//! up on a commit stops waiting for it, and it is done all the same.

use super::{Sqlite, classify, failed, lock::Locked};
use malote_core::{Class, Envelope, Event, Message, Sealer, StoreError, Transaction, Unfit, When, planted};
use sqlx::{Executor, SqliteConnection};
use std::{
    fmt,
    ops::{Deref, DerefMut},
};
use uuid::Uuid;

/// A transaction on a service's SQLite file. It is sqlx's connection for statements of your own
/// (`.execute(&mut **tx)`), and [`Tx::publish`] is the outbox.
///
/// Dropped without a commit, it is rolled back before its connection is used again.
pub struct Tx {
    locked: Locked,
    store: Sqlite,
    sealer: Sealer,
    appended: bool,
    /// Attempts that have begun and not ended.
    attempts: u32,
    /// How many those were at the savepoint, once there is one.
    at_savepoint: Option<u32>,
}

pub(super) async fn begin(store: &Sqlite, sealer: Sealer) -> Result<Tx, StoreError> {
    let locked = store.lock().await?;
    Ok(Tx { locked, store: store.clone(), sealer, appended: false, attempts: 0, at_savepoint: None })
}

impl Tx {
    /// Says that something happened, in this transaction; returns the envelope's id.
    ///
    /// # Errors
    /// When the event could never be delivered (too large, a NUL in its key), or the statement fails.
    pub async fn publish<E: Event>(&mut self, event: E) -> Result<Uuid, StoreError> {
        let envelope = self.seal("publishing", &event)?;
        let id = envelope.id;
        self.append(vec![envelope]).await?;
        Ok(id)
    }

    /// Says in this transaction that something is to happen later: after a [`Duration`](std::time::Duration)
    /// or at a time, by the database's clock, never before. Returns the envelope's id, for
    /// [`Tx::cancel`].
    ///
    /// # Errors
    /// As [`Tx::publish`].
    pub async fn schedule<E: Event>(&mut self, event: E, when: impl Into<When>) -> Result<Uuid, StoreError> {
        let envelope = self.seal("scheduling", &event)?;
        let id = envelope.id;
        super::timer::schedule(self, when.into(), &envelope).await?;
        Ok(id)
    }

    /// Takes back, in this transaction, what was scheduled; false when it has been sent already.
    ///
    /// # Errors
    /// When the statement fails.
    pub async fn cancel(&mut self, id: Uuid) -> Result<bool, StoreError> {
        super::timer::cancel(self, id).await
    }

    fn seal<E: Event>(&self, doing: &str, event: &E) -> Result<Envelope, StoreError> {
        let unfit = |unfit: Unfit| StoreError {
            doing: format!("{doing} {}", E::TYPE),
            class: Class::Final,
            source: unfit.into(),
        };
        Message::of(event).and_then(|message| self.sealer.seal(message)).map_err(unfit)
    }

    /// Does a part of the transaction that may fail by itself (a savepoint): what it did is undone
    /// when it returns an error, and what came before stays. Dropped half-way, it takes the whole
    /// transaction with it.
    ///
    /// ```no_run
    /// # async fn f(tx: &mut malote_sqlite::Tx) -> Result<(), Box<dyn std::error::Error>> {
    /// let (insert, name) = ("INSERT INTO nickname VALUES ($1)", "bob");
    /// let taken = tx.attempt(async |tx| sqlx::query(insert).bind(name).execute(&mut **tx).await).await?.is_err();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The outer error is the savepoint's own, the inner one that of `work`.
    pub async fn attempt<T, E, W>(&mut self, work: W) -> Result<Result<T, E>, StoreError>
    where
        W: AsyncFnOnce(&mut Self) -> Result<T, E>,
    {
        self.locked.check(GOING_ON)?;
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
        done.map(drop).map_err(failed("attempting a part of a transaction"))
    }

    /// Commits, and wakes the relay if anything was published.
    ///
    /// # Errors
    /// [`Class::Unknown`] when nobody knows whether it took effect; any other class: nothing was changed.
    pub async fn commit(self) -> Result<(), StoreError> {
        self.locked.check(COMMITTING)?;
        if self.attempts > 0 {
            let source =
                "a `tx.attempt()` was dropped before it was done, so nobody knows what belongs to the transaction";
            return Err(StoreError { doing: COMMITTING.into(), class: Class::Final, source: source.into() });
        }
        let Self { locked, store, appended, .. } = self;
        locked
            .commit(COMMITTING, move || {
                if appended {
                    store.wake()
                }
            })
            .await
    }

    /// Rolls back. Dropping does the same without saying how it went.
    ///
    /// # Errors
    /// When the statement fails; the connection is then used no more.
    pub async fn rollback(self) -> Result<(), StoreError> {
        self.locked.rollback("rolling back a transaction").await
    }

    /// Changes what is published from here on is sealed with.
    pub fn sealer(&mut self) -> &mut Sealer {
        &mut self.sealer
    }
}

const COMMITTING: &str = "committing a transaction";
const GOING_ON: &str = "going on with a transaction";

impl Transaction for Tx {
    async fn append(&mut self, envelopes: Vec<Envelope>) -> Result<(), StoreError> {
        if envelopes.is_empty() {
            return Ok(());
        }
        self.locked.check(GOING_ON)?;
        super::outbox::append(self, &envelopes).await?;
        self.appended = true;
        Ok(())
    }

    async fn schedule(&mut self, when: When, envelope: Envelope) -> Result<(), StoreError> {
        super::timer::schedule(self, when, &envelope).await
    }

    async fn cancel(&mut self, id: Uuid) -> Result<bool, StoreError> {
        Self::cancel(self, id).await
    }

    fn check(&self) -> Result<(), StoreError> {
        self.locked.check(GOING_ON)
    }

    async fn set_savepoint(&mut self) -> Result<(), StoreError> {
        self.check()?;
        let moved = self.at_savepoint.replace(self.attempts).is_some();
        self.savepoint(match moved {
            true => "RELEASE SAVEPOINT malote_member; SAVEPOINT malote_member",
            false => "SAVEPOINT malote_member",
        })
        .await
        .map_err(ended)
    }

    async fn undo_to_savepoint(&mut self) -> Result<(), StoreError> {
        // attempts that were given up half-way since then are undone with the rest
        self.attempts = if planted::is("unended-forgotten") { 0 } else { self.at_savepoint.unwrap_or(0) };
        self.savepoint("ROLLBACK TO SAVEPOINT malote_member").await.map_err(ended)
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

impl Deref for Tx {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.locked
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.locked
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("appended", &self.appended).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Wakes every relay that waits, and one that is about to.
    pub(super) fn wake(&self) {
        self.0.appended.notify_waiters();
        self.0.appended.notify_one();
    }
}

/// A savepoint that is not there any more: with some errors SQLite rolls back the whole transaction by itself.
fn ended(error: StoreError) -> StoreError {
    let is_gone = error.source.downcast_ref().is_some_and(classify::is_mistake);
    StoreError { class: if is_gone { Class::Final } else { error.class }, ..error }
}

/// What the failure of a COMMIT means.
pub(super) fn commit_failed(doing: &str, error: sqlx::Error) -> StoreError {
    // there was nothing to commit
    if classify::is_mistake(&error) && !planted::is("end-unseen") {
        return super::ended::ended(doing);
    }
    StoreError { doing: doing.to_owned(), class: classify::of_commit(&error), source: error.into() }
}
