//! Whose reply this is: said by the message, never guessed.
//!
//! ```text
//!   coordinator ── command + address ──▶ participant ── reply + the same address ──▶ coordinator
//! ```
//!
//! A participant copies the address of the command into its reply ([`Address::of`],
//! [`Address::headers`]). So a coordinator can tell what is not its own from what is its own and
//! whose instance it cannot see yet.

use super::{NoOperation, OperationId};
use crate::Envelope;

/// The attribute that names the definition.
pub const DEFINITION: &str = "malotesaga";
/// The attribute that holds the definition's version.
pub const VERSION: &str = "malotesagaversion";
/// The attribute that names the instance.
pub const INSTANCE: &str = "malotesagaid";
/// The attribute that names the operation.
pub const OPERATION: &str = "malotesagaoperation";
/// The attribute of a compensating command that names the operation which it undoes.
pub const UNDOES: &str = "malotesagaundoes";

/// To which saga a command belongs, and its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The definition's name.
    pub definition: String,
    /// The definition's version.
    pub version: u32,
    /// The operation; it names the instance, too.
    pub operation: OperationId,
    /// For a compensating command, what it undoes. A participant that meets this one first remembers
    /// it, answers that it is undone, and does nothing when the other comes: a tombstone.
    pub undoes: Option<OperationId>,
}

/// An address that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadAddress {
    /// One of the attributes is not there.
    #[error("the message says it belongs to a saga, but the attribute {0} is missing")]
    Missing(&'static str),
    /// The version is no number.
    #[error("the version {0:?} of a saga is not a number")]
    Version(String),
    /// The operation is none.
    #[error(transparent)]
    Operation(#[from] NoOperation),
    /// The instance is not the operation's.
    #[error("the instance {0:?} is not that of the operation")]
    Instance(String),
}

impl Address {
    /// The address of a command or reply; none where it belongs to no saga.
    pub fn of(envelope: &Envelope) -> Result<Option<Self>, BadAddress> {
        let find = |name: &str| envelope.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let need = |name: &'static str| find(name).ok_or(BadAddress::Missing(name));
        let Some(definition) = find(DEFINITION) else { return Ok(None) };
        let version = need(VERSION)?;
        let operation: OperationId = need(OPERATION)?.parse()?;
        let instance = need(INSTANCE)?;
        if instance != operation.saga.to_string() {
            return Err(BadAddress::Instance(instance.chars().take(100).collect()));
        }
        Ok(Some(Self {
            definition: definition.into(),
            version: version.parse().map_err(|_| BadAddress::Version(version.chars().take(100).collect()))?,
            operation,
            undoes: find(UNDOES).map(str::parse).transpose()?,
        }))
    }

    /// The attributes for the envelope.
    pub fn headers(&self) -> Vec<(String, String)> {
        let own = [
            (DEFINITION, Some(self.definition.clone())),
            (VERSION, Some(self.version.to_string())),
            (INSTANCE, Some(self.operation.saga.to_string())),
            (OPERATION, Some(self.operation.to_string())),
            (UNDOES, self.undoes.as_ref().map(ToString::to_string)),
        ];
        own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// What a coordinator does with a message of this address. `versions` are those of the definition
    /// that it has code for (empty: none at all), `row` is what its store has of the instance.
    pub fn receive(&self, versions: &[u32], row: Row) -> Reception {
        match row {
            _ if versions.is_empty() => Reception::NotMine,
            Row::Ended => Reception::Ended,
            _ if !versions.contains(&self.version) => Reception::Lacking,
            Row::Absent => Reception::Early,
            Row::Present => Reception::Advance,
        }
    }
}

/// What a store has of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Nothing.
    Absent,
    /// The instance.
    Present,
    /// Its tombstone: it has ended, and the rest has been removed.
    Ended,
}

/// What a coordinator does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// Nothing: another coordinator's.
    NotMine,
    /// Put it off: the instance is not stored yet (a reply can overtake the commit that it answers to).
    Early,
    /// Put it off and say so: this process has no code for the version.
    Lacking,
    /// Nothing but a note: the instance has ended and is gone.
    Ended,
    /// Give it to [`advance`](super::Saga::advance).
    Advance,
}
