//! What an error means, by SQLite's own result codes and never by its text.

use malote_core::{Class, StoreError, Unfit};
use std::error::Error;

/// Primary result codes, the low byte of what SQLite reports.
mod code {
    pub const BUSY: i32 = 5;
    pub const LOCKED: i32 = 6;
    pub const NOMEM: i32 = 7;
    pub const INTERRUPT: i32 = 9;
    pub const IOERR: i32 = 10;
    pub const FULL: i32 = 13;
    pub const CANTOPEN: i32 = 14;
    pub const PROTOCOL: i32 = 15;
    pub const CONSTRAINT: i32 = 19;
}

/// The primary result code of an error that SQLite reported.
fn primary(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|extended| extended & 0xff)
}

/// Whether somebody else holds the lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary(error), Some(code::BUSY | code::LOCKED))
}

fn of_sqlx(error: &sqlx::Error) -> Class {
    match primary(error) {
        Some(code::BUSY | code::LOCKED) => Class::Conflict,
        Some(code::NOMEM | code::INTERRUPT | code::IOERR | code::FULL | code::CANTOPEN | code::PROTOCOL) => {
            Class::Transient
        }
        Some(_) => Class::Final,
        None => match error {
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Class::Transient,
            _ => Class::Final,
        },
    }
}

/// What the failure of a COMMIT means: after most of them nobody knows.
pub(super) fn of_commit(error: &sqlx::Error) -> Class {
    match primary(error) {
        Some(code::BUSY | code::LOCKED) => Class::Conflict,
        Some(code::FULL) => Class::Transient,
        Some(code::CONSTRAINT) => Class::Final,
        _ => Class::Unknown,
    }
}

/// What an error means that came out of a handler; the first of its causes that is known decides.
///
/// An error of somebody else's is tried again: attempts are bounded, and a payment that is given up
/// for a passing fault is worse than one that is tried in vain.
pub(super) fn of(error: &(dyn Error + Send + Sync + 'static)) -> Class {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(known) = error.downcast_ref::<StoreError>() {
            return known.class;
        }
        if let Some(known) = error.downcast_ref::<sqlx::Error>() {
            return of_sqlx(known);
        }
        if error.is::<Unfit>() || error.is::<serde_json::Error>() {
            return Class::Final;
        }
        next = error.source();
    }
    Class::Transient
}

/// Says what was being attempted when the database reported an error.
pub(super) fn failed(doing: impl Into<String>) -> impl FnOnce(sqlx::Error) -> StoreError {
    let doing = doing.into();
    move |source| StoreError { doing, class: of_sqlx(&source), source: Box::new(source) }
}
