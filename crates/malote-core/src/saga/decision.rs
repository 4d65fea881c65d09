//! What a saga does next, as a value: whoever carries it out decides nothing.

use super::{Address, Direction, LegId, OperationId, Sent, Status};
use crate::Message;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use uuid::Uuid;

/// What follows from an [`Input`](super::Input). All of it is carried out in one transaction with the
/// changed instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What became of the input.
    pub verdict: Verdict,
    /// What is sent, in this order.
    pub sends: Vec<Send>,
    /// Timers that are set and taken back, in this order.
    pub timers: Vec<Timer>,
    /// What is written to the log, in this order.
    pub log: Vec<Entry>,
    /// The final status that the saga has reached now.
    pub ended: Option<Status>,
}

/// What became of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was acted upon.
    Acted,
    /// It changes nothing, for this reason; it is recorded, unless the instance is not this saga's.
    Ignored(Idle),
    /// A person's act that is not possible, with what to do instead; nothing was changed or recorded.
    Denied(String),
}

/// Why an input changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Idle {
    /// A second start.
    StartedAlready,
    /// The saga has ended.
    Ended,
    /// The operation was never asked for.
    NotAsked,
    /// Answered already: a duplicate, or a contradiction.
    AnsweredAlready,
    /// It was not waited for any more.
    NotAwaited,
    /// The answer to an attempt that is over.
    EarlierAttempt,
    /// No answer to what was asked.
    NoAnswer,
    /// The answer came when it mattered no more, and cannot be read.
    Unreadable,
    /// The timer was taken back, or has fired already.
    NotSet,
    /// The instance is of another definition or version, or not of a shape that this one makes.
    NotOurs,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartedAlready => "it has started already",
            Self::Ended => "the saga has ended",
            Self::NotAsked => "this was never asked for",
            Self::AnsweredAlready => "it was answered already",
            Self::NotAwaited => "it is not waited for any more",
            Self::EarlierAttempt => "it answers an attempt that is over",
            Self::NoAnswer => "it is no answer to what was asked",
            Self::Unreadable => "it came late, and cannot be read",
            Self::NotSet => "this timer is not set",
            Self::NotOurs => "the instance is of another definition or version",
        })
    }
}

/// A command that is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Send {
    /// To which saga and operation it belongs; travels in the envelope's attributes.
    pub address: Address,
    /// What is said.
    pub message: Message,
    /// Not sent at all, but given to the service's own handler within the transaction; what it answers
    /// is the next input, still within it.
    pub local: bool,
}

impl Send {
    pub(super) fn new(address: Address, sent: &Sent, local: bool) -> Self {
        let message = Message {
            kind: sent.kind.clone(),
            topic: sent.topic.clone(),
            key: sent.key.clone(),
            content_type: "application/json".into(),
            payload: sent.payload.clone().into(),
        };
        Self { address, message, local }
    }
}

/// A timer of an instance. Its name is its own: it is set once, and fires once or is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Fire after this time, by the database's clock; give its name to
    /// [`Input::Deadline`](super::Input::Deadline).
    Set {
        /// Its name.
        name: String,
        /// From the transaction on.
        after: Duration,
    },
    /// Take it back; nothing where it has fired already.
    Cancel {
        /// Its name.
        name: String,
    },
}

/// The id for the scheduled envelope of an instance's timer, always the same.
pub fn timer_id(saga: Uuid, name: &str) -> Uuid {
    Uuid::new_v5(&saga, name.as_bytes())
}

/// One line of an instance's history: an intent ([`What::Asked`]), or an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in the instance, from 1.
    pub n: u64,
    /// What it tells.
    pub what: What,
    /// Of which step; none where it is about the saga.
    pub leg: Option<LegId>,
    /// Doing or undoing it.
    pub direction: Option<Direction>,
    /// In which attempt.
    pub attempt: Option<u32>,
    /// The envelope that brought the input. For [`What::Asked`] whoever seals the command puts the
    /// command's envelope here.
    pub envelope: Option<Uuid>,
    /// Why, or what was noted; for people.
    pub reason: Option<String>,
    /// Who, where a person acted.
    pub actor: Option<String>,
}

impl Entry {
    /// The operation of which it tells, in the instance `saga`.
    pub fn operation(&self, saga: Uuid) -> Option<OperationId> {
        let (leg, direction, attempt) = (self.leg.clone()?, self.direction?, self.attempt?);
        Some(OperationId { saga, leg, direction, attempt })
    }
}

/// What a line of the history tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// The saga began.
    Started,
    /// The intent: a command goes out.
    Asked,
    /// It was done.
    Done,
    /// It was refused.
    Refused,
    /// No answer came in time.
    Silent,
    /// It is not waited for any more: nobody knows whether it was done.
    Unknown,
    /// A compensation that is not tried any more.
    Failed,
    /// An answer that cannot be read.
    Unreadable,
    /// A command that could not be made.
    Unfit,
    /// The state does not call for the step.
    LeftOut,
    /// A person had it asked again.
    Retried,
    /// A person took it as done.
    Skipped,
    /// The saga turned back.
    TurnedBack,
    /// The saga cannot go on by itself.
    Stuck,
    /// The saga ended with everything done.
    Completed,
    /// The saga ended with everything undone.
    Compensated,
    /// A person gave it up.
    Abandoned,
    /// An input that changed nothing.
    Ignored,
}

impl What {
    /// Its name where people and scripts read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Asked => "asked",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Silent => "silent",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
            Self::Unfit => "unfit",
            Self::LeftOut => "left out",
            Self::Retried => "retried",
            Self::Skipped => "skipped",
            Self::TurnedBack => "turned back",
            Self::Stuck => "stuck",
            Self::Completed => "completed",
            Self::Compensated => "compensated",
            Self::Abandoned => "abandoned",
            Self::Ignored => "ignored",
        }
    }
}
