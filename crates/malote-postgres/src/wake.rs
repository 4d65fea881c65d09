//! The wake-up: a relay should not have to wait for its next poll.
//!
//! It carries no data and may be lost; polling stays beside it. Inside a process a commit wakes the
//! relay directly. Other processes hear a `NOTIFY`, which is sent after the commit and by another
//! connection, one for many commits: inside the inserting transactions it would serialise their
//! commits, and a notification can fail, which a payment must not. While the relay at work is in this
//! very process nobody is notified at all.

use crate::{name::Name, store::Inner};
use malote_core::{
    inspect::{Finding, Grade},
    retry::Backoff,
};
use sqlx::{
    Executor, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::JoinHandle};

/// Between two notifications, so that a busy writer sends few.
const PAUSE: Duration = Duration::from_millis(2);

/// How long the connection that listens may be silent before it is asked whether it still lives, and how long
/// it may take to answer. A dead one says nothing, and neither does one to a server that was demoted.
const SILENCE: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(5);

const UNUSED: u8 = 0;
const LISTENING: u8 = 1;
const LOST: u8 = 2;

pub(crate) struct Wake {
    heard: Arc<Notify>,
    channel: String,
    /// How to connect for `LISTEN`; `None` where a pooler makes that impossible.
    listen: Option<PgConnectOptions>,
    listener: Mutex<Option<JoinHandle<()>>>,
    /// Of the connection that listens.
    state: Arc<AtomicU8>,
    start: Instant,
    /// The lease of a relay in this process lasts until then, in microseconds since `start`.
    leads_until: AtomicU64,
    /// Commits that others are still to be notified of.
    unsaid: AtomicU64,
}

impl Wake {
    /// Whether commits of other processes are heard.
    pub(crate) fn finding(&self) -> Finding {
        let (grade, says) = match (self.listen.is_some(), self.state.load(Ordering::Relaxed)) {
            (false, _) => {
                (Grade::Fine, "not possible behind a pooler: commits of other processes are found by polling")
            }
            (_, LISTENING) => (Grade::Fine, "listening: commits of other processes are heard at once"),
            (_, LOST) => (
                Grade::Warning,
                "the connection that listens is lost, and is being made anew; until then commits of other processes are found by polling",
            ),
            _ => (Grade::Fine, "no relay waits in this process"),
        };
        Finding { grade, what: "wake-up".into(), says: says.into() }
    }

    pub(crate) fn new(schema: &Name, listen: Option<PgConnectOptions>) -> Self {
        Self {
            heard: Arc::new(Notify::new()),
            channel: format!("{}.outbox", schema.as_str()),
            listen,
            listener: Mutex::new(None),
            state: Arc::new(AtomicU8::new(UNUSED)),
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
            *listener = Some(tokio::spawn(listen(
                options.clone(),
                self.channel.clone(),
                self.heard.clone(),
                self.state.clone(),
            )));
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
async fn listen(options: PgConnectOptions, channel: String, heard: Arc<Notify>, state: Arc<AtomicU8>) {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).connect_lazy_with(options);
    let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) };
    let mut attempt = 0;
    loop {
        let error = hear(&pool, &channel, &heard, &state).await;
        // told once, not with each attempt to come back
        if state.swap(LOST, Ordering::Relaxed) == LISTENING {
            attempt = 0;
            tracing::warn!(%error, "commits of other processes are not heard any more; polling goes on until they are");
        }
        attempt += 1;
        tokio::time::sleep(backoff.wait(attempt, fastrand::f64())).await;
    }
}

async fn hear(pool: &PgPool, channel: &str, heard: &Notify, state: &AtomicU8) -> sqlx::Error {
    let connected = async {
        let mut listener = PgListener::connect_with(pool).await?;
        // this loop connects anew by itself, and so knows when it had to
        listener.eager_reconnect(false);
        listener.listen(channel).await?;
        Ok(listener)
    };
    let mut listener = match connected.await {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    if state.swap(LISTENING, Ordering::Relaxed) == LOST {
        tracing::info!("commits of other processes are heard again");
    }
    loop {
        // once for what was said before it listened, and after each reconnection
        heard.notify_one();
        if let Err(error) = next(&mut listener).await {
            return error;
        }
    }
}

/// Waits for the next notification, and makes sure that there could be one.
async fn next(listener: &mut PgListener) -> Result<(), sqlx::Error> {
    let lost = |kind: std::io::ErrorKind| sqlx::Error::Io(kind.into());
    loop {
        if let Ok(told) = tokio::time::timeout(SILENCE, listener.try_recv()).await {
            return told?.map(drop).ok_or_else(|| lost(std::io::ErrorKind::ConnectionReset));
        }
        let ask = sqlx::query_scalar("SELECT pg_is_in_recovery()").persistent(false).fetch_one(&mut *listener);
        let answer = tokio::time::timeout(ANSWER, ask).await;
        if answer.map_err(|_| lost(std::io::ErrorKind::TimedOut))?? {
            return Err(lost(std::io::ErrorKind::ConnectionAborted));
        }
    }
}

fn as_micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}
