//! Events, and what a handler may return.

use crate::{Envelope, Message, Unfit};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A fact with a public contract.
pub trait Event: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The type's name with its version, such as `payment.settled.v1`.
    const TYPE: &'static str;

    /// Where it is published: its type, unless types that must keep order share a topic.
    fn topic() -> &'static str {
        Self::TYPE
    }

    /// Ordering key: events of one topic and key are handled in the order in which they were written.
    fn key(&self) -> String;

    /// Reads it from an envelope: from its payload, unless it wants to know more.
    fn open(envelope: &Envelope) -> Result<Self, Unfit> {
        serde_json::from_slice(&envelope.payload).map_err(|e| Unfit::Decode(Self::TYPE, unread(&e)))
    }
}

/// What is wrong with JSON, and where; nothing of what it holds, which may be private.
pub fn unread(error: &serde_json::Error) -> String {
    let said = error.to_string();
    if error.classify() != serde_json::error::Category::Data || crate::planted::is("json-values-told") {
        return said; // of its form only
    }
    let place = match error.line() {
        0 => String::new(),
        line => format!(" at line {line} column {}", error.column()),
    };
    let said = said.strip_suffix(&place).unwrap_or(&said);
    // names of members are the type's; of what stands there instead of what is expected, only that is told
    if ["missing field `", "duplicate field `"].iter().any(|begin| said.starts_with(begin)) {
        return format!("{said}{place}");
    }
    let quotes = ["invalid type: ", "invalid value: ", "unknown variant `", "unknown field `"];
    match said.rsplit_once(", expected ").filter(|_| quotes.iter().any(|begin| said.starts_with(begin))) {
        Some((_, expected)) => format!("expected {expected}{place}"),
        None => format!("it does not fit{place}"),
    }
}

/// An event's type and topic, as a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventType {
    /// The type's name.
    #[serde(rename = "type")]
    pub name: String,
    /// The topic on which it travels.
    pub topic: String,
}

impl EventType {
    /// The type and topic of `E`.
    pub fn of<E: Event>() -> Self {
        Self { name: E::TYPE.into(), topic: E::topic().into() }
    }
}

/// What a handler may emit: nothing, an event, one of several (see [`events!`](crate::events)), or
/// any of these in an `Option`, a `Vec` or a pair.
pub trait Events: Send + 'static {
    /// Adds every type that may come out.
    fn types(into: &mut Vec<EventType>);
    /// Adds what did come out.
    fn write(self, into: &mut Vec<Message>) -> Result<(), Unfit>;
}

impl Events for () {
    fn types(_: &mut Vec<EventType>) {}
    fn write(self, _: &mut Vec<Message>) -> Result<(), Unfit> {
        Ok(())
    }
}

impl<E: Event> Events for E {
    fn types(into: &mut Vec<EventType>) {
        into.push(EventType::of::<E>());
    }
    fn write(self, into: &mut Vec<Message>) -> Result<(), Unfit> {
        into.push(Message::of(&self)?);
        Ok(())
    }
}

impl<T: Events> Events for Option<T> {
    fn types(into: &mut Vec<EventType>) {
        T::types(into);
    }
    fn write(self, into: &mut Vec<Message>) -> Result<(), Unfit> {
        self.map_or(Ok(()), |some| some.write(into))
    }
}

impl<T: Events> Events for Vec<T> {
    fn types(into: &mut Vec<EventType>) {
        T::types(into);
    }
    fn write(self, into: &mut Vec<Message>) -> Result<(), Unfit> {
        self.into_iter().try_for_each(|one| one.write(into))
    }
}

/// One of two, such as the answer to a command.
impl<A: Events, B: Events> Events for Result<A, B> {
    fn types(into: &mut Vec<EventType>) {
        A::types(into);
        B::types(into);
    }
    fn write(self, into: &mut Vec<Message>) -> Result<(), Unfit> {
        match self {
            Ok(one) => one.write(into),
            Err(other) => other.write(into),
        }
    }
}

impl<A: Events, B: Events> Events for (A, B) {
    fn types(into: &mut Vec<EventType>) {
        A::types(into);
        B::types(into);
    }
    fn write(self, into: &mut Vec<Message>) -> Result<(), Unfit> {
        self.0.write(into)?;
        self.1.write(into)
    }
}

/// Declares an enum of which each case is something a handler may emit.
///
/// ```
/// # use malote_core::{events, Event};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Settled { id: String }
/// # impl Event for Settled { const TYPE: &'static str = "settled.v1"; fn key(&self) -> String { self.id.clone() } }
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Failed { id: String }
/// # impl Event for Failed { const TYPE: &'static str = "failed.v1"; fn key(&self) -> String { self.id.clone() } }
/// events! {
///     /// How a settlement ends.
///     pub enum Settlement { Settled(Settled), Failed(Failed) }
/// }
/// let one: Settlement = Settled { id: "p1".into() }.into();
/// ```
#[macro_export]
macro_rules! events {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$case_meta:meta])* $case:ident($ty:ty)),+ $(,)? }) => {
        $(#[$meta])*
        #[allow(missing_docs)]
        $vis enum $name { $($(#[$case_meta])* $case($ty)),+ }
        impl $crate::Events for $name {
            fn types(into: &mut Vec<$crate::EventType>) {
                $(<$ty as $crate::Events>::types(into);)+
            }
            fn write(self, into: &mut Vec<$crate::Message>) -> Result<(), $crate::Unfit> {
                match self { $(Self::$case(inner) => $crate::Events::write(inner, into)),+ }
            }
        }
        $(impl From<$ty> for $name { fn from(inner: $ty) -> Self { Self::$case(inner) } })+
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Paid {
        card: u64,
        by: Way,
        id: uuid::Uuid,
    }

    #[derive(Debug, Deserialize)]
    enum Way {
        Card,
    }

    #[test]
    fn what_is_wrong_with_json_is_told_without_what_it_holds() {
        let id = "00000000-0000-0000-0000-000000000007";
        for (payload, says) in [
            (r#"{"card": "tok_secret"}"#.to_owned(), "expected u64 at line 1 column 21"),
            (r#"{"card": "secret, expected secret"}"#.to_owned(), "expected u64 at line 1 column 34"),
            (r#"{"card": 1, "by": "secret"}"#.to_owned(), "expected `Card` at line 1 column 26"),
            (r#"{"card": 1, "by": "Card", "id": "secret"}"#.to_owned(), "it does not fit at line 1 column 40"),
            (format!(r#"{{"card": 1, "id": "{id}"}}"#), "missing field `by` at line 1 column 57"),
            (format!(r#"{{"card": -7, "id": "{id}"}}"#), "expected u64 at line 1 column 11"),
            ("secret".to_owned(), "expected value at line 1 column 1"),
            (r#"{"card": 1"#.to_owned(), "EOF while parsing an object at line 1 column 10"),
        ] {
            let error = serde_json::from_str::<Paid>(&payload).expect_err("does not fit");
            assert_eq!(unread(&error), says, "{error}");
        }
        let value = serde_json::json!({"card": "secret"});
        let error = serde_json::from_value::<Paid>(value).expect_err("does not fit");
        assert_eq!(unread(&error), "expected u64");
    }
}
