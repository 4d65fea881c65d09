//! The wire format: CloudEvents 1.0, Kafka binding, binary mode out, binary and structured mode in.
//!
//! One format for every transport, so that a service can change its transport and a program in
//! another language can read and write the same topics.
//!
//! | attribute | header |
//! |---|---|
//! | id, source, type, time | `ce_id`, `ce_source`, `ce_type`, `ce_time` |
//! | ordering key | `ce_partitionkey`, and the record's key |
//! | conversation, cause | `ce_correlationid`, `ce_causationid` |
//! | position in the outbox | `ce_sequence`, padded so that it sorts |
//! | trace in which it was written | `ce_traceparent` |
//! | trace of this hop | `traceparent`, `tracestate` |
//! | media type of the payload | `content-type` |

use crate::{Envelope, RawRecord, TraceContext};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A header by which a transport marks a record that lies damaged in it: what it could read of the
/// record's headers is the value, and the record is no event.
pub const DAMAGED: &str = "malote-damaged";

/// Writes an envelope as a record, in binary mode.
pub fn encode(envelope: &Envelope) -> RawRecord {
    let mut headers: Vec<(String, Bytes)> = Vec::with_capacity(14);
    let mut put = |name: &str, value: String| headers.push((name.to_owned(), Bytes::from(value)));
    put("ce_specversion", "1.0".into());
    put("ce_id", envelope.id.to_string());
    put("ce_source", envelope.source.clone());
    put("ce_type", envelope.kind.clone());
    put("ce_time", envelope.time.to_rfc3339_opts(SecondsFormat::Micros, true));
    put("ce_partitionkey", envelope.key.clone());
    put("content-type", envelope.content_type.clone());
    if let Some(id) = &envelope.correlation_id {
        put("ce_correlationid", id.clone());
    }
    if let Some(id) = &envelope.causation_id {
        put("ce_causationid", id.to_string());
    }
    if let Some(sequence) = envelope.sequence {
        put("ce_sequence", format!("{sequence:020}"));
    }
    if let Some(trace) = &envelope.trace {
        put("ce_traceparent", trace.parent.clone());
    }
    if let Some(hop) = envelope.hop.as_ref().or(envelope.trace.as_ref()) {
        put("traceparent", hop.parent.clone());
        if let Some(state) = &hop.state {
            put("tracestate", state.clone());
        }
    }
    for (name, value) in &envelope.headers {
        put(&format!("ce_{name}"), value.clone());
    }
    RawRecord { key: Some(Bytes::from(envelope.key.clone())), headers, payload: Some(envelope.payload.clone()) }
}

/// Reads a record as an envelope, or says what is wrong with it.
pub fn decode(topic: &str, record: &RawRecord) -> Result<Envelope, Malformed> {
    let text = |name: &'static str| -> Result<Option<&str>, Malformed> {
        // the last header of a name counts, and names differ in case between clients
        let found = record.headers.iter().rev().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| std::str::from_utf8(value).map_err(|_| Malformed::NotText(name))).transpose()
    };
    if record.headers.iter().any(|(name, _)| name == DAMAGED) {
        return Err(Malformed::Damaged);
    }
    let content_type = text("content-type")?.unwrap_or("application/json");
    if content_type.starts_with("application/cloudevents+json") {
        return structured(topic, record);
    }
    if text("ce_specversion")?.is_none() {
        return Err(Malformed::Missing("ce_specversion"));
    }
    let need = |name: &'static str| text(name)?.filter(|v| !v.is_empty()).ok_or(Malformed::Missing(name));
    let source = need("ce_source")?;
    let trace = |name| Ok::<_, Malformed>(text(name)?.map(str::to_owned));
    let known = [
        "specversion",
        "id",
        "source",
        "type",
        "time",
        "partitionkey",
        "correlationid",
        "causationid",
        "sequence",
        "traceparent",
    ];
    let headers = record.headers.iter().filter_map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let extension = name.strip_prefix("ce_").filter(|n| !known.contains(n))?;
        Some((extension.to_owned(), String::from_utf8_lossy(value).into_owned()))
    });
    let key = match (text("ce_partitionkey")?, &record.key) {
        (Some(key), _) => key.to_owned(),
        (None, Some(key)) => String::from_utf8(key.to_vec()).map_err(|_| Malformed::NotText("key"))?,
        (None, None) => String::new(),
    };
    Ok(Envelope {
        id: event_id(need("ce_id")?, source),
        kind: need("ce_type")?.to_owned(),
        topic: topic.to_owned(),
        key,
        source: source.to_owned(),
        time: text("ce_time")?.map_or(Ok(DateTime::UNIX_EPOCH), |t| time("ce_time", t))?,
        content_type: content_type.to_owned(),
        correlation_id: text("ce_correlationid")?.map(str::to_owned),
        causation_id: text("ce_causationid")?.and_then(|id| id.parse().ok()),
        trace: trace("ce_traceparent")?.map(|parent| TraceContext { parent, state: None }),
        hop: trace("traceparent")?
            .map(|parent| Ok::<_, Malformed>(TraceContext { parent, state: trace("tracestate")? }))
            .transpose()?,
        sequence: text("ce_sequence")?.and_then(|s| s.parse().ok()),
        headers: headers.collect(),
        payload: record.payload.clone().ok_or(Malformed::Missing("the payload"))?,
    })
}

/// A CloudEvent whose attributes lie in the payload. The bytes of `data` are kept as they came.
fn structured(topic: &str, record: &RawRecord) -> Result<Envelope, Malformed> {
    #[derive(Deserialize)]
    struct Whole<'a> {
        id: String,
        source: String,
        #[serde(rename = "type")]
        kind: String,
        time: Option<String>,
        partitionkey: Option<String>,
        datacontenttype: Option<String>,
        correlationid: Option<String>,
        causationid: Option<String>,
        traceparent: Option<String>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
        #[serde(flatten)]
        rest: BTreeMap<String, serde_json::Value>,
    }
    let payload = record.payload.as_ref().ok_or(Malformed::Missing("the payload"))?;
    let whole: Whole<'_> = serde_json::from_slice(payload).map_err(|e| Malformed::Structured(crate::unread(&e)))?;
    let data = whole.data.ok_or(Malformed::Missing("data"))?;
    let key = match (whole.partitionkey, &record.key) {
        (Some(key), _) => key,
        (None, Some(key)) => String::from_utf8(key.to_vec()).map_err(|_| Malformed::NotText("key"))?,
        (None, None) => String::new(),
    };
    let rest = whole.rest.into_iter().filter(|(name, _)| name != "specversion");
    Ok(Envelope {
        id: event_id(&whole.id, &whole.source),
        kind: whole.kind,
        topic: topic.to_owned(),
        key,
        source: whole.source,
        time: whole.time.map_or(Ok(DateTime::UNIX_EPOCH), |t| time("time", &t))?,
        content_type: whole.datacontenttype.unwrap_or_else(|| "application/json".into()),
        correlation_id: whole.correlationid,
        causation_id: whole.causationid.and_then(|id| id.parse().ok()),
        trace: whole.traceparent.map(|parent| TraceContext { parent, state: None }),
        hop: None,
        sequence: None,
        headers: rest.filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))).collect(),
        payload: Bytes::copy_from_slice(data.get().as_bytes()),
    })
}

/// Ids need not be UUIDs elsewhere; one that is not is mapped to one, always the same, per source.
fn event_id(id: &str, source: &str) -> Uuid {
    id.parse().unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{source}\n{id}").as_bytes()))
}

fn time(name: &'static str, text: &str) -> Result<DateTime<Utc>, Malformed> {
    DateTime::parse_from_rfc3339(text).map(|t| t.to_utc()).map_err(|e| Malformed::Time(name, e.to_string()))
}

/// A record that is not an envelope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The transport could not read it back.
    #[error("the record is damaged where it lies")]
    Damaged,
    /// Something that every CloudEvent has is not there.
    #[error("not a CloudEvent: {0} is missing")]
    Missing(&'static str),
    /// A header that is not UTF-8.
    #[error("not a CloudEvent: {0} is not UTF-8")]
    NotText(&'static str),
    /// A time that is none.
    #[error("not a CloudEvent: {0} is not an RFC 3339 time: {1}")]
    Time(&'static str, String),
    /// A structured event that cannot be read.
    #[error("not a structured CloudEvent: {0}")]
    Structured(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        Envelope {
            id: Uuid::from_u128(7),
            kind: "payment.settled.v1".into(),
            topic: "payment.settled.v1".into(),
            key: "chave-ação".into(),
            source: "ledger".into(),
            time: DateTime::from_timestamp_micros(1_764_500_000_123_456).unwrap(),
            content_type: "application/json".into(),
            correlation_id: Some("c".into()),
            causation_id: Some(Uuid::from_u128(8)),
            trace: Some(TraceContext {
                parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
                state: None,
            }),
            hop: Some(TraceContext {
                parent: "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01".into(),
                state: Some("a=b".into()),
            }),
            sequence: Some(42),
            headers: vec![("dataschema".into(), "x".into())],
            payload: Bytes::from_static(br#"{"n":9007199254740993, "d":0.123456789012345678901234567890}"#),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let sent = envelope();
        assert_eq!(decode(&sent.topic, &encode(&sent)).unwrap(), sent);
    }

    #[test]
    fn the_headers_are_those_of_the_kafka_binding() {
        let record = encode(&envelope());
        let shown: Vec<String> =
            record.headers.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v))).collect();
        assert!(shown.contains(&"ce_time: 2025-11-30T10:53:20.123456Z".to_owned()), "{shown:#?}");
        assert!(shown.contains(&"ce_sequence: 00000000000000000042".to_owned()), "{shown:#?}");
        assert_eq!(record.key.as_deref(), Some("chave-ação".as_bytes()));
    }

    #[test]
    fn structured_mode_keeps_the_bytes_of_its_data() {
        let body = br#"{"specversion":"1.0","id":"any text","source":"s","type":"t.v1","partitionkey":"k","data": {"n":9007199254740993,  "s":"\u0000"}}"#;
        let record = RawRecord {
            headers: vec![("content-type".into(), Bytes::from_static(b"application/cloudevents+json; charset=utf-8"))],
            payload: Some(Bytes::from_static(body)),
            key: None,
        };
        let read = decode("t.v1", &record).unwrap();
        assert_eq!(&read.payload[..], br#"{"n":9007199254740993,  "s":"\u0000"}"#);
        assert_eq!((read.key.as_str(), read.id), ("k", event_id("any text", "s")));
    }

    #[test]
    fn every_broken_record_says_what_is_wrong() {
        let whole = encode(&envelope());
        for lacking in ["ce_specversion", "ce_id", "ce_source", "ce_type"] {
            let mut record = whole.clone();
            record.headers.retain(|(n, _)| n != lacking);
            assert_eq!(decode("t", &record), Err(Malformed::Missing(lacking)));
        }
        let mut record = whole.clone();
        record.headers.push(("ce_time".into(), Bytes::from_static(b"yesterday")));
        assert!(matches!(decode("t", &record), Err(Malformed::Time("ce_time", _))));
        record.headers.push(("ce_type".into(), Bytes::from_static(b"\xff")));
        assert_eq!(decode("t", &record), Err(Malformed::NotText("ce_type")));
        let tombstone = RawRecord { payload: None, ..whole };
        assert_eq!(decode("t", &tombstone), Err(Malformed::Missing("the payload")));
    }
}
