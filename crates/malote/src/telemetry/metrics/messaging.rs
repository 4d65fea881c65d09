//! The metrics that OpenTelemetry's semantic conventions for messaging name.

use malote_core::{Class, Delivery, Envelope, Report, Reports};
use metrics::{Label, SharedString, counter, histogram};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

fn label(name: &'static str, value: impl Into<SharedString>) -> Label {
    Label::new(name, value)
}

/// Counts what the transport delivered to a consumer.
pub(crate) fn consumed(system: &'static str, group: &Arc<str>, deliveries: &[Delivery]) {
    let mut topics: BTreeMap<&str, u64> = BTreeMap::new();
    for delivery in deliveries {
        *topics.entry(&delivery.place.topic).or_default() += 1;
    }
    for (topic, count) in topics {
        let labels = vec![
            label("messaging.system", system),
            label("messaging.operation.name", "receive"),
            label("messaging.destination.name", topic.to_owned()),
            label("messaging.consumer.group.name", group.clone()),
        ];
        counter!("messaging.client.consumed.messages", labels).increment(count);
    }
}

/// The same reports of a batch that was just handed to the transport; when they are there, what was sent
/// is counted, with the class of error where it did not get there, and how long it took.
pub(crate) fn sending(system: &'static str, batch: &[Envelope], reports: Reports) -> Reports {
    let begun = Instant::now();
    let mut topics: Vec<String> = Vec::new();
    let of: Vec<usize> = batch
        .iter()
        .map(|envelope| {
            topics.iter().rposition(|topic| *topic == envelope.topic).unwrap_or_else(|| {
                topics.push(envelope.topic.clone());
                topics.len() - 1
            })
        })
        .collect();
    Box::pin(async move {
        let reports = reports.await;
        let mut counts: BTreeMap<(usize, Option<&'static str>), u64> = BTreeMap::new();
        for (topic, report) in of.into_iter().zip(&reports) {
            *counts.entry((topic, error(report).map(Class::as_str))).or_default() += 1;
        }
        // a batch that is in doubt is sent again, whatever else was refused
        let worst = reports.iter().filter_map(error).max_by_key(|class| *class == Class::Unknown);
        operated(system, "send", "send", worst, begun.elapsed());
        for ((topic, error), count) in counts {
            let mut labels = vec![
                label("messaging.system", system),
                label("messaging.operation.name", "send"),
                label("messaging.destination.name", topics[topic].clone()),
            ];
            labels.extend(error.map(|class| label("error.type", class)));
            counter!("messaging.client.sent.messages", labels).increment(count);
        }
        reports
    })
}

fn error(report: &Report) -> Option<Class> {
    match report {
        Report::Stored => None,
        Report::Refused(_) => Some(Class::Final),
        Report::Unknown(_) => Some(Class::Unknown),
    }
}

/// Notes how long a call to the transport took. `kind` is the conventions' word for the operation.
pub(crate) fn operated(
    system: &'static str,
    operation: &'static str,
    kind: &'static str,
    error: Option<Class>,
    took: Duration,
) {
    let mut labels = vec![
        label("messaging.system", system),
        label("messaging.operation.name", operation),
        label("messaging.operation.type", kind),
    ];
    labels.extend(error.map(|class| label("error.type", class.as_str())));
    histogram!("messaging.client.operation.duration", labels).record(took.as_secs_f64());
}

/// Notes how long one attempt of a handler or an effect took.
pub(crate) fn processed(
    system: &'static str,
    group: &Arc<str>,
    envelope: &Envelope,
    error: Option<Class>,
    took: Duration,
) {
    let mut labels = vec![
        label("messaging.system", system),
        label("messaging.operation.name", "process"),
        label("messaging.destination.name", envelope.topic.clone()),
        label("messaging.consumer.group.name", group.clone()),
    ];
    labels.extend(error.map(|class| label("error.type", class.as_str())));
    histogram!("messaging.process.duration", labels).record(took.as_secs_f64());
}
