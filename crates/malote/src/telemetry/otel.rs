//! The OpenTelemetry side: contexts as text, spans by the global tracer, export by OTLP.

use malote_core::{Envelope, TraceContext, Tracer};
use opentelemetry::{
    Context, KeyValue, global,
    global::BoxedSpan,
    propagation::{Extractor, Injector, TextMapPropagator},
    trace::{Span as _, SpanKind, TraceContextExt, Tracer as _, TracerProvider as _},
};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::{
    Resource, metrics::SdkMeterProvider, propagation::TraceContextPropagator, trace::SdkTracerProvider,
};
use std::{
    io::{IsTerminal, stderr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{EnvFilter, Layer, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

mod meter;

static ON: AtomicBool = AtomicBool::new(false);

/// Ends the export in good order when dropped: what was recorded is sent.
pub struct Guard {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.traces.take().map(|provider| provider.shutdown()) {
            eprintln!("traces: the last spans could not be exported: {error}");
        }
        if let Some(Err(error)) = self.metrics.take().map(|provider| provider.shutdown()) {
            eprintln!("metrics: the last values could not be exported: {error}");
        }
    }
}

/// Logs to standard error (`RUST_LOG`, `info` by default), records metrics
/// ([`metrics::installed`](super::metrics::installed) renders them) and, when
/// `OTEL_EXPORTER_OTLP_ENDPOINT` is set, exports traces and metrics there by OTLP over gRPC;
/// `OTEL_METRICS_EXPORTER=none` exports traces only. What is wrong with these variables is said on
/// standard error. Call it once, inside the async runtime; keep the
/// guard until the end.
pub fn init(service: &str) -> Guard {
    let filter = filter(std::env::var("RUST_LOG").ok().filter(|directives| !directives.is_empty()).as_deref());
    let log = tracing_subscriber::fmt::layer().with_writer(stderr).with_target(false).with_ansi(stderr().is_terminal());
    let endpoint = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().filter(|e| !e.is_empty());
    let resource = Resource::builder().with_service_name(service.to_owned()).build();
    let traces = endpoint.as_ref().and_then(|endpoint| provider(resource.clone(), endpoint));
    let spans = traces.as_ref().map(|p| {
        global::set_tracer_provider(p.clone());
        ON.store(true, Ordering::Release);
        // spans are exported at info whatever the log shows
        tracing_opentelemetry::layer().with_tracer(p.tracer("malote")).with_filter(EnvFilter::new("info"))
    });
    let registry = tracing_subscriber::registry().with(spans).with(log.with_filter(filter));
    if registry.try_init().is_err() {
        eprintln!("telemetry: a subscriber is set already; this one is not used");
    }
    Guard { traces, metrics: meter::init(resource, endpoint.as_deref()) }
}

/// What is logged; says what it cannot make sense of.
fn filter(directives: Option<&str>) -> EnvFilter {
    let directives = directives.unwrap_or("info");
    for word in directives.split(',').map(str::trim).filter(|word| is_doubtful(word)) {
        eprintln!(
            "log: in RUST_LOG, {word:?} is no level (error, warn, info, debug, trace, off): taken as a crate's name"
        );
    }
    EnvFilter::try_new(directives).unwrap_or_else(|error| {
        eprintln!("log: RUST_LOG cannot be used, going on with info: {error}");
        EnvFilter::new("info")
    })
}

/// A misspelt level would be taken for the name of a crate, and nothing be logged.
fn is_doubtful(word: &str) -> bool {
    let plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
    plain && word.parse::<LevelFilter>().is_err()
}

fn provider(resource: Resource, endpoint: &str) -> Option<SdkTracerProvider> {
    // what is no URL is otherwise found at the first export, and then not told
    let authority = ["http://", "https://"].iter().find_map(|scheme| endpoint.strip_prefix(scheme));
    if authority
        .is_none_or(|rest| rest.starts_with([':', '/']) || rest.is_empty() || rest.contains(char::is_whitespace))
    {
        eprintln!(
            "traces: OTEL_EXPORTER_OTLP_ENDPOINT cannot be used, going on without: a URL such as http://localhost:4317 \
             is expected"
        );
        return None;
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    match exporter {
        Ok(exporter) => {
            Some(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
        }
        Err(error) => {
            eprintln!("traces: OTEL_EXPORTER_OTLP_ENDPOINT cannot be used, going on without: {error}");
            None
        }
    }
}

struct Text(TraceContext);

impl Extractor for Text {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => Some(&self.0.parent),
            "tracestate" => self.0.state.as_deref(),
            _ => None,
        }
    }
    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

#[derive(Default)]
struct Carrier {
    parent: Option<String>,
    state: Option<String>,
}

impl Injector for Carrier {
    fn set(&mut self, key: &str, value: String) {
        match key {
            "traceparent" => self.parent = Some(value),
            "tracestate" if !value.is_empty() => self.state = Some(value),
            _ => {}
        }
    }
}

fn to_context(trace: &TraceContext) -> Context {
    // onto nothing: what happens to be the current span here is not the cause
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Text(trace.clone()))
}

fn to_text(context: &Context) -> Option<TraceContext> {
    let mut carrier = Carrier::default();
    TraceContextPropagator::new().inject_context(context, &mut carrier);
    carrier.parent.map(|parent| TraceContext { parent, state: carrier.state })
}

pub(super) fn current() -> Option<TraceContext> {
    if !ON.load(Ordering::Acquire) {
        return None;
    }
    to_text(&tracing::Span::current().context())
}

pub(super) fn tracer() -> Option<Arc<dyn Tracer>> {
    ON.load(Ordering::Acquire).then(|| Arc::new(Creations) as Arc<dyn Tracer>)
}

pub(super) fn continue_from(span: &tracing::Span, trace: Option<&TraceContext>) {
    if ON.load(Ordering::Acquire)
        && let Some(trace) = trace
    {
        // fails only for a span that is disabled, and then there is nothing to continue
        let _ = span.set_parent(to_context(trace));
    }
}

fn is_sampled(trace: &TraceContext) -> bool {
    let flags = trace.parent.rsplit('-').next().and_then(|f| u8::from_str_radix(f, 16).ok());
    flags.is_some_and(|f| f & 1 == 1)
}

fn span(envelope: &Envelope, operation: &'static str, kind: SpanKind, parent: &Context) -> BoxedSpan {
    let tracer = global::tracer("malote");
    let mut attributes = vec![
        KeyValue::new("messaging.operation.name", operation),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.destination.name", envelope.topic.clone()),
        KeyValue::new("messaging.message.id", envelope.id.to_string()),
        KeyValue::new("malote.service", envelope.source.clone()),
    ];
    if let Some(conversation) = &envelope.correlation_id {
        attributes.push(KeyValue::new("messaging.message.conversation_id", conversation.clone()));
    }
    tracer
        .span_builder(format!("{operation} {}", envelope.topic))
        .with_kind(kind)
        .with_attributes(attributes)
        .start_with_context(&tracer, parent)
}

/// Records the making of each envelope as a span of its own.
struct Creations;

impl Tracer for Creations {
    fn created(&self, envelope: &Envelope) -> Option<TraceContext> {
        let trace = envelope.trace.as_ref().filter(|t| is_sampled(t))?;
        let mut span = span(envelope, "create", SpanKind::Producer, &to_context(trace));
        let context = Context::new().with_remote_span_context(span.span_context().clone());
        span.end();
        to_text(&context)
    }
}

pub(super) fn begin_send(envelope: &mut Envelope, system: &'static str) -> Option<BoxedSpan> {
    if !ON.load(Ordering::Acquire) {
        return None;
    }
    let trace = envelope.trace.as_ref().filter(|t| is_sampled(t))?;
    let mut span = span(envelope, "send", SpanKind::Client, &to_context(trace));
    span.set_attribute(KeyValue::new("messaging.system", system));
    envelope.hop = to_text(&Context::new().with_remote_span_context(span.span_context().clone()));
    Some(span)
}
