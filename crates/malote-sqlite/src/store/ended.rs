//! A transaction that ended before its time, and what is written after it.
//!
//! With some errors (a full disk, `ON CONFLICT ROLLBACK`, `RAISE(ROLLBACK)`) SQLite rolls back the whole
//! transaction by itself; a handler may also say `ROLLBACK` or `COMMIT`. Each statement after that would be a
//! transaction of its own, kept whatever becomes of the message. So SQLite asks here before each commit, and
//! hears yes only for the COMMIT that belongs to a transaction that is still the one that was begun.

use malote_core::{Class, StoreError, planted};
use sqlx::SqliteConnection;
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// What SQLite had to say to a commit that was refused here.
pub(super) const REFUSED: i32 = 531;

/// No transaction of ours: nothing is refused.
const NONE: u8 = 0;
/// Open: whatever commits now is not us.
const OPEN: u8 = 1;
/// It is gone.
const ENDED: u8 = 2;
/// Being committed.
const COMMITTING: u8 = 3;

/// How the one transaction of a connection stands. Its connection tells, in the order of its statements.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<AtomicU8>);

impl Watch {
    /// Watches a new connection.
    pub(super) async fn over(self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut handle = connection.lock_handle().await?;
        let (asked, told) = (self.0.clone(), self.0);
        handle.set_commit_hook(move || {
            matches!(asked.load(Ordering::SeqCst), NONE | COMMITTING) || planted::is("commits-unasked")
        });
        handle.set_rollback_hook(move || {
            let _ = told.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now != NONE).then_some(ENDED));
        });
        Ok(())
    }

    /// A transaction has begun.
    pub(super) fn begun(&self) {
        self.0.store(OPEN, Ordering::SeqCst);
    }

    /// There is none any more.
    pub(super) fn over_now(&self) {
        self.0.store(NONE, Ordering::SeqCst);
    }

    /// Fails when the transaction is not there any more.
    pub(super) fn check(&self, doing: &str) -> Result<(), StoreError> {
        if self.0.load(Ordering::SeqCst) == ENDED && !planted::is("end-unseen") { Err(ended(doing)) } else { Ok(()) }
    }

    /// The next commit is ours, unless there is nothing left to commit.
    pub(super) fn committing(&self, doing: &str) -> Result<(), StoreError> {
        let ours = self.0.compare_exchange(OPEN, COMMITTING, Ordering::SeqCst, Ordering::SeqCst);
        if ours.is_ok() || planted::is("end-unseen") { Ok(()) } else { Err(ended(doing)) }
    }
}

/// What is said of it.
pub(super) fn ended(doing: &str) -> StoreError {
    let source = "the transaction was over already: an error that was swallowed, or a statement, had rolled it back \
                  as a whole. Nothing of it is kept";
    StoreError { doing: doing.to_owned(), class: Class::Final, source: source.into() }
}
