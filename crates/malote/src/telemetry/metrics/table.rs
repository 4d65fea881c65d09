//! Every metric, once: what is recorded, described, documented, alarmed on and drawn is held against
//! this table by tests.
//!
//! A label has few values, known in advance: services, consumers, topics, classes. What grows with
//! the traffic (an id, a key, an error's text) is found by the command line, not here.

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// As it is recorded, and exported by OTLP.
    pub name: &'static str,
    /// How its values are to be read.
    pub kind: Kind,
    /// What its values count.
    pub unit: Unit,
    /// What its series are told apart by.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// How a metric's values are to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// It grows, from nothing at each start of the process.
    Counter,
    /// It is how things stand.
    Gauge,
    /// Values by the bucket they fall into; the upper bounds of the buckets.
    Histogram(&'static [f64]),
}

/// What values count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Kind {
    /// In Prometheus' words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Unit {
    fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Count => None,
            Self::Seconds => Some("_seconds"),
            Self::Bytes => Some("_bytes"),
        }
    }
}

impl Metric {
    /// Its name at Prometheus: unit and `_total` are said at the end, dots are underscores.
    pub fn prometheus(&self) -> String {
        let mut name = self.name.replace('.', "_");
        let total = (self.kind == Kind::Counter).then_some("_total");
        for suffix in [self.unit.suffix(), total].into_iter().flatten() {
            if !name.ends_with(suffix) {
                name.push_str(suffix);
            }
        }
        name
    }

    /// Its labels at Prometheus.
    pub fn prometheus_labels(&self) -> Vec<String> {
        self.labels.iter().map(|label| label.replace('.', "_")).collect()
    }
}

/// The bounds that the semantic conventions for messaging advise.
const OPERATION: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// From a log on this machine to a broker that is waited for.
const LAG: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

const SENT: &[&str] = &["messaging.system", "messaging.operation.name", "messaging.destination.name", "error.type"];
const CONSUMED: &[&str] =
    &["messaging.system", "messaging.operation.name", "messaging.destination.name", "messaging.consumer.group.name"];
const PROCESSED: &[&str] = &[
    "messaging.system",
    "messaging.operation.name",
    "messaging.destination.name",
    "messaging.consumer.group.name",
    "error.type",
];
const OPERATED: &[&str] = &["messaging.system", "messaging.operation.name", "messaging.operation.type", "error.type"];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, labels, help }
}

const fn gauge(name: &'static str, unit: Unit, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, labels, help }
}

const fn seconds(
    name: &'static str,
    bounds: &'static [f64],
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    assert!(!bounds.is_empty(), "a histogram has buckets");
    Metric { name, kind: Kind::Histogram(bounds), unit: Unit::Seconds, labels, help }
}

/// All of them, in the order of a message's life.
pub const ALL: &[Metric] = &[
    // the outbox
    gauge("malote_outbox_pending", Unit::Count, &["service"], "Rows that are committed and not published."),
    gauge(
        "malote_outbox_oldest_age_seconds",
        Unit::Seconds,
        &["service"],
        "Age of the oldest row that is committed and not published; 0 when there is none.",
    ),
    gauge(
        "malote_outbox_gaps",
        Unit::Count,
        &["service"],
        "Positions below the relay's cursor that no row has filled yet: a transaction is open, or was rolled back.",
    ),
    gauge(
        "malote_oldest_transaction_age_seconds",
        Unit::Seconds,
        &["service"],
        "Age of the oldest transaction or snapshot that is open in the service's database; 0 when there is none.",
    ),
    gauge("malote_sqlite_wal_bytes", Unit::Bytes, &["service"], "Size of SQLite's write-ahead log."),
    counter(
        "malote_observations_total",
        &["service"],
        "Looks at the service's store. When it stands still, the gauges of this service are old.",
    ),
    // the relay
    gauge("malote_relay_leader", Unit::Count, &["service"], "1 in the process whose relay holds the lease, else 0."),
    counter("malote_published_total", &["service"], "Rows that the transport has confirmed."),
    seconds(
        "malote_publish_seconds",
        LAG,
        &["service"],
        "Time from handing a batch of rows to the transport to the last of its confirmations.",
    ),
    counter(
        "malote_fenced_total",
        &["service"],
        "Acts that came after their lease or claim had ended, and changed nothing.",
    ),
    counter("malote_resent_total", &["service"], "Rows handed over once more, since nobody knew what became of them."),
    counter("messaging.client.sent.messages", SENT, "Messages handed to the transport."),
    seconds(
        "messaging.client.operation.duration",
        OPERATION,
        OPERATED,
        "Duration of a call to the transport: a batch sent and confirmed, a batch acknowledged.",
    ),
    // the consumer
    counter("messaging.client.consumed.messages", CONSUMED, "Messages that the transport delivered."),
    seconds(
        "messaging.process.duration",
        OPERATION,
        PROCESSED,
        "Duration of one attempt of a handler or an effect; `error.type` is the class of its failure.",
    ),
    counter("malote_consumed_total", &["consumer"], "Messages that took effect."),
    counter("malote_duplicates_total", &["consumer"], "Deliveries that the inbox knew already, and that did nothing."),
    // what fails
    counter("malote_retries_total", &["consumer"], "Second and later attempts at a message."),
    gauge("malote_parked_keys", Unit::Count, &["consumer"], "Keys of which something waits for its next attempt."),
    gauge(
        "malote_parked_messages",
        Unit::Count,
        &["consumer"],
        "Messages that are parked, those that wait behind another of their key included.",
    ),
    gauge(
        "malote_parked_oldest_age_seconds",
        Unit::Seconds,
        &["consumer"],
        "Time since the oldest parked message was parked; 0 when there is none.",
    ),
    gauge("malote_held_keys", Unit::Count, &["consumer"], "Keys that stand still until a person decides."),
    gauge(
        "malote_dead_letters",
        Unit::Count,
        &["by"],
        "Messages given up, by `consumer NAME` or `relay NAME`, that nobody has redriven or discarded.",
    ),
    // sagas
    gauge(
        "malote_sagas",
        Unit::Count,
        &["service", "definition", "status"],
        "Sagas that are kept, all versions together; those that have ended are counted up to 10,000 for each version.",
    ),
    gauge(
        "malote_saga_oldest_age_seconds",
        Unit::Seconds,
        &["service", "definition"],
        "For how long the saga that has not ended, and is unchanged for longest, has been so; 0 when there is none.",
    ),
    gauge(
        "malote_saga_open_acts",
        Unit::Count,
        &["service"],
        "Acts on sagas that people asked for, and that no process has dealt with.",
    ),
    // timers and upkeep
    gauge("malote_scheduled", Unit::Count, &["service"], "Envelopes that are not due yet."),
    gauge(
        "malote_scheduled_late_seconds",
        Unit::Seconds,
        &["service"],
        "By how much the oldest due envelope is late; 0 when none is.",
    ),
    counter("malote_scheduled_fired_total", &["service"], "Envelopes that were due and went to the outbox."),
    counter("malote_janitor_rounds_total", &["service"], "Rounds of the clean-up that came to their end."),
    counter("malote_janitor_removed_total", &["service", "kind"], "Rows removed because they were kept long enough."),
    gauge(
        "malote_janitor_refused",
        Unit::Count,
        &["service"],
        "1 when the inbox is not cleaned up, because it is kept for a shorter time than messages can come back after.",
    ),
    // the process
    counter("malote_task_restarts_total", &["service", "task"], "Tasks that failed or stood still, and began anew."),
    gauge("malote_build_info", Unit::Count, &["version"], "Always 1; the version of malote is its label."),
];

/// The metric of this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.name == name)
}
