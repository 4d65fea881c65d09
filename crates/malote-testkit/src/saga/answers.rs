//! What participants say, for laws that have to make up their answers.

use malote_core::saga::{Command, Never, Send};
use malote_core::{Event, Message};
use std::collections::BTreeMap;

type Say = Box<dyn Fn(&Message) -> Message>;

/// For each command of a saga, and of its compensations, an answer of either kind.
#[derive(Default)]
pub struct Answers(BTreeMap<&'static str, (Say, Option<Say>)>);

impl Answers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How `C` is answered when it is done, and when it is refused.
    pub fn to<C: Command>(
        mut self,
        done: impl Fn(C) -> C::Done + 'static,
        refused: impl Fn(C) -> C::Refused + 'static,
    ) -> Self {
        self.0.insert(C::TYPE, (say(done), Some(say(refused))));
        self
    }

    /// How `C` is answered that cannot be refused.
    pub fn always<C: Command<Refused = Never>>(mut self, done: impl Fn(C) -> C::Done + 'static) -> Self {
        self.0.insert(C::TYPE, (say(done), None));
        self
    }

    /// The answer to a command that is done.
    ///
    /// # Panics
    /// If nobody answers such commands.
    pub fn done(&self, send: &Send) -> Message {
        (self.find(send).0)(&send.message)
    }

    /// The answer to a command that is refused; none where it cannot be.
    ///
    /// # Panics
    /// If nobody answers such commands.
    pub fn refused(&self, send: &Send) -> Option<Message> {
        self.find(send).1.as_ref().map(|say| say(&send.message))
    }

    fn find(&self, send: &Send) -> &(Say, Option<Say>) {
        let kind = send.message.kind.as_str();
        self.0.get(kind).unwrap_or_else(|| panic!("nobody answers {kind}: add .to::<…>(…, …) to the answers"))
    }
}

fn say<C: Event, A: Event>(answer: impl Fn(C) -> A + 'static) -> Say {
    Box::new(move |command| {
        let command: C = serde_json::from_slice(&command.payload)
            .unwrap_or_else(|error| panic!("the command {} cannot be read back: {error}", command.kind));
        Message::of(&answer(command)).unwrap_or_else(|unfit| panic!("an answer cannot be sent: {unfit}"))
    })
}
