//! Commands: what a saga asks of a service, with the two answers that it takes.

use super::Address;
use crate::{Envelope, Event, EventType, Unfit};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A request to one service, with its answers.
///
/// A command is an event with an addressee: the topic of the service that is to obey. Commands of one
/// service share its topic, so that an undoing never overtakes what it undoes.
pub trait Command: Event {
    /// It has been done, and this came of it.
    type Done: Event;
    /// It has not been done and will not be; the text says why, for people. [`Never`] where that cannot be.
    type Refused: Event + fmt::Display;
}

/// The answer to a command: what a participant's handler returns.
pub type Answer<C> = Result<<C as Command>::Done, <C as Command>::Refused>;

/// A command with the saga's address, for a handler that wants to know which operation it serves, or which
/// one it is to undo: `async fn void(asked: Addressed<Void>, tx: &mut Tx) -> Outcome<Answer<Void>>`.
#[derive(Clone, Debug, PartialEq)]
pub struct Addressed<C> {
    /// What is asked.
    pub command: C,
    /// For which saga; none where no saga asks.
    pub address: Option<Address>,
}

/// Written as the command alone: the address travels in the envelope's attributes.
impl<C: Serialize> Serialize for Addressed<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.command.serialize(serializer)
    }
}

/// Read as the command alone; the address comes with the envelope, see [`Event::open`].
impl<'de, C: Deserialize<'de>> Deserialize<'de> for Addressed<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        C::deserialize(deserializer).map(|command| Self { command, address: None })
    }
}

impl<C: Command> Event for Addressed<C> {
    const TYPE: &'static str = C::TYPE;
    fn topic() -> &'static str {
        C::topic()
    }
    fn key(&self) -> String {
        self.command.key()
    }
    fn open(envelope: &Envelope) -> Result<Self, Unfit> {
        let address = Address::of(envelope).map_err(|bad| Unfit::Decode(C::TYPE, bad.to_string()))?;
        C::open(envelope).map(|command| Self { command, address })
    }
}

impl<C: Command> Command for Addressed<C> {
    type Done = C::Done;
    type Refused = C::Refused;
}

/// The refusal of a command that cannot be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {}

impl Event for Never {
    const TYPE: &'static str = "malote.never";
    fn key(&self) -> String {
        match *self {}
    }
}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// A command and its answers, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandType {
    /// What is asked.
    pub command: EventType,
    /// What says that it was done.
    pub done: EventType,
    /// What says that it was refused; none where that cannot be.
    pub refused: Option<EventType>,
}

impl CommandType {
    /// Of `C`.
    pub fn of<C: Command>() -> Self {
        let refused = EventType::of::<C::Refused>();
        Self {
            command: EventType::of::<C>(),
            done: EventType::of::<C::Done>(),
            refused: (refused.name != Never::TYPE).then_some(refused),
        }
    }

    /// The types of its answers.
    pub fn answers(&self) -> impl Iterator<Item = &EventType> {
        std::iter::once(&self.done).chain(&self.refused)
    }
}
