//! Metrics by OTLP.

use crate::telemetry::metrics::{self, ALL, Kind, Taken};
use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use opentelemetry::metrics::MeterProvider;
use opentelemetry_otlp::{MetricExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider};

/// Records metrics from now on, and exports them where there is an endpoint.
pub(super) fn init(resource: Resource, endpoint: Option<&str>) -> Option<SdkMeterProvider> {
    let is_off = std::env::var("OTEL_METRICS_EXPORTER").is_ok_and(|exporter| exporter == "none");
    let provider = endpoint.filter(|_| !is_off).and_then(|endpoint| provider(resource, endpoint));
    match set(provider.as_ref().map(recorder)) {
        Ok(()) => provider,
        Err(taken) => {
            eprintln!("telemetry: {taken}");
            None
        }
    }
}

#[cfg(feature = "metrics-prometheus")]
fn set(exported: Option<OpenTelemetryRecorder>) -> Result<(), Taken> {
    metrics::install_beside(exported).map(drop)
}

#[cfg(not(feature = "metrics-prometheus"))]
fn set(exported: Option<OpenTelemetryRecorder>) -> Result<(), Taken> {
    exported.map_or(Ok(()), metrics::set)
}

/// Exports every minute, or as `OTEL_METRIC_EXPORT_INTERVAL` (in milliseconds) says.
fn provider(resource: Resource, endpoint: &str) -> Option<SdkMeterProvider> {
    match MetricExporter::builder().with_tonic().with_endpoint(endpoint).build() {
        Ok(exporter) => {
            Some(SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource).build())
        }
        Err(error) => {
            eprintln!("metrics: OTEL_EXPORTER_OTLP_ENDPOINT cannot be used, going on without: {error}");
            None
        }
    }
}

fn recorder(provider: &SdkMeterProvider) -> OpenTelemetryRecorder {
    let mut recorder = OpenTelemetryRecorder::new(OpenTelemetryMetrics::new(provider.meter("malote")));
    for metric in ALL {
        if let Kind::Histogram(bounds) = metric.kind {
            recorder.set_histogram_bounds_mut(std::iter::once(metric.name), bounds);
        }
    }
    metrics::describe(&recorder);
    recorder
}
