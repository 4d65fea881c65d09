//! Topics: created on purpose, and only compared afterwards.
//!
//! A topic that a broker creates by accident has whatever partition count the broker likes, and a
//! count that changes moves keys. So each topic is created explicitly with the pinned count before
//! anything is sent to it, and looked at again now and then.

use crate::{
    config::{Builder, ConfigError, refused},
    log::Quiet,
};
use malote_core::{Keeps, TransportError, planted};
use rdkafka::{
    admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication},
    error::{KafkaError, RDKafkaErrorCode},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const ASK: Duration = Duration::from_secs(5);
/// How long a created topic may take to be shown with all its partitions.
const SHOW: Duration = Duration::from_secs(30);

pub(crate) struct Topics {
    admin: Arc<AdminClient<Quiet>>,
    partitions: u32,
    replication: i32,
    known: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Topics {
    pub(crate) fn new(config: &Builder) -> Result<Self, ConfigError> {
        let admin = config.admin().create_with_context(Quiet::default()).map_err(refused)?;
        Ok(Self {
            admin: Arc::new(admin),
            partitions: config.partitions,
            replication: config.replication,
            known: Arc::default(),
        })
    }

    /// Those of these topics that were not made sure of yet.
    pub(crate) fn unknown<'a>(&self, topics: impl Iterator<Item = &'a str>) -> Vec<String> {
        let known = lock(&self.known);
        let unknown: BTreeSet<&str> = topics.filter(|topic| !known.contains_key(*topic)).collect();
        unknown.into_iter().map(str::to_owned).collect()
    }

    /// What a topic really has, once it was made sure of.
    pub(crate) fn count(&self, topic: &str) -> Option<u32> {
        lock(&self.known).get(topic).copied()
    }

    pub(crate) fn outgrown(&self) -> Vec<(String, u32)> {
        let known = lock(&self.known);
        known.iter().filter(|(_, count)| **count > self.partitions).map(|(t, c)| (t.clone(), *c)).collect()
    }

    /// Creates what is missing and waits until the brokers show it.
    pub(crate) async fn ensure(&self, topics: &[String]) -> Result<(), TransportError> {
        let mut missing = self.look(topics).await?;
        let deadline = Instant::now() + SHOW;
        while !missing.is_empty() {
            self.create(&missing).await?;
            missing = self.look(topics).await?;
            if missing.is_empty() {
                break;
            }
            if Instant::now() > deadline {
                let doing = format!("waiting for the topics {missing:?}");
                return Err(TransportError::transient(doing, "created, but the brokers do not show them"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Compares what the brokers show, and names what is not there, or not ready, yet.
    pub(crate) async fn look(&self, topics: &[String]) -> Result<Vec<String>, TransportError> {
        let shown = self.shown().await?;
        let mut missing = Vec::new();
        for topic in topics {
            match shown.get(topic) {
                None => missing.push(topic.clone()),
                Some((count, _)) if *count < self.partitions => {
                    let why = format!(
                        "it has {count} partitions and {} are configured: raise the topic's count, or configure {count}",
                        self.partitions
                    );
                    return Err(TransportError::lasting(format!("checking the topic {topic:?}"), why));
                }
                Some((count, led)) if led < count => missing.push(topic.clone()),
                Some((count, _)) => self.note(topic, *count),
            }
        }
        Ok(missing)
    }

    /// How long the brokers keep what is sent to these topics, by the topics' own settings.
    pub(crate) async fn keeps(&self, topics: &[String]) -> Result<Keeps, TransportError> {
        let doing = "asking how long topics keep their records";
        let asked: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
        if asked.is_empty() {
            return Ok(Keeps::For(Duration::ZERO));
        }
        let options = AdminOptions::new().request_timeout(Some(ASK));
        let told = self.admin.describe_configs(&asked, &options).await;
        let told = told.map_err(|error| TransportError::transient(doing, error))?;
        let mut longest = Keeps::For(Duration::ZERO);
        for topic in told {
            let topic = topic.map_err(|code| TransportError::transient(doing, KafkaError::AdminOp(code)))?;
            longest = longer(longest, kept(&topic));
        }
        Ok(longest)
    }

    fn note(&self, topic: &str, count: u32) {
        let count = if planted::is("kafka-outgrown") { self.partitions } else { count };
        let before = lock(&self.known).insert(topic.to_owned(), count);
        if count > self.partitions && before != Some(count) {
            tracing::warn!(
                target: "malote::kafka",
                topic,
                count,
                pinned = self.partitions,
                "the topic has more partitions than are configured; malote goes on with the configured count, \
                 so that no key moves. Other producers may use the further partitions"
            );
        }
    }

    /// All topics, each with the number of its partitions and of those that have a leader. All are
    /// asked for, since asking for one by name makes some brokers create it.
    async fn shown(&self) -> Result<BTreeMap<String, (u32, u32)>, TransportError> {
        let admin = self.admin.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let metadata = admin.inner().fetch_metadata(None, ASK)?;
            let whole = metadata.topics().iter().filter(|t| t.error().is_none() && !t.partitions().is_empty());
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let counted = whole.map(|topic| {
                let led = topic.partitions().iter().filter(|p| p.leader() >= 0).count();
                (topic.name().to_owned(), (count(topic.partitions().len()), count(led)))
            });
            Ok::<_, KafkaError>(counted.collect())
        });
        let doing = "asking Kafka for its topics";
        asked.await.map_err(|e| TransportError::transient(doing, e))?.map_err(|e| TransportError::transient(doing, e))
    }

    async fn create(&self, topics: &[String]) -> Result<(), TransportError> {
        let count = i32::try_from(self.partitions).unwrap_or(i32::MAX);
        let new: Vec<_> =
            topics.iter().map(|t| NewTopic::new(t, count, TopicReplication::Fixed(self.replication))).collect();
        let options = AdminOptions::new().request_timeout(Some(2 * ASK)).operation_timeout(Some(ASK));
        let doing = |e| TransportError::transient(format!("creating the topics {topics:?}"), e);
        let results = self.admin.create_topics(&new, &options).await.map_err(doing)?;
        for result in results {
            let Err((topic, code)) = result else { continue };
            let doing = format!("creating the topic {topic:?} with {count} partitions in {} copies", self.replication);
            match code {
                // another process may do the same in this moment
                RDKafkaErrorCode::TopicAlreadyExists => {}
                RDKafkaErrorCode::InvalidTopic
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::PolicyViolation
                | RDKafkaErrorCode::InvalidReplicationFactor
                | RDKafkaErrorCode::InvalidPartitions => {
                    return Err(TransportError::lasting(doing, KafkaError::AdminOp(code)));
                }
                _ => return Err(TransportError::transient(doing, KafkaError::AdminOp(code))),
            }
        }
        Ok(())
    }

    /// Looks in the background whether known topics have grown.
    pub(crate) fn watch(self: &Topics) -> impl Future<Output = ()> + Send + 'static {
        let again = Self {
            admin: self.admin.clone(),
            partitions: self.partitions,
            replication: self.replication,
            known: self.known.clone(),
        };
        async move {
            let topics: Vec<String> = lock(&again.known).keys().cloned().collect();
            match again.look(&topics).await {
                // a topic that is gone is made sure of again before the next record for it
                Ok(gone) => lock(&again.known).retain(|topic, _| !gone.contains(topic)),
                Err(error) => tracing::warn!(target: "malote::kafka", %error, "the partition counts are not known"),
            }
        }
    }
}

/// How long a topic with these settings keeps a record. A negative time is for ever, and so is a
/// compacted topic's latest record of each key.
fn kept(topic: &ConfigResource) -> Keeps {
    let setting = |name: &str| topic.get(name).and_then(|entry| entry.value.as_deref());
    let deletes = setting("cleanup.policy").is_none_or(|policy| policy.split(',').any(|p| p.trim() == "delete"));
    match setting("retention.ms").map(str::parse::<i64>) {
        _ if !deletes => Keeps::Always,
        Some(Ok(ms)) => u64::try_from(ms).map_or(Keeps::Always, |ms| Keeps::For(Duration::from_millis(ms))),
        _ => Keeps::Unknown,
    }
}

fn longer(a: Keeps, b: Keeps) -> Keeps {
    match (a, b) {
        (Keeps::Unknown, _) | (_, Keeps::Unknown) => Keeps::Unknown,
        (Keeps::Always, _) | (_, Keeps::Always) => Keeps::Always,
        (Keeps::For(a), Keeps::For(b)) => Keeps::For(a.max(b)),
    }
}

fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
