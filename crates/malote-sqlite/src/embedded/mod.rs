//! A durable log with consumer groups, in one SQLite file: the transport of the first day.
//!
//! It carries envelopes between the services of one process, or of several processes on one machine,
//! and promises what Kafka promises: a record that was reported as stored survives a power cut, order
//! per key, at least once, groups whose members share partitions and take over from each other.
//!
//! ```text
//!   publisher ─┐                 ┌── commit of many ──▶ file ──▶ member (a thread) ──▶ next()
//!   publisher ─┼─▶ queue ─▶ writer (a thread)                      │ heartbeat
//!   acknowledge┘                 └── reports, wakes members        └ polls for other processes
//! ```
//!
//! One thread writes. What waits in its queue is committed together, so the disk is waited for once
//! for many; a report is given after that commit and never before. Other processes have a writer of
//! their own; SQLite's write lock orders them.

mod append;
mod assign;
mod frame;
mod groups;
mod log;
mod member;
mod missing;
mod retention;
mod subscription;
mod writer;

use malote_core::{
    BoxFuture, Envelope, Keeps, Publisher, Report, Reports, Subscription, Transport, TransportError, wire,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The embedded log. Clones share it.
#[derive(Clone)]
pub struct Embedded(Arc<Inner>);

struct Inner {
    path: PathBuf,
    settings: Builder,
    writer: writer::Queue,
    opened: Instant,
}

/// How to open an [`Embedded`].
#[derive(Clone, Debug)]
pub struct Builder {
    partitions: u32,
    keep: Duration,
    lease: Duration,
    handover: Duration,
    largest: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            partitions: 4,
            keep: Duration::from_secs(7 * 24 * 3600),
            lease: Duration::from_secs(3),
            handover: Duration::from_secs(60),
            largest: 1 << 20,
        }
    }
}

impl Builder {
    /// How many partitions a new topic gets; 4 by default. A topic that exists keeps its own.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions.clamp(1, 1024);
        self
    }

    /// How long a record is kept after every group has acknowledged it; 7 days by default. A record
    /// that a group has not acknowledged is kept in any case.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How long a member of a group counts as alive without a sign of life; 3 s by default. It gives
    /// three in that time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(30));
        self
    }

    /// How long a living member may hold on to a partition that another should have, while it has
    /// records of it that are not acknowledged; 60 s by default.
    pub fn handover(mut self, handover: Duration) -> Self {
        self.handover = handover;
        self
    }

    /// The largest record taken, in bytes of key, headers and payload together; 1 MiB by default.
    pub fn largest_record(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self
    }

    /// Opens the log, and makes its file when it is not there.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Embedded, TransportError> {
        let path = path.as_ref().to_owned();
        let doing = format!("opening the log {}", path.display());
        let opened = tokio::task::spawn_blocking(move || {
            let writer = writer::start(&path, &self)?;
            Ok(Embedded(Arc::new(Inner { path, settings: self, writer, opened: Instant::now() })))
        });
        opened.await.map_err(|stopped| TransportError::transient(doing, stopped))?
    }
}

impl Embedded {
    /// Opens a log as [`Builder::default`] does.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, TransportError> {
        Builder::default().open(path).await
    }

    /// Opens a log with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Waits until everything that was handed over so far is committed or reported, and closes the
    /// file for all clones. Its WAL goes away with that, unless somebody else has the file open.
    pub async fn close(self) {
        self.0.writer.close().await;
    }

    /// Removes some records that are old enough and that every group has acknowledged; says how many.
    /// Happens by itself now and then.
    pub async fn retain(&self) -> Result<u64, TransportError> {
        let keep = self.0.settings.keep;
        let removed = self.0.writer.ask(true, move |log| retention::retain(log, keep)).await;
        removed.map_err(|e| TransportError::transient("removing old records", e))
    }

    /// Forgets a group that is not coming back, so that it keeps no records. False when there is none.
    pub async fn forget_group(&self, group: &str) -> Result<bool, TransportError> {
        let name = group.to_owned();
        let forgotten = self.0.writer.ask(true, move |log| groups::forget(log, &name)).await;
        forgotten.map_err(|e| TransportError::transient(format!("forgetting group {group:?}"), e))
    }
}

impl Transport for Embedded {
    fn system(&self) -> &'static str {
        "malote_embedded"
    }

    fn ensure<'a>(&'a self, topics: &'a [String]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let (names, count) = (topics.to_vec(), self.0.settings.partitions);
            let ensured = self.0.writer.ask(true, move |log| {
                names.iter().try_for_each(|name| append::ensure_topic(log, name, count).map(drop))
            });
            ensured.await.map_err(|e| TransportError::transient("making topics", e))
        })
    }

    fn keeps<'a>(&'a self, _topics: &'a [String]) -> BoxFuture<'a, Result<Keeps, TransportError>> {
        // a group has acknowledged a record before its time begins to count
        Box::pin(std::future::ready(Ok(Keeps::For(self.0.settings.keep))))
    }

    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, TransportError>> {
        let publisher: Box<dyn Publisher> = Box::new(Way { log: self.clone() });
        Box::pin(async move { Ok(publisher) })
    }

    fn subscribe<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(subscription::subscribe(self.0.clone(), group, topics))
    }
}

/// A way in. The queue keeps the order of its calls.
struct Way {
    log: Embedded,
}

impl Publisher for Way {
    fn send(&mut self, batch: Vec<Envelope>) -> BoxFuture<'_, Result<Reports, TransportError>> {
        Box::pin(async move {
            let size = batch.len();
            let records = batch.iter().map(|envelope| append::Record::of(&envelope.topic, wire::encode(envelope)));
            let (reply, reports) = oneshot::channel();
            let job = append::Append::new(records.collect(), self.log.0.settings.largest, reply);
            self.log.0.writer.hand_over(job).await.map_err(|e| TransportError::transient("publishing", e))?;
            let reports: Reports = Box::pin(async move {
                let lost = || vec![Report::Unknown("the log's writer has stopped".into()); size];
                reports.await.unwrap_or_else(|_| lost())
            });
            Ok(reports)
        })
    }
}
