//! What can be set, what is fixed, and what is refused.
//!
//! Any setting of librdkafka can be passed through, TLS and SASL above all. A few of them carry
//! malote's promises: those are fixed here, and a wish for another value is an error that says which
//! promise it would break, rather than a surprise in production.

use crate::Kafka;
use malote_core::planted;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Collects the settings of a [`Kafka`].
#[derive(Clone)]
pub struct Builder {
    pub(crate) bootstrap: String,
    pub(crate) partitions: u32,
    pub(crate) replication: i32,
    pub(crate) delivery_limit: Duration,
    pub(crate) watch: Duration,
    pub(crate) commit_every: Duration,
    settings: BTreeMap<String, String>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting that would break a promise.
    #[error("the Kafka setting {key} cannot be changed: {why}")]
    Fixed {
        /// librdkafka's name of it.
        key: String,
        /// What it would break, or what to use instead.
        why: &'static str,
    },
    /// A setting of malote's own that has no such value.
    #[error("{key} in the Kafka URL is {expected}")]
    Value {
        /// The parameter.
        key: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// Not a URL that this transport reads.
    #[error("not an address of Kafka: expected kafka://host:port,host:port?setting=value or host:port,host:port")]
    Url,
    /// librdkafka knows no such setting or does not take its value. The value is not shown: it may be
    /// a secret.
    #[error("the Kafka client refuses the setting {key}: {why}")]
    Refused {
        /// The setting's name, empty where librdkafka does not tell.
        key: String,
        /// In librdkafka's words.
        why: String,
    },
}

/// Settings that are fixed: the name, the values that say the same, why.
const FIXED: &[(&str, &[&str], &str)] = &[
    ("acks", &["all", "-1"], "a record counts as stored only when every replica in sync has it"),
    ("request.required.acks", &["all", "-1"], "a record counts as stored only when every replica in sync has it"),
    ("enable.idempotence", &["true"], "without it a retry inside the client may reorder or double records"),
    ("enable.gapless.guarantee", &["true"], "without it records behind a failed one overtake it"),
    ("message.timeout.ms", &[], "it expires single records and lets later ones overtake them; use delivery_limit"),
    ("delivery.timeout.ms", &[], "it expires single records and lets later ones overtake them; use delivery_limit"),
    ("queuing.strategy", &["fifo"], "records leave in the order in which they were sent"),
    ("delivery.report.only.error", &["false"], "every record needs its own report"),
    ("transactional.id", &[], "malote uses no Kafka transactions"),
    ("partitioner", &[], "the partition is computed by malote, the same for every producer"),
    ("enable.auto.commit", &["false"], "offsets are committed only after the handlers' transactions"),
    ("auto.commit.enable", &["false"], "offsets are committed only after the handlers' transactions"),
    ("enable.auto.offset.store", &["false"], "offsets are committed only after the handlers' transactions"),
    ("auto.offset.reset", &["earliest", "smallest", "beginning"], "a group without a position would miss records"),
    ("allow.auto.create.topics", &["false"], "topics are created on purpose, with a stated number of partitions"),
    ("isolation.level", &["read_committed"], "records of aborted transactions never happened"),
    ("partition.assignment.strategy", &["cooperative-sticky"], "a rebalance must not stop the partitions that stay"),
    ("group.protocol", &["classic"], "assignments are counted by the classic protocol's callbacks"),
    ("group.id", &[], "it is given with each subscription"),
    ("bootstrap.servers", &[], "it is given with the builder"),
    ("metadata.broker.list", &[], "it is given with the builder"),
];

/// Settings that only a consumer knows, by the beginning of their name.
const CONSUMER: &[&str] = &[
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.",
    "max.poll.interval.ms",
    "fetch.",
    "queued.",
    "check.crcs",
    "coordinator.query.interval.ms",
    "offset.store.",
    "enable.partition.eof",
    "consume.",
    "auto.commit.",
];

/// Settings that only a producer knows, by the beginning of their name.
const PRODUCER: &[&str] = &[
    "linger.ms",
    "batch.",
    "queue.buffering.",
    "compression.",
    "message.send.max.retries",
    "retries",
    "request.timeout.ms",
    "sticky.partitioning.",
];

impl Builder {
    pub(crate) fn new(bootstrap: impl Into<String>) -> Self {
        Self {
            bootstrap: bootstrap.into(),
            partitions: 6,
            replication: 1,
            delivery_limit: Duration::from_secs(30),
            watch: Duration::from_secs(60),
            commit_every: Duration::from_millis(50),
            settings: BTreeMap::new(),
        }
    }

    /// Reads `kafka://host:port,host:port?setting=value&…` or a plain `host:port,host:port`.
    ///
    /// `partitions`, `replication` and `delivery_limit` (seconds) are malote's; every other
    /// parameter is passed to librdkafka as [`Builder::set`] does. Values may be percent-encoded.
    ///
    /// # Errors
    /// When it is neither, or a value does not fit. The error shows no values.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let rest = match url.split_once("://") {
            Some(("kafka", rest)) => rest,
            Some(_) => return Err(ConfigError::Url),
            None => url,
        };
        let (brokers, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let brokers = brokers.trim_end_matches('/');
        if brokers.is_empty() || brokers.contains(['/', '@', ' ']) {
            return Err(ConfigError::Url);
        }
        let mut builder = Self::new(brokers);
        for parameter in parameters.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = parameter.split_once('=').ok_or(ConfigError::Url)?;
            builder = builder.parameter(key, unescape(value).ok_or(ConfigError::Url)?)?;
        }
        Ok(builder)
    }

    fn parameter(self, key: &str, value: String) -> Result<Self, ConfigError> {
        let wrong = |key, expected| ConfigError::Value { key, expected };
        let positive = |value: &str| value.parse::<u16>().ok().filter(|n| *n > 0);
        Ok(match key {
            "partitions" => self.partitions(
                positive(&value).ok_or(wrong("partitions", "a number of partitions from 1 to 65535"))?.into(),
            ),
            "replication" => {
                self.replication(positive(&value).ok_or(wrong("replication", "a number of copies, at least 1"))?)
            }
            "delivery_limit" => self.delivery_limit(Duration::from_secs(
                positive(&value).ok_or(wrong("delivery_limit", "a number of seconds, at least 1"))?.into(),
            )),
            _ => self.set(key, value),
        })
    }

    /// The number of partitions that a topic is created with and over which keys are spread; 6 unless
    /// set. A topic that has more keeps this count; one that has fewer is an error. At least 1.
    pub fn partitions(mut self, count: u32) -> Self {
        self.partitions = count.max(1);
        self
    }

    /// The number of copies that a topic is created with. 1 unless set, which is right for one broker
    /// only: with 1, the loss of a disk loses records.
    pub fn replication(mut self, copies: u16) -> Self {
        self.replication = copies.max(1).into();
        self
    }

    /// How long a record may be without an answer before it is reported as unknown; 30 s unless set.
    pub fn delivery_limit(mut self, limit: Duration) -> Self {
        self.delivery_limit = limit;
        self
    }

    /// How often a publisher looks whether its topics have grown; 60 s unless set.
    pub fn watch_partitions(mut self, every: Duration) -> Self {
        self.watch = every;
        self
    }

    /// How long acknowledgements are gathered before they are committed; 50 ms unless set. A member
    /// that dies has the records of that time delivered again.
    pub fn commit_every(mut self, time: Duration) -> Self {
        self.commit_every = time;
        self
    }

    /// How this client is called in the broker's logs and quotas; `malote` unless set.
    pub fn client_id(self, id: impl Into<String>) -> Self {
        self.set("client.id", id)
    }

    /// Static membership: a member that comes back under this name within the session keeps its
    /// partitions without a rebalance. Unique among the members of a group.
    pub fn instance(self, id: impl Into<String>) -> Self {
        self.set("group.instance.id", id)
    }

    /// How long a silent member keeps its partitions; librdkafka's 45 s unless set.
    pub fn session(self, timeout: Duration) -> Self {
        let heartbeat = (timeout / 5).max(Duration::from_millis(100));
        self.set("session.timeout.ms", timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", heartbeat.as_millis().to_string())
    }

    /// Bounds what a publisher holds in memory: records, and KiB of them. 50,000 and 65,536 (64 MiB)
    /// unless set. A full buffer makes a sender wait.
    pub fn buffer(self, records: u32, kib: u32) -> Self {
        self.set("queue.buffering.max.messages", records.max(1).to_string())
            .set("queue.buffering.max.kbytes", kib.max(1).to_string())
    }

    /// Any setting of librdkafka by its name, such as `security.protocol`, `sasl.password` or
    /// `ssl.ca.location`. Those that would break a promise are refused by [`Builder::connect`].
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(key.into(), value.into());
        self
    }

    /// Checks the settings. No broker is asked yet: clients connect when they are used.
    ///
    /// # Errors
    /// When a setting is unknown, malformed or not allowed.
    pub fn connect(self) -> Result<Kafka, ConfigError> {
        for (key, value) in &self.settings {
            let fixed = FIXED.iter().find(|(name, same, _)| name == key && !same.contains(&value.as_str()));
            if let Some((_, _, why)) = fixed.filter(|_| !planted::is("kafka-fixed-settings")) {
                return Err(ConfigError::Fixed { key: key.clone(), why });
            }
        }
        Kafka::start(self)
    }

    /// Lets librdkafka look at the settings of every kind of client.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for config in [self.producer(false), self.consumer("check")] {
            config.create_native_config().map_err(refused)?;
        }
        Ok(())
    }

    fn passed(&self, config: &mut ClientConfig, not: &[&str]) {
        for (key, value) in &self.settings {
            if !not.iter().any(|start| key.starts_with(start)) {
                config.set(key, value);
            }
        }
    }

    fn common(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("client.id", "malote")
            .set("socket.keepalive.enable", "true")
            // a broker that comes back is found within a second or so
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            // new partitions are seen, and read from their start, within half a minute
            .set("topic.metadata.refresh.interval.ms", "30000")
            .set_log_level(RDKafkaLogLevel::Warning);
        config
    }

    /// For looking at topics and creating them.
    pub(crate) fn admin(&self) -> ClientConfig {
        let mut config = self.common();
        self.passed(&mut config, &[CONSUMER, PRODUCER].concat());
        config
    }

    /// For sending; `singly` puts each record into a request of its own.
    pub(crate) fn producer(&self, singly: bool) -> ClientConfig {
        let mut config = self.common();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("enable.gapless.guarantee", if planted::is("kafka-first-failure") { "false" } else { "true" })
            // expiry is decided for the publisher as a whole, see `publisher::account`
            .set("message.timeout.ms", "0")
            .set("retry.backoff.ms", "50")
            // records gather by themselves while requests are under way; measured in docs/decisions
            .set("linger.ms", "0")
            .set("compression.type", "lz4")
            .set("message.max.bytes", "1048576")
            .set("batch.size", "1000000")
            .set("queue.buffering.max.messages", "50000")
            .set("queue.buffering.max.kbytes", "65536");
        self.passed(&mut config, CONSUMER);
        if singly {
            config.set("batch.num.messages", "1").set("max.in.flight", "1");
            config.remove("max.in.flight.requests.per.connection");
        }
        config
    }

    /// For receiving.
    pub(crate) fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = self.common();
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", if planted::is("kafka-earliest") { "latest" } else { "earliest" })
            .set("isolation.level", if planted::is("kafka-committed") { "read_uncommitted" } else { "read_committed" })
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("allow.auto.create.topics", "false")
            .set("fetch.wait.max.ms", "100")
            // what librdkafka reads ahead, all partitions together, besides our own buffer
            .set("queued.min.messages", "10000")
            .set("queued.max.messages.kbytes", "16384");
        self.passed(&mut config, PRODUCER);
        config
    }
}

/// An error of the client's configuration without the value, which may be a secret.
pub(crate) fn refused(error: rdkafka::error::KafkaError) -> ConfigError {
    match error {
        rdkafka::error::KafkaError::ClientConfig(_, why, key, value) => {
            let why = if value.is_empty() { why } else { why.replace(&value, "…") };
            ConfigError::Refused { key, why }
        }
        other => ConfigError::Refused { key: String::new(), why: other.to_string() },
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |b: Option<u8>| char::from(b?).to_digit(16);
        let plain = if byte == b'%' { u8::try_from(hex(rest.next())? * 16 + hex(rest.next())?).ok()? } else { byte };
        bytes.push(plain);
    }
    String::from_utf8(bytes).ok()
}

/// Names what was set, shows no values: some are secrets.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("bootstrap", &self.bootstrap)
            .field("partitions", &self.partitions)
            .field("replication", &self.replication)
            .field("delivery_limit", &self.delivery_limit)
            .field("set", &self.settings.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
