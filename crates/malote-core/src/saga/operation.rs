//! What names an intention, so that asking twice is asking once.

use crate::IdempotencyKey;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// Forward, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The step itself.
    Do,
    /// Its compensation.
    Undo,
}

impl Direction {
    /// Its name where people and scripts read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Do => "do",
            Self::Undo => "undo",
        }
    }
}

/// A step, or one part of a step that is done for each of several.
///
/// Written `reserve stock`, or `reserve stock#porto`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct LegId {
    /// The step's name.
    pub step: String,
    /// Which part of it.
    pub part: Option<String>,
}

impl LegId {
    /// A step as a whole.
    pub fn of(step: &str) -> Self {
        Self { step: step.into(), part: None }
    }

    /// The part's name; empty for a step that has no parts.
    pub fn part(&self) -> &str {
        self.part.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for LegId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            Some(part) => write!(f, "{}#{part}", self.step),
            None => f.write_str(&self.step),
        }
    }
}

impl From<String> for LegId {
    fn from(text: String) -> Self {
        match text.split_once('#') {
            Some((step, part)) => Self { step: step.into(), part: Some(part.into()) },
            None => Self { step: text, part: None },
        }
    }
}

impl From<LegId> for String {
    fn from(leg: LegId) -> Self {
        leg.to_string()
    }
}

/// Names one intention of a saga, however often it is sent.
///
/// The attempt grows only after a definite answer: asking again after silence is the same intention.
/// A participant that meets an operation again gives the answer that it gave before, and an outside
/// provider gets it as its idempotency key. Written
/// `01977c1f-…:do:1:reserve stock`; the free text is last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct OperationId {
    /// The instance.
    pub saga: Uuid,
    /// The step.
    pub leg: LegId,
    /// Doing or undoing it.
    pub direction: Direction,
    /// Counts from 1.
    pub attempt: u32,
}

impl OperationId {
    /// What an outside provider gets as its key: the same whenever this operation is asked for, in any
    /// process, and fit for an HTTP header.
    pub fn idempotency_key(&self) -> IdempotencyKey {
        IdempotencyKey(Uuid::new_v5(&self.saga, self.to_string().as_bytes()).to_string())
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.saga, self.direction.as_str(), self.attempt, self.leg)
    }
}

/// A text that names no operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no operation of a saga: expected SAGA:do|undo:ATTEMPT:STEP")]
pub struct NoOperation(pub String);

impl FromStr for OperationId {
    type Err = NoOperation;

    fn from_str(text: &str) -> Result<Self, NoOperation> {
        let none = || NoOperation(text.chars().take(200).collect());
        let mut parts = text.splitn(4, ':');
        let mut part = || parts.next().ok_or_else(none);
        let saga = part()?.parse().map_err(|_| none())?;
        let direction = match part()? {
            "do" => Direction::Do,
            "undo" => Direction::Undo,
            _ => return Err(none()),
        };
        let attempt = part()?.parse().map_err(|_| none())?;
        let leg = LegId::from(part()?.to_owned());
        Ok(Self { saga, leg, direction, attempt })
    }
}

impl TryFrom<String> for OperationId {
    type Error = NoOperation;
    fn try_from(text: String) -> Result<Self, NoOperation> {
        text.parse()
    }
}

impl From<OperationId> for String {
    fn from(operation: OperationId) -> Self {
        operation.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_read_back_whatever_its_part_is_called() {
        for leg in ["reserve", "reserve#porto", "reserve#a:b#c", "reserve#"] {
            let operation = OperationId {
                saga: Uuid::from_u128(7),
                leg: LegId::from(leg.to_owned()),
                direction: Direction::Undo,
                attempt: 3,
            };
            assert_eq!(operation.to_string().parse(), Ok(operation));
        }
        for text in ["", "x", "x:do:1:a", "00000000-0000-0000-0000-000000000007:do:x:a"] {
            assert_eq!(text.parse::<OperationId>(), Err(NoOperation(text.into())));
        }
    }
}
