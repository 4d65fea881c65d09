//! What can happen to a saga.

use super::OperationId;
use crate::inspect::Act;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Something that has happened, for [`advance`](super::Saga::advance).
#[derive(Clone, Debug)]
pub enum Input {
    /// It is to begin. For one that has begun already this is a second start, and nothing.
    Started,
    /// An answer has come.
    Reply(Reply),
    /// The timer of this name has fired.
    Deadline(String),
    /// A command will never be carried out: it is a dead letter, or the broker refused it for good.
    GivenUp {
        /// Which.
        operation: OperationId,
        /// Why.
        reason: String,
    },
    /// A person acts.
    Act(Act, Deed),
}

/// The answer to an operation.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// What it answers, from its [`Address`](super::Address).
    pub operation: OperationId,
    /// Its type.
    pub kind: String,
    /// Its payload.
    pub payload: Bytes,
    /// Its envelope, for the log.
    pub envelope: Option<Uuid>,
}

/// What a person may do to a saga. A step is named as in [`LegId`](super::LegId): `reserve stock`, or
/// `reserve stock#porto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deed {
    /// Ask again, now, for one step or for everything that waits or stands still; counted from anew.
    Retry {
        /// Which step; all where none is given.
        step: Option<String>,
    },
    /// Take a step as done (or, going back, as undone).
    Skip {
        /// Which step.
        step: String,
        /// The answer, as JSON of the type that says that it is done. Going forward the later steps
        /// lean on it, so it has to be given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
    },
    /// Turn back; after the pivot, undo what can be undone on request.
    Compensate,
    /// Turn back, as long as the saga does so by itself: not once the pivot has been asked for. What a customer
    /// may do who calls it off.
    TurnBack,
    /// Give it up as it stands.
    Abandon,
}

impl Deed {
    /// The step that it names.
    pub fn step(&self) -> Option<&str> {
        match self {
            Self::Retry { step } => step.as_deref(),
            Self::Skip { step, .. } => Some(step),
            Self::Compensate | Self::TurnBack | Self::Abandon => None,
        }
    }

    /// Its name where people and scripts read it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Skip { .. } => "skip",
            Self::Compensate => "compensate",
            Self::TurnBack => "turn back",
            Self::Abandon => "abandon",
        }
    }
}

/// Shows everything but the payload.
impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply")
            .field("operation", &self.operation.to_string())
            .field("kind", &self.kind)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
