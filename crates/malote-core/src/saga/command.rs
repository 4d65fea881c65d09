//! Commands: what a saga asks of a service, with the two answers that it takes.

use crate::{Event, EventType};
use serde::{Deserialize, Serialize};
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
