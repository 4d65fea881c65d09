//! One run of a saga: plain data, one row.

use super::{Direction, LegId, OperationId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;
use uuid::Uuid;

/// How a saga stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Going forward.
    Running,
    /// Undoing what was done.
    Compensating,
    /// Every step is done: final.
    Completed,
    /// Everything that was asked for is undone: final.
    Compensated,
    /// It cannot go on by itself; a person may act, and a late answer still counts.
    Stuck,
    /// A person gave it up: final.
    Abandoned,
}

impl Status {
    /// All of them, in the order of a saga's life.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Compensating, Self::Completed, Self::Compensated, Self::Stuck, Self::Abandoned];

    /// Its name where people and scripts read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Compensating => "compensating",
            Self::Completed => "completed",
            Self::Compensated => "compensated",
            Self::Stuck => "stuck",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether nothing happens to it any more by itself, whatever comes.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Compensated | Self::Abandoned)
    }
}

/// One run of a saga over a state of type `S`.
///
/// [`Stored`], with the state as JSON text, is what a store keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance<S> {
    /// Names it.
    pub id: Uuid,
    /// The definition's name.
    pub definition: String,
    /// The version under which it began, and ends.
    pub version: u32,
    /// What the steps know of each other.
    pub state: S,
    /// How it stands.
    pub status: Status,
    /// Forward, until it has turned back.
    pub heading: Direction,
    /// A person asked for it to be undone: compensations that wait for that are made, too.
    #[serde(default)]
    pub on_request: bool,
    /// Why it turned back, or stands still; for people.
    pub reason: Option<String>,
    /// The steps that were reached, in their order; those to come are in the definition.
    pub legs: Vec<Leg>,
    /// How many entries its log has.
    pub entries: u64,
    /// Grows with each change that is stored: whoever read an older one changes nothing.
    pub revision: u64,
}

/// An instance as stores keep it: the state is JSON text.
pub type Stored = Instance<String>;

/// One step under way: the step itself, or one part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    /// Which.
    pub id: LegId,
    /// How it stands.
    pub state: StepState,
    /// What was asked.
    pub doing: Asking,
    /// What was asked to undo it; none before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoing: Option<Asking>,
}

/// How a step stands. One that was not reached is waiting, and has no [`Leg`] yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum StepState {
    /// Asked, and no answer yet.
    Asked,
    /// Asked in vain; asked again when its timer fires.
    Resting,
    /// Done.
    Done,
    /// A person said that it is done, and gave the answer.
    Skipped,
    /// Not needed, by the saga's state.
    LeftOut,
    /// Not done, for good.
    Refused {
        /// Why.
        reason: String,
    },
    /// Nobody knows whether it was done.
    Unknown {
        /// Why not.
        reason: String,
    },
    /// Asked to be undone, and no answer yet.
    Undoing,
    /// Not undone yet; asked again when its timer fires.
    UndoResting {
        /// Why not.
        reason: String,
    },
    /// Undone.
    Undone,
    /// Not undone, and it is not tried any more.
    UndoFailed {
        /// Why.
        reason: String,
    },
}

impl StepState {
    /// Its name where people and scripts read it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Resting => "resting",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::LeftOut => "left out",
            Self::Refused { .. } => "refused",
            Self::Unknown { .. } => "unknown",
            Self::Undoing => "undoing",
            Self::UndoResting { .. } => "undo resting",
            Self::Undone => "undone",
            Self::UndoFailed { .. } => "undo failed",
        }
    }

    /// Why it stands so, where there is something to say.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused { reason }
            | Self::Unknown { reason }
            | Self::UndoResting { reason }
            | Self::UndoFailed { reason } => Some(reason),
            _ => None,
        }
    }

    /// Whether an answer or a timer is awaited.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Asked | Self::Resting | Self::Undoing | Self::UndoResting { .. })
    }

    /// Whether it is being undone, or was.
    pub fn is_undo(&self) -> bool {
        matches!(self, Self::Undoing | Self::UndoResting { .. } | Self::Undone | Self::UndoFailed { .. })
    }
}

/// The asking for one thing, in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// Part of the operation id: grows only after a definite answer.
    pub attempt: u32,
    /// How often it was sent, all in all.
    pub asks: u32,
    /// How often it went wrong since it was begun, or since a person had it tried again.
    pub failures: u32,
    /// How long was waited in vain in that time, in milliseconds.
    pub waited_ms: u64,
    /// The answer to this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answered>,
    /// The timer that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<String>,
    /// What was sent, to be sent again byte for byte while there is no definite answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
}

impl Asking {
    /// How long was waited in vain.
    pub fn waited(&self) -> Duration {
        Duration::from_millis(self.waited_ms)
    }
}

/// A definite answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answered {
    /// It was done.
    Done,
    /// It was refused.
    Refused,
}

/// A command as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its type.
    pub kind: String,
    /// Its topic.
    pub topic: String,
    /// Its key.
    pub key: String,
    /// Its payload, JSON text.
    pub payload: String,
}

impl Leg {
    /// The asking in a direction.
    pub fn asking(&self, direction: Direction) -> Option<&Asking> {
        match direction {
            Direction::Do => Some(&self.doing),
            Direction::Undo => self.undoing.as_ref(),
        }
    }

    /// The direction in which it is going or went last.
    pub fn direction(&self) -> Direction {
        if self.state.is_undo() { Direction::Undo } else { Direction::Do }
    }
}

impl<S> Instance<S> {
    /// The leg of this name.
    pub fn leg(&self, id: &LegId) -> Option<&Leg> {
        self.legs.iter().find(|leg| leg.id == *id)
    }

    /// The operation of a leg's present attempt in a direction.
    pub fn operation(&self, leg: &Leg, direction: Direction) -> OperationId {
        let attempt = leg.asking(direction).map_or(0, |asking| asking.attempt);
        OperationId { saga: self.id, leg: leg.id.clone(), direction, attempt }
    }

    /// What waits for an answer or a timer.
    pub fn pending(&self) -> impl Iterator<Item = &Leg> {
        self.legs.iter().filter(|leg| leg.state.is_pending())
    }

    /// What keeps a stuck instance from going on: going forward what was refused or is unknown, going
    /// back what was not undone.
    pub fn open(&self) -> impl Iterator<Item = &Leg> {
        self.legs.iter().filter(|leg| leg.is_open(self.heading))
    }

    /// The steps that wait, or keep it from going on; none of an instance that has ended.
    pub fn waiting(&self) -> Vec<LegId> {
        let waits = |leg: &&Leg| leg.state.is_pending() || leg.is_open(self.heading);
        let ended = self.status.is_final();
        self.legs.iter().filter(|_| !ended).filter(waits).map(|leg| leg.id.clone()).collect()
    }

    fn with<T>(self, state: T) -> (S, Instance<T>) {
        let Self { id, definition, version, status, heading, on_request, reason, legs, entries, revision, .. } = self;
        (
            self.state,
            Instance { id, definition, version, state, status, heading, on_request, reason, legs, entries, revision },
        )
    }
}

impl Leg {
    /// Whether it keeps an instance that goes in this direction from going on.
    pub(super) fn is_open(&self, heading: Direction) -> bool {
        match heading {
            Direction::Do => matches!(self.state, StepState::Refused { .. } | StepState::Unknown { .. }),
            Direction::Undo => matches!(self.state, StepState::UndoFailed { .. }),
        }
    }
}

/// A stored state that is not the saga's.
#[derive(Debug, thiserror::Error)]
#[error("the state of saga {saga} cannot be read as version {version} of {definition}: {why}")]
pub struct UnreadableState {
    /// The instance.
    pub saga: Uuid,
    /// Its definition.
    pub definition: String,
    /// Its version.
    pub version: u32,
    /// What is wrong.
    pub why: String,
}

impl Stored {
    /// With its state read.
    pub fn into_typed<S: DeserializeOwned>(self) -> Result<Instance<S>, UnreadableState> {
        match serde_json::from_str(&self.state) {
            Ok(state) => Ok(self.with(state).1),
            Err(error) => {
                let (saga, why) = (self.id, crate::unread(&error));
                Err(UnreadableState { saga, definition: self.definition, version: self.version, why })
            }
        }
    }
}

impl<S: Serialize> Instance<S> {
    /// With its state as text.
    pub fn into_stored(self) -> Result<Stored, serde_json::Error> {
        let state = serde_json::to_string(&self.state)?;
        Ok(self.with(state).1)
    }
}
