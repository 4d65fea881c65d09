//! What coordinators are told beside the answers: a timer has fired, a command was given up.

use malote_core::{
    Class, Envelope, EventType, Message,
    saga::{Address, DEFINITION, INSTANCE, VERSION},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A command has become a dead letter: no answer will come unless a person has it done after all.
pub(crate) const GIVEN_UP: &str = "malote.saga.given-up.v1";

/// The payload of [`GIVEN_UP`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GivenUp {
    pub reason: String,
}

/// The timers of one coordinator: their type, which is also their topic.
pub(crate) fn timer_type(service: &str) -> EventType {
    let name = format!("{service}.saga-timer.v1");
    EventType { topic: name.clone(), name }
}

/// The payload of a timer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Fired {
    pub timer: String,
}

/// A timer of an instance, with the attributes that say whose.
pub(crate) fn timer(
    of: &EventType,
    (definition, version): (&str, u32),
    saga: Uuid,
    name: &str,
) -> (Message, Vec<(String, String)>) {
    let EventType { name: kind, topic } = of.clone();
    let payload = serde_json::json!({ "timer": name }).to_string().into();
    let message = Message { kind, topic, key: saga.to_string(), content_type: "application/json".into(), payload };
    let attributes =
        [(DEFINITION, definition.to_owned()), (VERSION, version.to_string()), (INSTANCE, saga.to_string())];
    (message, attributes.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

/// What a participant tells when it gives a command up; nothing where no saga asked, or where nobody
/// knows to which topic its answers go.
pub(crate) fn given_up(
    envelope: &Envelope,
    answers: Option<&str>,
    class: Class,
    why: &str,
) -> Option<(Message, Vec<(String, String)>)> {
    let address = Address::of(envelope).ok().flatten()?;
    let reason = format!("{} was given up ({}): {why}", envelope.kind, class.as_str());
    let payload = serde_json::json!(GivenUp { reason }).to_string().into();
    let message = Message {
        kind: GIVEN_UP.into(),
        topic: answers?.to_owned(),
        key: envelope.key.clone(),
        content_type: "application/json".into(),
        payload,
    };
    Some((message, address.headers()))
}
