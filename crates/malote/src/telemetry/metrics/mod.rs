//! How much, how old, how long: numbers for alarms and for pictures of the whole.
//!
//! ```text
//!                                                        ┌──▶ Prometheus' text, for /metrics
//!   counter! gauge! histogram! ──▶ the facade `metrics` ─┤
//!                                                        └──▶ OpenTelemetry ──▶ OTLP
//! ```
//!
//! The library only records. Where an application has set a recorder of its own before, that one gets
//! everything, and [`ALL`] says what there is.

pub(crate) mod messaging;
#[cfg(feature = "metrics-prometheus")]
mod prometheus;
mod table;

#[cfg(feature = "metrics-prometheus")]
pub use prometheus::{CONTENT_TYPE, Metrics, install, installed};
pub use table::{ALL, Kind, Metric, Unit, find};

#[cfg(all(feature = "metrics-prometheus", feature = "otel"))]
pub(in crate::telemetry) use prometheus::install_beside;

/// Lets counters of a service start at nothing, not with their first event: from the outside a series
/// that appears has not grown.
pub(crate) fn begin(service: &str) {
    for metric in ALL.iter().filter(|metric| metric.kind == Kind::Counter) {
        if let [label @ ("service" | "consumer")] = *metric.labels {
            metrics::counter!(metric.name, label => service.to_owned()).increment(0);
        }
    }
}

/// Tells a recorder what is to come, before it is set.
#[cfg(any(feature = "metrics-prometheus", feature = "otel"))]
pub(in crate::telemetry) fn describe(recorder: &impl metrics::Recorder) {
    for Metric { name, kind, unit, help, .. } in ALL {
        let unit = Some(match unit {
            Unit::Count => metrics::Unit::Count,
            Unit::Seconds => metrics::Unit::Seconds,
            Unit::Bytes => metrics::Unit::Bytes,
        });
        match kind {
            Kind::Counter => recorder.describe_counter((*name).into(), unit, (*help).into()),
            Kind::Gauge => recorder.describe_gauge((*name).into(), unit, (*help).into()),
            Kind::Histogram(_) => recorder.describe_histogram((*name).into(), unit, (*help).into()),
        }
    }
}

/// Sets a process's recorder, once.
#[cfg(any(feature = "metrics-prometheus", feature = "otel"))]
pub(in crate::telemetry) fn set(recorder: impl metrics::Recorder + Sync + 'static) -> Result<(), Taken> {
    metrics::set_global_recorder(recorder).map_err(|_| Taken)?;
    metrics::gauge!("malote_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(())
}

/// The process has a recorder already, set by somebody else.
#[cfg(any(feature = "metrics-prometheus", feature = "otel"))]
#[derive(Debug, thiserror::Error)]
#[error("a recorder of metrics is set already, and this one is not used")]
pub struct Taken;
