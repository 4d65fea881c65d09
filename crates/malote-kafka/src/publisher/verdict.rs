//! What an error of the client says about a record.

use malote_core::planted;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// What is known of a record that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The broker will never take it.
    Refused(String),
    /// The broker refused the request it was in; which record is at fault, it does not say.
    Suspect(String),
    /// Nobody knows.
    Unknown(String),
}

impl Verdict {
    /// Reads an error; `alone` says whether the record was alone in its request.
    pub(super) fn of(error: &KafkaError, alone: bool) -> Self {
        let why = error.to_string();
        match error.rdkafka_error_code() {
            // about the topic, so about each of its records
            Some(Code::TopicAuthorizationFailed | Code::InvalidTopic) => Self::Refused(why),
            Some(
                Code::MessageSizeTooLarge
                | Code::MessageBatchTooLarge
                | Code::InvalidMessageSize
                | Code::InvalidRecord
                | Code::InvalidDifferentRecord
                | Code::InvalidTimestamp
                | Code::UnsupportedForMessageFormat
                | Code::PolicyViolation,
            ) => {
                if alone || planted::is("kafka-suspects") {
                    Self::Refused(why)
                } else {
                    Self::Suspect(why)
                }
            }
            _ if matches!(error, KafkaError::Nul(_)) => Self::Refused(why),
            _ => Self::Unknown(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_only_when_it_is_about_this_record() {
        let of = |code, alone| Verdict::of(&KafkaError::MessageProduction(code), alone);
        assert!(matches!(of(Code::MessageSizeTooLarge, true), Verdict::Refused(_)));
        assert!(matches!(of(Code::MessageSizeTooLarge, false), Verdict::Suspect(_)));
        assert!(matches!(of(Code::TopicAuthorizationFailed, false), Verdict::Refused(_)));
    }

    #[test]
    fn whatever_may_have_been_stored_is_unknown() {
        for code in [
            Code::MessageTimedOut,
            Code::PurgeInflight,
            Code::PurgeQueue,
            Code::RequestTimedOut,
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::BrokerTransportFailure,
            Code::GaplessGuarantee,
            Code::Fatal,
            Code::OutOfOrderSequenceNumber,
            Code::UnknownTopicOrPartition,
            Code::Unknown,
        ] {
            assert!(matches!(Verdict::of(&KafkaError::MessageProduction(code), true), Verdict::Unknown(_)), "{code:?}");
        }
    }
}
