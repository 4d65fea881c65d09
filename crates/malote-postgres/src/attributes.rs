//! The `headers` column: an envelope's further attributes as one JSON object of strings, by their
//! CloudEvents names, so that programs in other languages can write it by hand.

use chrono::{DateTime, SecondsFormat, Utc};
use malote_core::{Envelope, TraceContext};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
    ser::{SerializeMap, Serializer},
};
use std::fmt;

const SOURCE: &str = "source";
const TIME: &str = "time";
const CONTENT_TYPE: &str = "datacontenttype";
const CORRELATION: &str = "correlationid";
const CAUSATION: &str = "causationid";
const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";

/// Writes the attributes that have no column of their own.
pub(crate) fn write(envelope: &Envelope) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Attributes { envelope, timed: true })
}

/// Writes them without the time: it is that of the row, when there will be one in the outbox.
pub(crate) fn write_untimed(envelope: &Envelope) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Attributes { envelope, timed: false })
}

struct Attributes<'e> {
    envelope: &'e Envelope,
    timed: bool,
}

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let envelope = self.envelope;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(SOURCE, &envelope.source)?;
        if self.timed {
            map.serialize_entry(TIME, &envelope.time.to_rfc3339_opts(SecondsFormat::Micros, true))?;
        }
        map.serialize_entry(CONTENT_TYPE, &envelope.content_type)?;
        if let Some(id) = &envelope.correlation_id {
            map.serialize_entry(CORRELATION, id)?;
        }
        if let Some(id) = &envelope.causation_id {
            map.serialize_entry(CAUSATION, id)?;
        }
        if let Some(trace) = &envelope.trace {
            map.serialize_entry(TRACE_PARENT, &trace.parent)?;
            if let Some(state) = &trace.state {
                map.serialize_entry(TRACE_STATE, state)?;
            }
        }
        for (name, value) in &envelope.headers {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Sets the attributes of an envelope that the column holds; what it does not name stays as it is.
pub(crate) fn read(text: &str, envelope: &mut Envelope) -> Result<(), String> {
    let Pairs(pairs) = serde_json::from_str(text).map_err(|e| format!("the headers cannot be read: {e}"))?;
    let mut state = None;
    for (name, value) in pairs {
        match name.as_str() {
            SOURCE => envelope.source = value,
            TIME => envelope.time = time(&value)?,
            CONTENT_TYPE => envelope.content_type = value,
            CORRELATION => envelope.correlation_id = Some(value),
            CAUSATION => envelope.causation_id = value.parse().ok(),
            TRACE_PARENT => envelope.trace = Some(TraceContext { parent: value, state: None }),
            TRACE_STATE => state = Some(value),
            _ => envelope.headers.push((name, value)),
        }
    }
    if let Some(trace) = &mut envelope.trace {
        trace.state = state;
    }
    Ok(())
}

fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text);
    time.map(|time| time.to_utc()).map_err(|e| format!("the time {text:?} in the headers cannot be read: {e}"))
}

/// The members of an object in the order in which they stand.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose members are strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Members)
    }
}
