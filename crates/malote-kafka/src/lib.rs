//! malote over Apache Kafka.
//!
//! Kafka keeps what malote promises only under certain settings, and librdkafka's defaults are not
//! those. This adapter fixes them, refuses the ones that would take a promise away, and hides the
//! rest of the client behind the three ports of [`malote_core`].
//!
//! ```text
//!   relay ─▶ Publisher ─▶ librdkafka ─▶ topic ─▶ librdkafka ─▶ member thread ─▶ buffer ─▶ consumer
//!               ▲             │                     ▲              │  ▲                      │
//!               └── reports ◀─┘ a lane's thread     └── commits ◀──┘  └── acknowledgements ◀─┘
//! ```
//!
//! - **Sending**: idempotent, acks=all, gapless. Every record gets its own report. The first record
//!   that fails ends its publisher, so that nothing later overtakes it; whoever sends takes a new
//!   one and sends again what has no report.
//! - **Partitions**: computed here over a pinned count ([`malote_core::partition`]), so a topic that
//!   grows changes nothing until the count is raised on purpose.
//! - **Receiving**: a thread per member polls whatever the handlers do. Acknowledgements count only
//!   under the assignment in which a record was delivered.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use malote_kafka::Kafka;
//!
//! let kafka = Kafka::builder("broker-1:9092,broker-2:9092")
//!     .partitions(12)
//!     .replication(3)
//!     .set("security.protocol", "ssl")
//!     .connect()?;
//! # Ok(())
//! # }
//! ```

mod config;
mod log;
mod publisher;
mod subscription;
mod topics;

pub use config::{Builder, ConfigError};

use malote_core::{BoxFuture, Keeps, Publisher, Subscription, Transport, TransportError};
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize},
};
use topics::Topics;

/// Kafka as a transport. Cheap to clone; all clones share what they know of the topics.
#[derive(Clone, Debug)]
pub struct Kafka {
    shared: Arc<Shared>,
}

/// What publishers and subscriptions of one transport have in common.
pub(crate) struct Shared {
    config: Builder,
    topics: Topics,
    /// Records that the next publishers send singly, since one of them may be at fault; see
    /// [`publisher`].
    suspects: Arc<AtomicUsize>,
    /// The last assignment number that was given out.
    assignments: Arc<AtomicU64>,
}

impl Kafka {
    /// Reads a URL (`kafka://host:port,host:port?partitions=12&replication=3&…`) or a plain list of
    /// brokers; see [`Builder::from_url`].
    ///
    /// # Errors
    /// When a setting is unknown, malformed or not allowed. No broker is asked yet.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Builder::from_url(url)?.connect()
    }

    /// Starts from a list of brokers, `host:port` by comma.
    pub fn builder(bootstrap: impl Into<String>) -> Builder {
        Builder::new(bootstrap)
    }

    pub(crate) fn start(config: Builder) -> Result<Self, ConfigError> {
        let topics = Topics::new(&config)?;
        config.check()?;
        Ok(Self { shared: Arc::new(Shared { config, topics, suspects: Arc::default(), assignments: Arc::default() }) })
    }

    /// The number of partitions over which keys are spread.
    pub fn partitions(&self) -> u32 {
        self.shared.config.partitions
    }

    /// Topics that were found with more partitions than the pinned count, with what they have. Their
    /// further partitions get nothing from malote; that is harmless and still worth an alarm, since
    /// other producers may use them.
    pub fn outgrown(&self) -> Vec<(String, u32)> {
        self.shared.topics.outgrown()
    }
}

impl Transport for Kafka {
    fn system(&self) -> &'static str {
        "kafka"
    }

    fn ensure<'a>(&'a self, topics: &'a [String]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.shared.topics.ensure(topics))
    }

    fn keeps<'a>(&'a self, topics: &'a [String]) -> BoxFuture<'a, Result<Keeps, TransportError>> {
        Box::pin(self.shared.topics.keeps(topics))
    }

    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, TransportError>> {
        let shared = self.shared.clone();
        Box::pin(async move { Ok(Box::new(publisher::KafkaPublisher::start(shared)?) as Box<dyn Publisher>) })
    }

    fn subscribe<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            let joined = subscription::KafkaSubscription::join(&self.shared, group, topics).await?;
            Ok(Box::new(joined) as Box<dyn Subscription>)
        })
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.config.fmt(f)
    }
}
