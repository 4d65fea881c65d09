//! The write lock: a turn within the process, then `BEGIN IMMEDIATE` among the processes.
//!
//! ```text
//!   lock() ── turn ──▶ BEGIN IMMEDIATE, again while busy ──▶ Locked ── commit() ──▶ a task: COMMIT
//!     │ given up half-way                                      │ dropped
//!     └── sqlx's thread rolls back what nobody has taken       └── ROLLBACK, queued before the turn
//!                                                                  is passed on
//! ```
//!
//! A BEGIN that is sent as a statement like any other stays open when its caller gives up, and the
//! next user of the connection writes into a transaction that nobody commits. So it goes through
//! `begin_with`, which sqlx takes back; and a connection that is found in a transaction when it
//! returns to the pool is closed.

use super::{Sqlite, classify, ended::Watch, failed, tx::commit_failed};
use malote_core::{Class, StoreError, planted, retry::Backoff};
use sqlx::{SqliteConnection, SqlitePool, SqliteTransaction};
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use tokio::{runtime::Handle, sync::OwnedSemaphorePermit, time::Instant};

const BEGINNING: &str = "beginning a transaction";

/// An open transaction that holds the write lock.
pub(super) struct Locked {
    /// Always there, until the drop.
    open: Option<SqliteTransaction<'static>>,
    turn: Option<OwnedSemaphorePermit>,
    watch: Watch,
    store: Sqlite,
    /// Where the clean-up runs, wherever this is dropped.
    runtime: Handle,
}

impl Sqlite {
    /// Takes the turn, then the write lock.
    pub(super) async fn lock(&self) -> Result<Locked, StoreError> {
        self.lock_on(&self.0.writer, &self.0.writing).await
    }

    /// The same for a commit that need not wait for the disk: what it writes is there after the death
    /// of the process, and its loss in a power cut, which ends every process, does no harm.
    pub(super) async fn lock_light(&self) -> Result<Locked, StoreError> {
        self.lock_on(&self.0.light, &self.0.writing_light).await
    }

    async fn lock_on(&self, writer: &SqlitePool, watch: &Watch) -> Result<Locked, StoreError> {
        let turn = self.0.turn.clone().acquire_owned().await.map_err(|closed| StoreError {
            doing: BEGINNING.into(),
            class: Class::Transient,
            source: closed.into(),
        })?;
        if planted::is("begin-as-a-statement") {
            let mut naive = self.0.writer.acquire().await.map_err(failed(BEGINNING))?;
            sqlx::Executor::execute(&mut *naive, "BEGIN IMMEDIATE").await.map_err(failed(BEGINNING))?;
            sqlx::Executor::execute(&mut *naive, "COMMIT").await.map_err(failed(BEGINNING))?;
        }
        let begin = if planted::is("begin-deferred") { "BEGIN" } else { "BEGIN IMMEDIATE" };
        let open = self.patiently(|| writer.begin_with(begin)).await.map_err(failed(BEGINNING))?;
        watch.begun();
        Ok(Locked {
            open: Some(open),
            turn: Some(turn),
            watch: watch.clone(),
            store: self.clone(),
            runtime: Handle::current(),
        })
    }

    /// Opens the connection that writes, if there is none yet.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        let connected = self.patiently(|| self.0.writer.acquire()).await;
        connected.map(drop).map_err(failed("connecting"))
    }

    /// Again and again while another process has what is wanted.
    async fn patiently<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let end = Instant::now() + self.0.lock_wait;
        let pause = Backoff { first: Duration::from_millis(1), most: Duration::from_millis(8) };
        let mut attempts = 0u32;
        loop {
            match attempt().await {
                Err(busy) if classify::is_busy(&busy) && Instant::now() < end => {
                    attempts = attempts.saturating_add(1);
                    tokio::time::sleep(pause.wait(attempts, fastrand::f64())).await;
                }
                done => return done,
            }
        }
    }
}

impl Locked {
    /// Commits in a task of its own, and when that went well does `then`.
    pub(super) async fn commit(mut self, doing: &str, then: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        self.watch.committing(doing)?;
        let (open, turn, store, watch) = (self.open.take(), self.turn.take(), self.store.clone(), self.watch.clone());
        let commit = async move {
            if let Some(open) = open {
                open.commit().await?;
            }
            watch.over_now();
            drop(turn);
            then();
            store.after_commit();
            Ok(())
        };
        if planted::is("commit-cancellable") {
            return commit.await.map_err(|error| commit_failed(doing, error));
        }
        match tokio::spawn(commit).await {
            Ok(result) => result.map_err(|error| commit_failed(doing, error)),
            Err(stopped) => Err(StoreError { doing: doing.into(), class: Class::Unknown, source: stopped.into() }),
        }
    }

    /// Fails when the transaction is not there any more.
    pub(super) fn check(&self, doing: &str) -> Result<(), StoreError> {
        self.watch.check(doing)
    }

    pub(super) async fn rollback(mut self, doing: &str) -> Result<(), StoreError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.rollback().await.map_err(failed(doing))?;
        self.watch.over_now();
        Ok(())
    }
}

impl Drop for Locked {
    /// sqlx queues the rollback at once; the connection returns to its pool in a task, for which the
    /// runtime is needed on which it began. Only then is the turn passed on.
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        drop(self.open.take());
        drop(self.turn.take());
    }
}

// `open` is empty only while the value is being consumed, when nobody can dereference it.
const OPEN: &str = "a transaction is open until it is consumed";

impl Deref for Locked {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        self.open.as_ref().expect(OPEN)
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.open.as_mut().expect(OPEN)
    }
}
