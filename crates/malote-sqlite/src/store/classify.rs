//! What an error means, by SQLite's own result codes and never by its text.
//!
//! | code | class | why |
//! |---|---|---|
//! | BUSY, LOCKED | conflict | two transactions met; the same again works |
//! | NOMEM, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL | transient | the machine is short of something |
//! | CONSTRAINT_UNIQUE, _PRIMARYKEY, _FOREIGNKEY, _ROWID | transient | depends on rows of others, which change |
//! | ERROR | transient | a missing table or column: a person deploys, then it works |
//! | anything else | final | the same tomorrow |
//! | most of them during COMMIT | unknown | it may have taken effect |
//!
//! Transient errors are tried a bounded number of times, so a mistake among them ends as well.

use malote_core::{Class, StoreError, Unfit};
use std::error::Error;

/// Primary result codes, the low byte of what SQLite reports, and a few extended ones.
mod code {
    pub const ERROR: i32 = 1;
    pub const BUSY: i32 = 5;
    pub const LOCKED: i32 = 6;
    pub const NOMEM: i32 = 7;
    pub const INTERRUPT: i32 = 9;
    pub const IOERR: i32 = 10;
    pub const FULL: i32 = 13;
    pub const CANTOPEN: i32 = 14;
    pub const PROTOCOL: i32 = 15;
    pub const CONSTRAINT: i32 = 19;
    pub const CONSTRAINT_FOREIGNKEY: i32 = 787;
    pub const CONSTRAINT_PRIMARYKEY: i32 = 1555;
    pub const CONSTRAINT_UNIQUE: i32 = 2067;
    pub const CONSTRAINT_ROWID: i32 = 2579;
}

/// The result code of an error that SQLite reported.
fn extended(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn primary(error: &sqlx::Error) -> Option<i32> {
    extended(error).map(|code| code & 0xff)
}

/// Whether somebody else holds the lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary(error), Some(code::BUSY | code::LOCKED))
}

/// Whether the statement asks for what is not there.
pub(super) fn is_mistake(error: &sqlx::Error) -> bool {
    primary(error) == Some(code::ERROR)
}

fn of_sqlx(error: &sqlx::Error) -> Class {
    let depends_on_others =
        [code::CONSTRAINT_UNIQUE, code::CONSTRAINT_PRIMARYKEY, code::CONSTRAINT_FOREIGNKEY, code::CONSTRAINT_ROWID];
    if extended(error).is_some_and(|code| depends_on_others.contains(&code)) {
        return Class::Transient;
    }
    match primary(error) {
        Some(code::BUSY | code::LOCKED) => Class::Conflict,
        Some(
            code::ERROR | code::NOMEM | code::INTERRUPT | code::IOERR | code::FULL | code::CANTOPEN | code::PROTOCOL,
        ) => Class::Transient,
        Some(_) => Class::Final,
        None => match error {
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::RowNotFound
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
        Some(code::CONSTRAINT) => of_sqlx(error),
        _ => Class::Unknown,
    }
}

/// Whether a COMMIT was refused by a constraint that is checked late.
pub(super) fn blames_rows(error: &StoreError) -> bool {
    error.source.downcast_ref().and_then(primary) == Some(code::CONSTRAINT)
}

/// What an error means that came out of a handler; the first of its causes that is known decides.
///
/// An error that is not of the database says nothing about itself, so it is worth another try.
pub(super) fn of(error: &(dyn Error + Send + Sync + 'static)) -> Class {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(known) = error.downcast_ref::<StoreError>() {
            return known.class;
        }
        if let Some(known) = error.downcast_ref::<sqlx::Error>() {
            return of_sqlx(known);
        }
        if error.is::<Unfit>() {
            return Class::Final;
        }
        next = error.source();
    }
    Class::Transient
}

/// Says what was being attempted when the database reported an error.
pub(super) fn failed(doing: impl Into<String>) -> impl FnOnce(sqlx::Error) -> StoreError {
    let doing = doing.into();
    move |source| match extended(&source) {
        Some(super::ended::REFUSED) => super::ended::ended(&doing),
        _ => StoreError { doing, class: of_sqlx(&source), source: Box::new(source) },
    }
}
