//! What could never be delivered is refused when it is said.
#![allow(missing_docs)]

use chrono::{DateTime, Utc};
use malote_core::{Cause, Clock, Envelope, MAX_ENVELOPE_BYTES, Message, Sealer, Unfit};
use std::sync::Arc;
use uuid::Uuid;

struct Fixed;
impl Clock for Fixed {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_nanos(1_764_500_000_123_456_789)
    }
    fn new_id(&self) -> Uuid {
        Uuid::from_u128(7)
    }
}

fn seal(topic: &str, key: &str, payload: Vec<u8>) -> Result<Envelope, Unfit> {
    let message = Message {
        kind: "t.v1".into(),
        topic: topic.into(),
        key: key.into(),
        content_type: "application/json".into(),
        payload: payload.into(),
    };
    Sealer::new("service", Arc::new(Fixed)).seal(message)
}

#[test]
fn ac_018_a_nul_is_refused_in_a_key_and_kept_in_a_payload() {
    assert!(matches!(seal("t.v1", "a\0b", vec![]), Err(Unfit::Nul("key", _))));
    let kept = seal("t.v1", "k", b"\"a\0b\\u0000\"".to_vec()).unwrap();
    assert_eq!(&kept.payload[..], b"\"a\0b\\u0000\"");
}

#[test]
fn the_size_is_checked_when_it_is_said_not_when_it_is_sent() {
    let bare = seal("t.v1", "k", vec![]).unwrap().size();
    let room = MAX_ENVELOPE_BYTES - bare;
    assert!(seal("t.v1", "k", vec![b'x'; room]).is_ok());
    let refused = seal("t.v1", "k", vec![b'x'; room + 1]).unwrap_err();
    assert!(matches!(refused, Unfit::Large { size, limit, .. } if size == limit + 1), "{refused}");
}

#[test]
fn a_topic_that_kafka_would_not_take_is_refused() {
    for topic in ["", ".", "..", "a b", "a/b", "é", "a\n", &"x".repeat(250)] {
        assert!(matches!(seal(topic, "k", vec![]), Err(Unfit::Topic(..))), "{topic:?}");
    }
    assert!(seal(&"x".repeat(249), "k", vec![]).is_ok());
}

#[test]
fn an_envelope_continues_the_conversation_it_is_caused_by() {
    let first = seal("t.v1", "k", vec![]).unwrap();
    assert_eq!(first.correlation_id, Some(first.id.to_string()), "the first names the conversation");
    assert_eq!(first.time.timestamp_subsec_nanos(), 123_456_000, "what a database can hold");
    let cause = Cause::of(&first);
    assert_eq!((cause.correlation_id, cause.causation_id), (first.correlation_id.clone(), Some(first.id)));
}
