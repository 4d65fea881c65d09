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
        serde_json::from_slice(&envelope.payload).map_err(|e| Unfit::Decode(Self::TYPE, e.to_string()))
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
