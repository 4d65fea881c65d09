//! What PostgreSQL's errors mean for whoever wants to try again.
//!
//! Decided by SQLSTATE, never by wording, which is translated and changes. The table:
//!
//! | SQLSTATE | class | why |
//! |---|---|---|
//! | 40001, 40P01, 55P03 | conflict | two transactions met; the same again works |
//! | 08, 53, 57, 58, 25006, 25P03, 55006 | transient | away, full, stopping, or demoted to read-only; the connection is replaced |
//! | 23503, 23505, 23P01 | transient | depends on rows of others, which change: a parent that is still to come, a race for a key |
//! | 42 | transient | a missing table, column or right: a person deploys or grants, then it works |
//! | 26000, 42P05 | transient | a pooler mixes up prepared statements; explained |
//! | 25P02 | final | an error before it was swallowed; explained |
//! | 22, 23 else, anything else | final | the same tomorrow |
//! | 40003, or the connection is lost during COMMIT | unknown | it may have taken effect |
//!
//! Transient errors are tried a bounded number of times, so a mistake among them ends as well. That is why a
//! unique violation may be one: of two events that race for a key the second may pass at its next attempt,
//! when the first one's row is to be seen and the handler takes the other way. If it never passes, it is
//! a dead letter after the last attempt; never a conflict, which is not counted, and never a duplicate,
//! which only the inbox's own key tells, without an error.

use malote_core::{Class, StoreError, Unfit, planted};
use sqlx::postgres::{PgDatabaseError, PgSeverity};
use std::{error::Error, fmt};

/// What went wrong, where the database's own error does not say enough.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The URL cannot be read. It is not quoted here: it may hold a password.
    #[error(
        "the URL is not of the form postgres://user:password@host:port/database; characters of user and password other than a-z A-Z 0-9 . _ - are written as %XX there"
    )]
    Url,
    /// A name from a setting that is not an identifier.
    #[error("{what} {name:?} is not a valid name: use at most 63 of the characters a-z A-Z 0-9 _, no digit first")]
    Name {
        /// What it names.
        what: &'static str,
        /// The name, cut.
        name: String,
    },
    /// A server that is too old.
    #[error("the server is PostgreSQL {0}; 15 or newer is needed")]
    Old(u32),
    /// A pooler in transaction mode, and the settings do not say so.
    #[error(
        "the connection goes through a pooler in transaction mode, where prepared statements get lost: set `behind_pooler` (Builder::behind_pooler), or connect to the server directly"
    )]
    Pooler,
    /// Prepared statements were mixed up (26000, 42P05).
    #[error(
        "{0}; is there a pooler in transaction mode between? Then set `behind_pooler` (Builder::behind_pooler), or connect to the server directly"
    )]
    Statements(#[source] sqlx::Error),
    /// The transaction was dead already (25P02).
    #[error(
        "{0}: an earlier statement of this transaction failed and its error was not passed on. After an error PostgreSQL accepts nothing but a rollback; do what may fail inside `tx.attempt()`"
    )]
    Aborted(#[source] sqlx::Error),
    /// An attempt within the transaction was dropped half-way.
    #[error("a `tx.attempt()` was dropped before it was done, so nobody knows what belongs to the transaction")]
    Unended,
    /// What was to be said could never be delivered.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// A table of somebody else's that is not as it was described.
    #[error("there is no table {0:?} with all of the columns in the settings")]
    Table(String),
    /// A payload column of a type that is not known.
    #[error("the payload is of type {0}; json, jsonb, text, character varying or bytea are needed")]
    Payload(String),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(&'static str),
    /// The database's own error.
    #[error(transparent)]
    Database(sqlx::Error),
}

/// The message and the SQLSTATE. Not the driver's own details: they quote the row, and so the payload.
impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Statements(error) | Self::Aborted(error) | Self::Database(error)) = self else {
            return write!(f, "{self}");
        };
        write!(f, "{self} (SQLSTATE {})", sqlstate(error).as_deref().unwrap_or("none"))
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        match sqlstate(&error).as_deref() {
            Some("25P02") => Self::Aborted(error),
            Some("26000" | "42P05") => Self::Statements(error),
            _ => Self::Database(error),
        }
    }
}

impl Problem {
    fn class(&self) -> Class {
        match self {
            Self::Statements(error) | Self::Aborted(error) | Self::Database(error) => class_of(error),
            Self::Url
            | Self::Name { .. }
            | Self::Old(_)
            | Self::Pooler
            | Self::Unended
            | Self::Table(_)
            | Self::Payload(_)
            | Self::Refused(_)
            | Self::Unfit(_) => Class::Final,
        }
    }

    pub(crate) fn while_doing(self, doing: impl Into<String>) -> StoreError {
        StoreError { doing: doing.into(), class: self.class(), source: self.into() }
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|e| e.code()).map(Into::into)
}

/// What an error of the driver means.
pub(crate) fn class_of(error: &sqlx::Error) -> Class {
    use sqlx::Error as E;
    match error {
        E::Database(refusal) if planted::is("class-by-words") => class_of_words(refusal.message()),
        E::Database(_) => class_of_state(&sqlstate(error).unwrap_or_default()),
        E::Io(_)
        | E::Tls(_)
        | E::Protocol(_)
        | E::PoolTimedOut
        | E::PoolClosed
        | E::WorkerCrashed
        | E::BeginFailed
        | E::RowNotFound => Class::Transient,
        _ => Class::Final,
    }
}

/// What the server says in English. There for the test that shows why it is not asked.
fn class_of_words(message: &str) -> Class {
    match message {
        _ if message.contains("could not serialize") || message.contains("deadlock") => Class::Conflict,
        _ if message.contains("duplicate key") => Class::Transient,
        _ => Class::Final,
    }
}

fn class_of_state(state: &str) -> Class {
    match state {
        "23503" | "23505" | "23P01" if planted::is("violations-uncounted") => Class::Conflict,
        "40001" | "40P01" | "55P03" => Class::Conflict,
        "40003" => Class::Unknown,
        "25006" | "25P03" | "55006" | "26000" | "23503" | "23505" | "23P01" => Class::Transient,
        _ => match state.get(..2) {
            Some("08" | "53" | "57" | "58" | "42") => Class::Transient,
            _ => Class::Final,
        },
    }
}

/// What an error means that came out of a handler by `?`. An error that is not of the database says
/// nothing about itself, so it is worth another try.
pub(crate) fn classify(error: &(dyn Error + Send + Sync + 'static)) -> Class {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<StoreError>() {
            return error.class;
        }
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return class_of(error);
        }
        if error.is::<Unfit>() {
            return Class::Final;
        }
        next = error.source();
    }
    Class::Transient
}

/// Whether a COMMIT was refused by a constraint or a trigger that is checked late.
pub(crate) fn blames_rows(error: &StoreError) -> bool {
    let Some(Problem::Database(error)) = error.source.downcast_ref() else { return false };
    class_of_commit(error) == Class::Transient
        && sqlstate(error).is_some_and(|state| state.starts_with("23") || state.starts_with("42"))
}

/// Whether the connection that said this should be replaced, and with it those that are as old: the
/// server is gone or stopping, or has been demoted and takes no writes.
pub(crate) fn spoils_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        _ => sqlstate(error).is_some_and(|s| s == "25006" || s.starts_with("57P") || s.starts_with("08")),
    }
}

/// What an error of COMMIT means: a refusal is a refusal, but whoever lost the connection does not know.
pub(crate) fn class_of_commit(error: &sqlx::Error) -> Class {
    let database = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
    match database {
        Some(refusal) if refusal.severity() == PgSeverity::Error => class_of(error),
        _ => Class::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_sqlstate() {
        let cases = [
            ("40001", Class::Conflict),
            ("40P01", Class::Conflict),
            ("55P03", Class::Conflict),
            ("40003", Class::Unknown),
            ("57P01", Class::Transient),
            ("53300", Class::Transient),
            ("25006", Class::Transient),
            ("23505", Class::Transient),
            ("42P01", Class::Transient),
            ("23514", Class::Final),
            ("22003", Class::Final),
            ("25P02", Class::Final),
            ("", Class::Final),
        ];
        for (state, class) in cases {
            assert_eq!(class_of_state(state), class, "{state}");
        }
    }

    #[test]
    fn the_cause_of_a_cause_counts() {
        #[derive(Debug, thiserror::Error)]
        #[error("the ledger could not be written")]
        struct Ours(#[source] sqlx::Error);
        assert_eq!(classify(&Ours(sqlx::Error::PoolTimedOut)), Class::Transient);
        assert_eq!(classify(&Ours(sqlx::Error::ColumnNotFound("x".into()))), Class::Final);
        assert_eq!(classify(&std::fmt::Error), Class::Transient);
        assert_eq!(classify(&Unfit::Decode("a", "b".into())), Class::Final);
    }
}
