//! A transaction that can write, from its first statement on.
//!
//! `BEGIN` and `COMMIT` run in tasks of their own. A caller who gives up in the middle stops waiting,
//! not the statement; whoever comes next finds a connection on which no transaction is open.

use super::{Sqlite, classify, failed};
use malote_core::{Class, Envelope, Event, Message, Sealer, StoreError, Transaction, Unfit, planted, retry::Backoff};
use sqlx::{SqliteConnection, SqliteTransaction};
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};
use uuid::Uuid;

/// A transaction that can write. It is sqlx's connection for statements of your own
/// (`.execute(&mut **tx)`), and [`Tx::publish`] is the outbox.
///
/// Dropped without a commit, it is rolled back before its connection is used again.
pub struct Tx {
    // the order matters: the rollback is queued before the turn is passed on
    inner: SqliteTransaction<'static>,
    turn: OwnedSemaphorePermit,
    store: Sqlite,
    sealer: Sealer,
    appended: bool,
}

impl Deref for Tx {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.inner
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.inner
    }
}

/// A write transaction without a voice, for what the store does by itself.
pub(super) struct Unsealed {
    inner: SqliteTransaction<'static>,
    turn: OwnedSemaphorePermit,
}

impl Unsealed {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.inner
    }

    /// Commits in a task of its own.
    pub(super) async fn commit(self, doing: &str) -> Result<(), StoreError> {
        let Self { inner, turn } = self;
        let committed = tokio::spawn(async move {
            let result = inner.commit().await;
            drop(turn);
            result
        });
        let failed = |class, source| StoreError { doing: doing.to_owned(), class, source };
        match committed.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(classify::of_commit(&error), error.into())),
            Err(stopped) => Err(failed(Class::Unknown, stopped.into())),
        }
    }

    pub(super) async fn rollback(self) -> Result<(), sqlx::Error> {
        self.inner.rollback().await
    }
}

impl Sqlite {
    /// Takes the turn, then the write lock.
    pub(super) async fn begin_unsealed(&self) -> Result<Unsealed, StoreError> {
        let error = |class, source| StoreError { doing: "beginning a transaction".into(), class, source };
        let turn = self.0.turn.clone().acquire_owned().await.map_err(|e| error(Class::Transient, e.into()))?;
        let store = self.clone();
        let begin = async move {
            let begun = store.lock().await;
            begun.map(|inner| Unsealed { inner, turn })
        };
        if planted::is("begin-cancellable") {
            return begin.await;
        }
        let (tell, told) = oneshot::channel();
        // when nobody waits any more, the transaction comes back here and is rolled back by its drop
        tokio::spawn(async move { drop(tell.send(begin.await)) });
        told.await.map_err(|e| error(Class::Transient, e.into()))?
    }

    /// `BEGIN IMMEDIATE`, again and again while another process is writing.
    async fn lock(&self) -> Result<SqliteTransaction<'static>, StoreError> {
        let begin = if planted::is("begin-deferred") { "BEGIN" } else { "BEGIN IMMEDIATE" };
        let end = Instant::now() + self.0.lock_wait;
        let pause = Backoff { first: Duration::from_millis(1), most: Duration::from_millis(8) };
        for attempt in 1.. {
            match self.0.writer.begin_with(begin).await {
                Err(busy) if classify::is_busy(&busy) && Instant::now() < end => {
                    tokio::time::sleep(pause.wait(attempt, fastrand::f64())).await;
                }
                other => return other.map_err(failed("beginning a transaction")),
            }
        }
        unreachable!("the attempts do not end by themselves")
    }
}

pub(super) async fn begin(store: &Sqlite, sealer: Sealer) -> Result<Tx, StoreError> {
    let Unsealed { inner, turn } = store.begin_unsealed().await?;
    Ok(Tx { inner, turn, store: store.clone(), sealer, appended: false })
}

impl Tx {
    /// Says something: it is on its way exactly if this transaction commits. Gives the envelope's id.
    pub async fn publish<E: Event>(&mut self, event: E) -> Result<Uuid, StoreError> {
        let unfit = |unfit: Unfit| StoreError {
            doing: format!("publishing {}", E::TYPE),
            class: Class::Final,
            source: unfit.into(),
        };
        let envelope = Message::of(&event).and_then(|message| self.sealer.seal(message)).map_err(unfit)?;
        let id = envelope.id;
        self.append(vec![envelope]).await?;
        Ok(id)
    }

    /// Commits, and wakes the relay if anything was said.
    pub async fn commit(self) -> Result<(), StoreError> {
        Transaction::commit(self).await
    }

    /// Rolls back, and says whether that went well.
    pub async fn rollback(self) -> Result<(), StoreError> {
        Transaction::rollback(self).await
    }
}

impl Transaction for Tx {
    async fn append(&mut self, envelopes: Vec<Envelope>) -> Result<(), StoreError> {
        if envelopes.is_empty() {
            return Ok(());
        }
        super::outbox::append(&mut self.inner, &envelopes).await?;
        self.appended = true;
        Ok(())
    }

    fn sealer(&mut self) -> &mut Sealer {
        &mut self.sealer
    }

    async fn commit(self) -> Result<(), StoreError> {
        let Self { inner, turn, store, appended, .. } = self;
        let committed = Unsealed { inner, turn };
        let done = tokio::spawn(async move {
            let result = committed.commit("committing").await;
            if appended && result.is_ok() {
                store.wake();
            }
            result
        });
        done.await.unwrap_or_else(|stopped| {
            Err(StoreError { doing: "committing".into(), class: Class::Unknown, source: stopped.into() })
        })
    }

    async fn rollback(self) -> Result<(), StoreError> {
        self.inner.rollback().await.map_err(failed("rolling back"))
    }
}

impl Sqlite {
    /// Wakes every relay that waits, and one that is about to.
    fn wake(&self) {
        self.0.appended.notify_waiters();
        self.0.appended.notify_one();
    }
}
