//! The metrics that OpenTelemetry's semantic conventions for messaging name.

use malote_core::{Class, Delivery, Envelope};
use metrics::{Label, SharedString, counter, histogram};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

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

/// Counts what was handed to the transport, and with which class of error it did not get there.
#[allow(dead_code)]
pub(crate) fn sent(system: &'static str, topic: &str, error: Option<Class>, count: u64) {
    let mut labels = vec![
        label("messaging.system", system),
        label("messaging.operation.name", "send"),
        label("messaging.destination.name", topic.to_owned()),
    ];
    labels.extend(error.map(|class| label("error.type", class.as_str())));
    counter!("messaging.client.sent.messages", labels).increment(count);
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
