//! A command and its answers with their types forgotten: what [`advance`](super::Saga::advance) works with.

use super::{Command, CommandType, Sent};
use crate::{Envelope, Message, Unfit, retry::Policy, unread};
use chrono::DateTime;
use std::time::Duration;
use uuid::Uuid;

pub(super) type Make<S, C> = Box<dyn Fn(&S, &str) -> C + Send + Sync>;
pub(super) type Fold<S, R> = Box<dyn Fn(&mut S, &str, R) + Send + Sync>;
type Write<S> = Box<dyn Fn(&S, &str) -> Result<Message, Unfit> + Send + Sync>;
type Read<S> = Box<dyn Fn(&mut S, &str, &str, &[u8]) -> Heard + Send + Sync>;

/// What an answer says.
pub(super) enum Heard {
    /// It was done; the state knows what came of it.
    Done,
    /// It was refused, for this reason.
    Refused(String),
    /// It is an answer, and cannot be read.
    Unreadable(String),
    /// It is no answer to this command.
    Other,
}

/// How long an answer is awaited, as far as the definition says.
#[derive(Clone, Copy, Default)]
pub(super) struct Patience {
    pub deadline: Option<Duration>,
    pub policy: Option<Policy>,
}

impl Patience {
    /// Completed by what holds where nothing is said.
    pub fn or(self, otherwise: Policy) -> Policy {
        let policy = self.policy.unwrap_or(otherwise);
        Policy { deadline: self.deadline.unwrap_or(policy.deadline), ..policy }
    }
}

/// One command with its answers.
pub(super) struct Exchange<S> {
    pub types: CommandType,
    pub patience: Patience,
    pub local: bool,
    write: Write<S>,
    read: Read<S>,
}

/// An [`Exchange`] that still knows its types.
pub(super) struct Typed<S, C: Command> {
    pub make: Make<S, C>,
    pub done: Fold<S, C::Done>,
    pub refused: Fold<S, C::Refused>,
    pub patience: Patience,
    pub local: bool,
}

impl<S: 'static, C: Command> Typed<S, C> {
    pub fn new(make: Make<S, C>) -> Self {
        Self {
            make,
            done: Box::new(|_, _, _| ()),
            refused: Box::new(|_, _, _| ()),
            patience: Patience::default(),
            local: false,
        }
    }

    pub fn erase(self) -> Exchange<S> {
        let Self { make, done, refused, patience, local } = self;
        let types = CommandType::of::<C>();
        let (done_type, refused_type) =
            (types.done.name.clone(), types.refused.as_ref().map(|refused| refused.name.clone()));
        let read = move |state: &mut S, part: &str, kind: &str, payload: &[u8]| {
            if kind == done_type {
                decode::<C::Done>(kind, payload).map_or_else(Heard::Unreadable, |answer| {
                    done(state, part, answer);
                    Heard::Done
                })
            } else if Some(kind) == refused_type.as_deref() {
                decode::<C::Refused>(kind, payload).map_or_else(Heard::Unreadable, |answer| {
                    let reason = answer.to_string();
                    refused(state, part, answer);
                    Heard::Refused(reason)
                })
            } else {
                Heard::Other
            }
        };
        let write = move |state: &S, part: &str| Message::of(&make(state, part)).and_then(fit);
        Exchange { types, patience, local, write: Box::new(write), read: Box::new(read) }
    }
}

impl<S> Exchange<S> {
    /// The command, by the state; or why it could never be sent.
    pub fn command(&self, state: &S, part: &str) -> Result<Sent, Unfit> {
        (self.write)(state, part).map(|message| Sent {
            kind: message.kind,
            topic: message.topic,
            key: message.key,
            payload: String::from_utf8_lossy(&message.payload).into_owned(), // JSON is UTF-8
        })
    }

    /// Reads an answer; what it says of the work goes into the state, unless it cannot be read.
    pub fn hear(&self, state: &mut S, part: &str, kind: &str, payload: &[u8]) -> Heard {
        (self.read)(state, part, kind, payload)
    }
}

fn decode<T: serde::de::DeserializeOwned>(kind: &str, payload: &[u8]) -> Result<T, String> {
    serde_json::from_slice(payload).map_err(|error| format!("the payload is not a {kind}: {}", unread(&error)))
}

/// Checks a command before it counts as asked: what cannot be delivered must not be waited for.
fn fit(message: Message) -> Result<Message, Unfit> {
    const ADDRESS: usize = 1024; // room for the address that it travels with
    let envelope = Envelope {
        id: Uuid::nil(),
        kind: message.kind.clone(),
        topic: message.topic.clone(),
        key: message.key.clone(),
        source: String::new(),
        time: DateTime::UNIX_EPOCH,
        content_type: message.content_type.clone(),
        correlation_id: None,
        causation_id: None,
        trace: None,
        hop: None,
        sequence: None,
        headers: vec![(String::new(), " ".repeat(ADDRESS))],
        payload: message.payload.clone(),
    };
    envelope.check().map(|()| message)
}
