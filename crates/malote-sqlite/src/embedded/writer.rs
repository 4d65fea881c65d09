//! The one thread that writes.
//!
//! It takes what waits in its queue, runs all of it in one transaction, commits, and only then tells
//! those who wait. While it commits, the next ones gather: the busier the log, the more share a commit.
//! When something in a transaction fails it is rolled back and its members run one by one, so that one
//! does not take the others along.

use super::{Builder, append::Topics, log, retention};
use malote_core::{TransportError, planted};
use rusqlite::Connection;
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot, watch};

/// What one commit takes at most.
const MOST_JOBS: usize = 4096;
const MOST_BYTES: usize = 8 << 20;
/// How often old records are looked for.
const RETAIN_EVERY: Duration = Duration::from_secs(60);

/// Something to be done in a transaction of the writer's.
pub(super) trait Job: Send {
    /// Does it. May be called again after a rollback.
    fn run(&mut self, log: &mut Open<'_>) -> rusqlite::Result<()>;
    /// Tells whoever waits that it is committed, or why it is not.
    fn over(self: Box<Self>, committed: Result<(), &str>);
    /// Bytes it adds.
    fn size(&self) -> usize {
        0
    }
    /// Whether the commit has to reach the disk before anybody is told.
    fn durable(&self) -> bool {
        true
    }
    /// Whether it is the last one.
    fn closes(&self) -> bool {
        false
    }
}

/// The last job.
struct Close;

impl Job for Close {
    fn run(&mut self, _: &mut Open<'_>) -> rusqlite::Result<()> {
        Ok(())
    }
    fn over(self: Box<Self>, _: Result<(), &str>) {}
    fn closes(&self) -> bool {
        true
    }
}

/// The log inside a transaction of the writer's.
pub(super) struct Open<'c> {
    pub(super) connection: &'c Connection,
    /// By name; only topics whose creation is committed, or is part of this transaction.
    pub(super) topics: &'c mut Topics,
    /// The next offset of the partitions that were appended to.
    pub(super) next: HashMap<i64, i64>,
    pub(super) now: Option<i64>,
    pub(super) changed: Changed,
}

/// What members have to look at after the commit.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) topics: HashSet<i64>,
    pub(super) groups: HashSet<i64>,
}

/// Where jobs are handed over.
#[derive(Clone)]
pub(super) struct Queue {
    jobs: mpsc::Sender<Box<dyn Job>>,
    watchers: Watchers,
    /// Ends with the writer, after its connection.
    running: watch::Receiver<()>,
}

/// The writer is gone, or could not do it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotWritten(String);

impl Queue {
    pub(super) async fn hand_over(&self, job: impl Job + 'static) -> Result<(), NotWritten> {
        self.jobs.send(Box::new(job)).await.map_err(|_| NotWritten(STOPPED.into()))
    }

    /// Has something done and waits for the commit.
    pub(super) async fn ask<T, F>(&self, durable: bool, work: F) -> Result<T, NotWritten>
    where
        T: Send + 'static,
        F: FnMut(&mut Open<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.hand_over(Ask { work, durable, result: None, reply }).await?;
        answer.await.map_err(|_| NotWritten(STOPPED.into()))?
    }

    /// The same from a thread that may block.
    pub(super) fn ask_blocking<T, F>(&self, work: F) -> Result<T, NotWritten>
    where
        T: Send + 'static,
        F: FnMut(&mut Open<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Ask { work, durable: false, result: None, reply });
        self.jobs.blocking_send(job).map_err(|_| NotWritten(STOPPED.into()))?;
        answer.blocking_recv().map_err(|_| NotWritten(STOPPED.into()))?
    }

    /// Lets the writer end after what was handed over, and waits for that.
    pub(super) async fn close(&self) {
        // that it has ended already is as good
        let _ = self.hand_over(Close).await;
        if planted::is("leave-wal") {
            return;
        }
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    pub(super) fn watchers(&self) -> &Watchers {
        &self.watchers
    }
}

const STOPPED: &str = "the log's writer has stopped";

struct Ask<T, F> {
    work: F,
    durable: bool,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, NotWritten>>,
}

impl<T, F> Job for Ask<T, F>
where
    T: Send,
    F: FnMut(&mut Open<'_>) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, log: &mut Open<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.work)(log)?);
        Ok(())
    }
    fn over(self: Box<Self>, committed: Result<(), &str>) {
        let result = match (committed, self.result) {
            (Ok(()), Some(result)) => Ok(result),
            (Err(reason), _) => Err(NotWritten(reason.into())),
            (Ok(()), None) => Err(NotWritten("nothing was done".into())),
        };
        // nobody may be waiting any more
        let _ = self.reply.send(result);
    }
    fn durable(&self) -> bool {
        self.durable
    }
}

/// The member threads of this process, to be woken without waiting for their next look.
#[derive(Clone, Default)]
pub(super) struct Watchers(Arc<Mutex<Vec<Watcher>>>);

pub(super) struct Watcher {
    pub(super) group: i64,
    pub(super) topics: Vec<i64>,
    pub(super) thread: Thread,
}

impl Watchers {
    fn list(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn add(&self, watcher: Watcher) {
        self.list().push(watcher);
    }
    pub(super) fn remove(&self, thread: &Thread) {
        self.list().retain(|w| w.thread.id() != thread.id());
    }
    fn wake(&self, changed: &Changed) {
        for watcher in self.list().iter() {
            if changed.groups.contains(&watcher.group) || watcher.topics.iter().any(|t| changed.topics.contains(t)) {
                watcher.thread.unpark();
            }
        }
    }
}

/// Opens the file and starts the thread. It ends when it is closed, or when the last [`Queue`] is gone
/// and the queue is empty.
pub(super) fn start(path: &Path, settings: &Builder) -> Result<Queue, TransportError> {
    let connection = log::open(path)?;
    let (jobs, queue) = mpsc::channel(MOST_JOBS);
    let watchers = Watchers::default();
    let (ends, running) = watch::channel(());
    let mut writer = Writer {
        path: path.to_owned(),
        connection: Some(connection),
        topics: Topics::default(),
        watchers: watchers.clone(),
        synchronous: true,
        keep: settings.keep,
        retained: Instant::now(),
        _ends: ends,
    };
    let name = "malote-log-writer".to_owned();
    let started = thread::Builder::new().name(name).spawn(move || writer.work(queue));
    started.map_err(|e| TransportError::transient("starting the log's writer", e))?;
    Ok(Queue { jobs, watchers, running })
}

/// What waits now. Those who were told of the last commit are about to hand over their next job, so
/// they are let run as long as that brings some.
fn gather(first: Box<dyn Job>, queue: &mut mpsc::Receiver<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
    let mut size = first.size();
    let mut jobs = vec![first];
    loop {
        let before = jobs.len();
        while jobs.len() < MOST_JOBS && size < MOST_BYTES {
            let Ok(job) = queue.try_recv() else { break };
            size += job.size();
            jobs.push(job);
        }
        if jobs.len() == before || jobs.len() >= MOST_JOBS || size >= MOST_BYTES {
            return jobs;
        }
        thread::yield_now();
    }
}

struct Writer {
    path: PathBuf,
    /// None after a failure that a rollback did not mend.
    connection: Option<Connection>,
    topics: Topics,
    watchers: Watchers,
    /// What the connection is set to: whether commits wait for the disk.
    synchronous: bool,
    keep: Duration,
    retained: Instant,
    /// Dropped behind the connection, for fields are dropped in their order.
    _ends: watch::Sender<()>,
}

impl Writer {
    fn work(&mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        while let Some(first) = queue.blocking_recv() {
            let jobs = gather(first, &mut queue);
            let closes = jobs.iter().any(|job| job.closes());
            self.commit(jobs);
            if closes {
                return;
            }
            self.retain();
        }
    }

    fn commit(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        match self.attempt(&mut jobs) {
            Ok(changed) => {
                jobs.into_iter().for_each(|job| job.over(Ok(())));
                self.watchers.wake(&changed);
            }
            Err(_) if jobs.len() > 1 => jobs.into_iter().for_each(|job| self.commit(vec![job])),
            Err(error) => jobs.into_iter().for_each(|job| job.over(Err(&error.to_string()))),
        }
    }

    /// One transaction.
    fn attempt(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<Changed, TransportError> {
        let failed = |error: rusqlite::Error| TransportError::transient("writing to the log", error);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.synchronous = true;
                log::open(&self.path)?
            }
        };
        let result = self.transaction(&mut connection, jobs).map_err(failed);
        let clean = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        if result.is_err() {
            self.topics.clear(); // some may have been rolled back
        }
        self.connection = clean.then_some(connection);
        result
    }

    fn transaction(&mut self, connection: &mut Connection, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<Changed> {
        let durable = jobs.iter().any(|job| job.durable());
        if durable != self.synchronous {
            connection.pragma_update(None, "synchronous", if durable { "full" } else { "normal" })?;
            self.synchronous = durable;
        }
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut open =
            Open { connection, topics: &mut self.topics, next: HashMap::new(), now: None, changed: Changed::default() };
        jobs.iter_mut().try_for_each(|job| job.run(&mut open))?;
        let changed = open.finish()?;
        connection.execute_batch("COMMIT")?;
        Ok(changed)
    }

    /// Lets old records go, a few at a time, behind whatever was more urgent.
    fn retain(&mut self) {
        if self.retained.elapsed() < RETAIN_EVERY {
            return;
        }
        self.retained = Instant::now();
        let (reply, mut removed) = oneshot::channel();
        let keep = self.keep;
        let work = move |log: &mut Open<'_>| retention::retain(log, keep);
        self.commit(vec![Box::new(Ask { work, durable: false, result: None, reply })]);
        match removed.try_recv() {
            Ok(Ok(0)) => {}
            Ok(Ok(removed)) => tracing::debug!(removed, "old records removed from the log"),
            Ok(Err(error)) => tracing::warn!(%error, "old records could not be removed from the log"),
            Err(_) => {}
        }
    }
}

impl Open<'_> {
    /// Runs a statement; says how many rows it changed.
    pub(super) fn run(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(values)
    }

    fn finish(self) -> rusqlite::Result<Changed> {
        for (partition, next) in &self.next {
            self.run(include_str!("../../sql/embedded/advance.sql"), (partition, next))?;
        }
        Ok(self.changed)
    }
}
