//! How a handler ends when it does not succeed.

use std::{error::Error, fmt, time::Duration};

/// What a handler returns.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a handler did not succeed, and with it what happens next.
#[non_exhaustive]
pub enum Failure {
    /// It may go better later: try again, a bounded number of times.
    Retry(String),
    /// It will never go better: set the message aside.
    Reject(String),
    /// Not now: try again after this time, without counting it as a failed attempt.
    Defer {
        /// How long to wait; the policy's time limit holds all the same.
        after: Duration,
        /// What is waited for; an operator reads it.
        why: String,
    },
    /// An error that came up by `?`; the store says which of the above it is.
    Error(Box<dyn Error + Send + Sync>),
}

impl Failure {
    /// Try again later.
    pub fn retry(why: impl Into<String>) -> Self {
        Self::Retry(why.into())
    }
    /// Not now: try again after this time.
    pub fn defer(after: Duration, why: impl Into<String>) -> Self {
        Self::Defer { after, why: why.into() }
    }
    /// Set the message aside.
    pub fn reject(why: impl Into<String>) -> Self {
        Self::Reject(why.into())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(Box::new(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(why) | Self::Reject(why) | Self::Defer { why, .. } => f.write_str(why),
            Self::Error(error) => f.write_str(&chain(&**error)),
        }
    }
}

/// An error and what led to it, in one line; what an error repeats of its source is said once.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        let said = inner.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = inner.source();
    }
    text
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Retry(_) => "Retry",
            Self::Reject(_) => "Reject",
            Self::Defer { .. } => "Defer",
            Self::Error(_) => "Error",
        };
        write!(f, "{name}({self})")
    }
}

/// What an error means for whoever wants to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Two transactions met (40001, 40P01, a busy SQLite): run it again at once; not an attempt.
    Conflict,
    /// The other side is away, full, or slow: run it again later.
    Transient,
    /// It was a commit and nobody knows whether it took effect: only safe to repeat under an operation id.
    Unknown,
    /// It will be the same tomorrow.
    Final,
}

impl Class {
    /// Its name where people and scripts read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Transient => "transient",
            Self::Unknown => "unknown",
            Self::Final => "final",
        }
    }
}

impl std::str::FromStr for Class {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Conflict, Self::Transient, Self::Unknown, Self::Final]
            .into_iter()
            .find(|class| class.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no class of failure"))
    }
}
