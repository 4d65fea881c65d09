//! Metrics as Prometheus reads them.

use super::{ALL, Kind, Taken};
use metrics::{NoopRecorder, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::layers::FanoutBuilder;
use std::{
    sync::{PoisonError, RwLock},
    thread,
    time::Duration,
};

/// What [`Metrics::render`] returns, for the header `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How often the values of histograms are sorted into their buckets; until then each takes its room.
const UPKEEP: Duration = Duration::from_secs(5);

/// A process has one recorder.
static INSTALLED: RwLock<Option<Metrics>> = RwLock::new(None);

/// The metrics of this process.
#[derive(Clone, Debug)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// All metrics as they are now, as text for Prometheus.
    pub fn render(&self) -> String {
        self.0.render()
    }
}

/// Records all metrics from now on, to be rendered. Once for a process: a second call returns what the
/// first one did. [`telemetry::init`](crate::telemetry::init) does it too, and exports them.
///
/// ```
/// let metrics = malote::telemetry::metrics::install()?;
/// assert!(metrics.render().contains("malote_build_info"));
/// # Ok::<(), malote::telemetry::metrics::Taken>(())
/// ```
pub fn install() -> Result<Metrics, Taken> {
    install_beside(None::<NoopRecorder>)
}

/// The metrics of this process, if they are recorded.
pub fn installed() -> Option<Metrics> {
    INSTALLED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// As [`install`]; `other` is told everything too.
pub(in crate::telemetry) fn install_beside(other: Option<impl Recorder + Sync + 'static>) -> Result<Metrics, Taken> {
    let mut installed = INSTALLED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(metrics) = &*installed {
        return Ok(metrics.clone());
    }
    let recorder = recorder();
    super::describe(&recorder);
    let metrics = Metrics(recorder.handle());
    match other {
        Some(other) => super::set(FanoutBuilder::default().add_recorder(recorder).add_recorder(other).build())?,
        None => super::set(recorder)?,
    }
    let handle = metrics.0.clone();
    thread::spawn(move || {
        loop {
            thread::sleep(UPKEEP);
            handle.run_upkeep();
        }
    });
    Ok(installed.insert(metrics).clone())
}

fn recorder() -> PrometheusRecorder {
    let mut histograms = ALL.iter().filter_map(|metric| match metric.kind {
        Kind::Histogram(bounds) => Some((metric.name, bounds)),
        _ => None,
    });
    let builder = histograms
        .try_fold(PrometheusBuilder::new().with_recommended_naming(true), |builder, (name, bounds)| {
            builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)
        })
        .expect("only a histogram without buckets is refused, and the compiler lets none into the table");
    builder.build_recorder()
}
