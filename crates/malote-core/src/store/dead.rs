//! What was given up, and how it came to that.

use super::Admission;
use crate::{Class, RawRecord};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The longest error text that is kept, in bytes. Setting something aside must never depend on how
/// much an error has to say.
pub const REASON_BYTES: usize = 2048;

/// Cuts an error text on a character boundary and takes out what PostgreSQL cannot hold.
pub fn cut_reason(text: &str) -> String {
    if crate::planted::is("reason-uncut") {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(REASON_BYTES);
    text[..end].replace('\0', "\u{fffd}")
}

/// Who gave up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// A service, as a consumer.
    Consumer(String),
    /// The relay of a service: the broker refused it for good, or the row cannot be read.
    Relay(String),
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(name) => write!(f, "consumer {name}"),
            Self::Relay(name) => write!(f, "relay {name}"),
        }
    }
}

impl FromStr for By {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(' ') {
            Some(("consumer", name)) => Ok(Self::Consumer(name.to_owned())),
            Some(("relay", name)) => Ok(Self::Relay(name.to_owned())),
            _ => Err(format!("`consumer NAME` or `relay NAME` is expected, not {text:?}")),
        }
    }
}

/// Something that was given up, and why.
#[derive(Clone, Debug)]
pub struct Dead {
    /// Who gave it up.
    pub by: By,
    /// Identifies it among what `by` gave up: an envelope id, or a place (`TOPIC partition N offset N`,
    /// `outbox row N`).
    pub what: String,
    /// The event's id and day, where they could be read.
    pub admission: Option<Admission>,
    /// The event's type, where it could be read.
    pub kind: Option<String>,
    /// The topic it came from or was meant for.
    pub topic: String,
    /// The ordering key, where it could be read.
    pub key: Option<String>,
    /// Where it lay, where that is known.
    pub partition: Option<i32>,
    /// Where it lay, where that is known.
    pub offset: Option<i64>,
    /// What kind of failure it was in the end.
    pub class: Class,
    /// Why, cut by [`cut_reason`].
    pub reason: String,
    /// How often it was tried in all.
    pub attempts: u32,
    /// How it went each time, the latest last.
    pub history: History,
    /// The conversation it belongs to, where it could be read.
    pub correlation_id: Option<String>,
    /// The trace in which it was written (`traceparent`), where it could be read.
    pub trace: Option<String>,
    /// The record as it came, or would have gone.
    pub record: RawRecord,
}

/// One thing that happened to a message that did not go well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setback {
    /// When, by the clock of the process that saw it; for people.
    pub at: DateTime<Utc>,
    /// Which attempt it was, from 1; an act of a person has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The class of the failure (see [`Class`]), or the act (`redriven`).
    pub what: String,
    /// The error, cut short; or who acted, and why.
    pub why: String,
}

/// What happened to a message, kept through dead letters and redrives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(Vec<Setback>);

impl History {
    /// Most entries; the first ones and the latest are kept.
    pub const ENTRIES: usize = 32;
    /// The longest error text of one entry, in bytes.
    pub const WHY_BYTES: usize = 256;

    /// Adds an entry, its text cut. Of a long history the middle gives way.
    pub fn push(&mut self, mut entry: Setback) {
        let end = entry.why.floor_char_boundary(Self::WHY_BYTES);
        entry.why = entry.why[..end].replace('\0', "\u{fffd}");
        if self.0.len() >= Self::ENTRIES {
            self.0.remove(Self::ENTRIES / 2);
        }
        self.0.push(entry);
    }

    /// The entries, the oldest first.
    pub fn entries(&self) -> &[Setback] {
        &self.0
    }

    /// As JSON, as the stores keep it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "[]".into())
    }

    /// From JSON; what cannot be read is an empty history, which must not stand in a message's way.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

impl Setback {
    /// A failed attempt.
    pub fn failed(at: DateTime<Utc>, attempt: u32, class: Class, why: &str) -> Self {
        Self { at, attempt: Some(attempt), what: class.as_str().into(), why: why.into() }
    }

    /// Something that a person did.
    pub fn act(at: DateTime<Utc>, act: &str, why: &str) -> Self {
        Self { at, attempt: None, what: act.into(), why: why.into() }
    }
}

impl Dead {
    /// Cuts a reason; see [`cut_reason`].
    pub fn reason(text: &str) -> String {
        cut_reason(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_stays_bounded_and_keeps_both_ends() {
        let mut history = History::default();
        for attempt in 1..=200 {
            history.push(Setback::failed(DateTime::UNIX_EPOCH, attempt, Class::Transient, &"é".repeat(5000)));
        }
        assert_eq!(history.entries().len(), History::ENTRIES);
        assert_eq!(history.entries()[0].attempt, Some(1));
        assert_eq!(history.entries()[History::ENTRIES - 1].attempt, Some(200));
        assert!(history.entries().iter().all(|e| e.why.len() <= History::WHY_BYTES));
        assert_eq!(History::from_json(&history.to_json()), history);
        assert_eq!(History::from_json("not json"), History::default());
    }

    #[test]
    fn ac_014_an_error_is_cut_on_a_character() {
        let text = format!("a{}", "🦀".repeat(600_000));
        let cut = cut_reason(&text);
        assert!(cut.len() <= REASON_BYTES && cut.ends_with('🦀'), "{} bytes", cut.len());
        assert!(!cut_reason("a\0b").contains('\0'));
    }

    #[test]
    fn who_gave_up_is_read_back() {
        for by in [By::Consumer("a b".into()), By::Relay("payment".into())] {
            assert_eq!(by.to_string().parse::<By>(), Ok(by));
        }
        assert!("somebody else".parse::<By>().is_err());
    }
}
