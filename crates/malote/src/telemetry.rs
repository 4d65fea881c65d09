//! What others see of it: one trace over every hop, and [`metrics`].
//!
//! ```text
//!   POST /payment (SERVER) ─▶ create payment.received.v1 (PRODUCER) ─▶ send … (CLIENT) ─▶ process … (CONSUMER) ─▶ create …
//! ```
//!
//! The making of an envelope is a span whose context travels in the outbox row (`ce_traceparent`);
//! the relay's send continues it and puts its own context in the record (`traceparent`); the
//! receiver's processing continues that. Names and attributes follow OpenTelemetry's semantic
//! conventions for messaging (v1.38, in development).

use malote_core::{Envelope, TraceContext, Tracer};
use std::sync::Arc;

pub mod metrics;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "otel")]
pub use otel::{Guard, init};

/// The context of the current span, to be carried on.
pub fn current() -> Option<TraceContext> {
    #[cfg(feature = "otel")]
    return otel::current();
    #[cfg(not(feature = "otel"))]
    None
}

/// Records the making of envelopes, where tracing is on.
pub fn tracer() -> Option<Arc<dyn Tracer>> {
    #[cfg(feature = "otel")]
    return otel::tracer();
    #[cfg(not(feature = "otel"))]
    None
}

/// The span in which `envelope` is handled by `group`; it continues the trace that came with it.
pub(crate) fn process_span(envelope: &Envelope, group: &str, system: &'static str) -> tracing::Span {
    let span = tracing::info_span!(
        "process",
        otel.name = format!("process {}", envelope.topic),
        otel.kind = "consumer",
        messaging.system = system,
        messaging.operation.name = "process",
        messaging.operation.r#type = "process",
        messaging.destination.name = envelope.topic,
        messaging.message.id = %envelope.id,
        messaging.message.conversation_id = envelope.correlation_id,
        messaging.consumer.group.name = group,
        malote.service = group,
        error.r#type = tracing::field::Empty,
    );
    continue_from(&span, envelope.hop.as_ref().or(envelope.trace.as_ref()));
    span
}

/// Makes a span the child of one in another process.
pub(crate) fn continue_from(span: &tracing::Span, trace: Option<&TraceContext>) {
    #[cfg(feature = "otel")]
    otel::continue_from(span, trace);
    #[cfg(not(feature = "otel"))]
    let _ = (span, trace);
}

/// Records the sending of one envelope until it is dropped.
pub(crate) struct Sending(#[cfg(feature = "otel")] Option<opentelemetry::global::BoxedSpan>);

impl Sending {
    /// Begins to record, and gives the envelope the context of the hop.
    pub(crate) fn begin(envelope: &mut Envelope, system: &'static str) -> Self {
        #[cfg(feature = "otel")]
        return Self(otel::begin_send(envelope, system));
        #[cfg(not(feature = "otel"))]
        {
            let _ = (envelope, system);
            Self()
        }
    }

    /// Says that it did not go well.
    pub(crate) fn failed(&mut self, why: &str) {
        #[cfg(feature = "otel")]
        if let Some(span) = &mut self.0 {
            use opentelemetry::trace::{Span as _, Status};
            span.set_status(Status::error(why.to_owned()));
        }
        #[cfg(not(feature = "otel"))]
        let _ = why;
    }
}
