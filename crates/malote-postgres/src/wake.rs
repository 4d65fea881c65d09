//! The wake-up: a relay should not have to wait for its next poll.
//!
//! It carries no data and may be lost; polling stays beside it. Inside a process a commit wakes the
//! relay directly. Other processes hear a `NOTIFY`, which is sent after the commit and by another
//! connection, one for many commits: inside the inserting transactions it would serialise their
//! commits, and a notification can fail, which a payment must not. While the relay at work is in this
//! very process nobody is notified at all.

use crate::{name::Name, store::Inner};
use malote_core::retry::Backoff;
use sqlx::{
    Executor, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::JoinHandle};

/// Between two notifications, so that a busy writer sends few.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) struct Wake {
    heard: Arc<Notify>,
    channel: String,
    /// How to connect for `LISTEN`; `None` where a pooler makes that impossible.
    listen: Option<PgConnectOptions>,
    listener: Mutex<Option<JoinHandle<()>>>,
    start: Instant,
    /// The lease of a relay in this process lasts until then, in microseconds since `start`.
    leads_until: AtomicU64,
    /// Commits that others are still to be notified of.
    unsaid: AtomicU64,
}

impl Wake {
    pub(crate) fn new(schema: &Name, listen: Option<PgConnectOptions>) -> Self {
        Self {
            heard: Arc::new(Notify::new()),
            channel: format!("{}.outbox", schema.as_str()),
            listen,
            listener: Mutex::new(None),
            start: Instant::now(),
            leads_until: AtomicU64::new(0),
            unsaid: AtomicU64::new(0),
        }
    }

    /// Takes note of whether a relay of this process holds the lease, and for how long.
    pub(crate) fn leads(&self, lasts: Option<Duration>) {
        let until = lasts.map_or(0, |lasts| as_micros(self.start.elapsed() + lasts));
        self.leads_until.store(until, Ordering::Relaxed);
    }

    /// Something was appended and committed.
    pub(crate) fn appended(&self, inner: &Arc<Inner>) {
        self.heard.notify_one();
        let leads_here = as_micros(self.start.elapsed()) < self.leads_until.load(Ordering::Relaxed);
        if !leads_here && self.unsaid.fetch_add(1, Ordering::AcqRel) == 0 {
            tokio::spawn(notify(Unsaid(Arc::downgrade(inner))));
        }
    }

    /// Waits for a commit here or a notification from elsewhere.
    pub(crate) async fn woken(&self) {
        self.keep_listening();
        self.heard.notified().await;
    }

    fn keep_listening(&self) {
        let Some(options) = &self.listen else { return };
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            *listener = Some(tokio::spawn(listen(options.clone(), self.channel.clone(), self.heard.clone())));
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner) {
            listener.abort();
        }
    }
}

/// Says nothing more if its task is dropped, so that the next commit starts another.
struct Unsaid(Weak<Inner>);

impl Drop for Unsaid {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.wake.unsaid.store(0, Ordering::Release);
        }
    }
}

/// Notifies until nothing is unsaid.
async fn notify(unsaid: Unsaid) {
    while let Some(inner) = unsaid.0.upgrade() {
        let wake = &inner.wake;
        let saying = wake.unsaid.load(Ordering::Acquire);
        let statement = sqlx::AssertSqlSafe(format!("NOTIFY \"{}\"", wake.channel));
        if let Err(error) = inner.pool.execute(statement).await {
            // polling will find the rows
            tracing::debug!(%error, "other processes could not be notified of new rows");
        }
        if wake.unsaid.compare_exchange(saying, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return;
        }
        drop(inner);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Listens for ever, on a connection of its own; while it has none, polling must do.
async fn listen(options: PgConnectOptions, channel: String, heard: Arc<Notify>) {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).connect_lazy_with(options);
    let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) };
    for attempt in 1u32.. {
        let error = hear(&pool, &channel, &heard).await;
        tracing::debug!(%error, "not listening for new rows; polling goes on");
        tokio::time::sleep(backoff.wait(attempt, fastrand::f64())).await;
    }
}

async fn hear(pool: &PgPool, channel: &str, heard: &Notify) -> sqlx::Error {
    let connected = async {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(channel).await?;
        Ok(listener)
    };
    let mut listener = match connected.await {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    loop {
        // once for what was said before it listened, and after each reconnection
        heard.notify_one();
        match listener.try_recv().await {
            Ok(Some(_) | None) => {}
            Err(error) => return error,
        }
    }
}

fn as_micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}
