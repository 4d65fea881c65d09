//! Keeps long tasks at work.
//!
//! A task that nobody waits for can end, panic or stand still without anybody noticing. Here each has
//! a keeper, which starts it again after a pause that grows, counts that
//! (`malote_task_restarts_total`), and says so in [`Health`].
//!
//! ```text
//!   keep ──▶ task ──beats──▶ … ──beats──▶ ended, panicked, or no beat for too long (aborted)
//!              ▲                                          │
//!              └───────── pause, longer each time ◀───────┘
//! ```

use crate::{Health, State};
use malote_core::{Failure, planted, retry::Backoff};
use std::{
    error::Error,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// How a task ends.
pub(crate) type Ended = Result<(), Box<dyn Error + Send + Sync>>;

/// What is to be kept at work, and how.
#[derive(Clone)]
pub(crate) struct Part {
    /// The service it belongs to.
    pub service: Arc<str>,
    /// What it does there: `relay`, `consumer`.
    pub task: &'static str,
    /// Longest time without a beat.
    pub limit: Duration,
    /// Pauses between starts.
    pub backoff: Backoff,
}

impl Part {
    /// Its name in [`Health`].
    fn name(&self) -> String {
        format!("{} {}", self.service, self.task)
    }
}

/// All tasks of a runtime.
pub(crate) struct Supervisor {
    tasks: JoinSet<()>,
    health: Health,
    stop: CancellationToken,
    grace: Duration,
}

impl Supervisor {
    /// Keeps nothing yet. Stopping takes `grace` at most.
    pub(crate) fn new(health: Health, grace: Duration) -> Self {
        Self { tasks: JoinSet::new(), health, stop: CancellationToken::new(), grace }
    }

    /// Keeps what `start` makes at work until the supervisor stops.
    pub(crate) fn keep<F>(&mut self, part: Part, start: impl Fn(Beat) -> F + Send + 'static)
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let keeper = Keeper { health: self.health.clone(), stop: self.stop.clone(), grace: self.grace, part };
        keeper.beat().report(State::Starting);
        self.tasks.spawn(keeper.run(start));
    }

    /// Tells every task to stop and waits for them, for the grace time at most; false if some had
    /// to be cut off.
    pub(crate) async fn stop(mut self) -> bool {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(self.grace, ended).await.is_ok()
    }
}

/// One task's keeper.
struct Keeper {
    part: Part,
    health: Health,
    stop: CancellationToken,
    grace: Duration,
}

impl Keeper {
    fn beat(&self) -> Beat {
        Beat(Arc::new(Pulse {
            name: self.part.name(),
            part: self.part.clone(),
            health: self.health.clone(),
            stop: self.stop.clone(),
            grace: self.grace,
            last: Mutex::new(Last { beat: Instant::now(), idle: 0 }),
        }))
    }

    async fn run<F>(self, start: impl Fn(Beat) -> F)
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let mut attempt = 0u32;
        while !self.stop.is_cancelled() {
            let (started, beat) = (Instant::now(), self.beat());
            let why = watch(&beat, start(beat.clone())).await;
            if self.stop.is_cancelled() {
                return;
            }
            // what ran well for a while starts counting anew
            let ran_well = started.elapsed() > self.part.backoff.most.max(self.part.limit);
            attempt = if ran_well { 1 } else { attempt.saturating_add(1) };
            let wait = self.part.backoff.wait(attempt, fastrand::f64());
            tracing::error!(part = beat.0.name, "starts again in {wait:?}: {why}");
            let labels = [("service", self.part.service.to_string()), ("task", self.part.task.to_owned())];
            metrics::counter!("malote_task_restarts_total", &labels).increment(1);
            beat.failing(why);
            self.stop.run_until_cancelled(sleep(wait)).await;
        }
    }
}

/// Runs a task to its end, or until it no longer beats; says how that came.
async fn watch(beat: &Beat, task: impl Future<Output = Ended> + Send + 'static) -> String {
    // a task of its own, so that a panic ends nothing else and standing still can be ended
    let mut task = AbortOnDropHandle::new(tokio::spawn(task));
    tokio::select! {
        ended = &mut task => how(ended),
        () = beat.stops() => {
            task.abort();
            // two of one kind must never be at work side by side
            match (&mut task).await {
                Err(ended) if ended.is_cancelled() => format!("it did not advance for {:?}", beat.0.part.limit),
                ended => how(ended),
            }
        }
    }
}

fn how(ended: Result<Ended, JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "it ended by itself".to_owned(),
        Ok(Err(error)) => Failure::Error(error).to_string(),
        Err(ended) if ended.is_panic() => "it panicked".to_owned(),
        Err(_) => "it was cut off".to_owned(),
    }
}

/// A task's sign of life, and its way to hear that it is to stop. A clone is the same.
#[derive(Clone)]
pub(crate) struct Beat(Arc<Pulse>);

struct Pulse {
    part: Part,
    name: String,
    health: Health,
    stop: CancellationToken,
    grace: Duration,
    last: Mutex<Last>,
}

#[derive(Clone, Copy)]
struct Last {
    beat: Instant,
    /// How many wait for something outside that may never come.
    idle: usize,
}

impl Beat {
    /// The task has advanced. To be called in its loop, more often than its limit.
    pub(crate) fn advanced(&self) {
        self.last().beat = Instant::now();
    }

    /// It has done some of its work.
    pub(crate) fn working(&self) {
        self.report(State::Working);
    }

    /// Another one does the work.
    pub(crate) fn standby(&self) {
        self.report(State::Standby);
    }

    /// It goes on, but gets nowhere.
    pub(crate) fn failing(&self, why: impl Into<String>) {
        self.report(State::Failing(why.into()));
    }

    fn report(&self, state: State) {
        self.advanced();
        self.0.health.report(&self.0.name, state, self.0.part.backoff);
    }

    /// Waits for what may never come, a message say; meanwhile no beat is expected.
    pub(crate) async fn idle<T>(&self, coming: impl Future<Output = T>) -> T {
        struct Leave<'b>(&'b Beat);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                let mut last = self.0.last();
                (last.idle, last.beat) = (last.idle - 1, Instant::now());
            }
        }
        self.last().idle += 1;
        let _leave = Leave(self);
        coming.await
    }

    /// Where facts are told that are not the task's own state.
    pub(crate) fn health(&self) -> &Health {
        &self.0.health
    }

    /// Cancelled when the task is to take nothing new, finish and end.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// How long it may take to finish after it was told to stop; half of the runtime's grace time,
    /// so that there is time to hand back what is not finished by then.
    pub(crate) fn time_to_finish(&self) -> Duration {
        self.0.grace / 2
    }

    /// Resolves when there was no beat for too long. Looks twice: when the whole process was
    /// suspended, or starved, the task must have had its turn before it is judged.
    async fn stops(&self) {
        let limit = self.0.part.limit;
        let mut suspect = None;
        loop {
            let Last { beat: last, idle } = *self.last();
            let due = last + limit;
            if idle > 0 || self.0.stop.is_cancelled() || Instant::now() < due || planted::is("never-stalled") {
                suspect = None;
                sleep_until(due.max(Instant::now() + limit / 8)).await;
            } else if suspect == Some(last) {
                return;
            } else {
                suspect = Some(last);
                sleep(limit / 8).await;
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
    };

    const LONG: Duration = Duration::from_secs(30);

    /// Keeps `task`, which is told the number of its start, until `until` is over.
    async fn kept<F>(task: impl Fn(usize, Beat) -> F + Send + 'static, until: impl AsyncFnOnce(Health, &AtomicUsize))
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let (health, starts) = (Health::default(), Arc::new(AtomicUsize::new(0)));
        let mut supervisor = Supervisor::new(health.clone(), LONG);
        let backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_millis(800) };
        let part = Part { service: "test".into(), task: "task", limit: Duration::from_millis(400), backoff };
        let count = starts.clone();
        supervisor.keep(part, move |beat| task(count.fetch_add(1, SeqCst) + 1, beat));
        tokio::time::timeout(LONG, until(health, &starts)).await.expect("in time");
        assert!(supervisor.stop().await);
    }

    async fn work(beat: Beat) -> Ended {
        beat.working();
        while beat.stop().run_until_cancelled(sleep(Duration::from_millis(10))).await.is_some() {
            beat.advanced();
        }
        Ok(())
    }

    /// Until it was started so often, `always` is so at each look.
    async fn until_started(times: usize, starts: &AtomicUsize, always: impl Fn() -> bool) {
        while starts.load(SeqCst) < times {
            assert!(always(), "at start {}", starts.load(SeqCst));
            sleep(Duration::from_millis(1)).await; // between two looks
        }
    }

    #[tokio::test]
    async fn ac_015_a_task_that_panics_once_is_started_again() {
        let panics_once = |start, beat: Beat| async move {
            assert!(start > 1, "the first start");
            work(beat).await
        };
        kept(panics_once, async |health, starts| {
            health.ready().await;
            assert_eq!(starts.load(SeqCst), 2);
        })
        .await;
    }

    #[tokio::test]
    async fn ac_015_a_task_that_always_panics_never_looks_healthy_again() {
        let panics = |_, beat: Beat| async move {
            beat.working();
            tokio::task::yield_now().await;
            panic!("each time")
        };
        kept(panics, async |health, starts| {
            until_started(2, starts, || true).await;
            until_started(10, starts, || !health.is_ready()).await;
        })
        .await;
    }

    #[tokio::test]
    async fn a_task_that_does_not_advance_is_started_again() {
        let stands_still = |start, beat: Beat| async move {
            if start == 1 {
                beat.working();
                pending::<()>().await;
            }
            work(beat).await
        };
        kept(stands_still, async |health, starts| {
            until_started(2, starts, || true).await;
            assert!(format!("{:?}", health.parts()).contains("did not advance"), "{:?}", health.parts());
            health.ready().await;
            assert_eq!(starts.load(SeqCst), 2);
        })
        .await;
    }

    #[tokio::test]
    async fn one_that_waits_for_what_may_never_come_is_left_alone() {
        let waits = |_, beat: Beat| async move {
            beat.working();
            beat.stop().run_until_cancelled(beat.idle(pending::<()>())).await;
            Ok(())
        };
        // another one, which does not say that it waits, tells how long is too long
        let tells = async |_: Health, starts: &AtomicUsize| until_started(3, starts, || true).await;
        let stands_still = |_, beat: Beat| async move {
            beat.stop().cancelled().await;
            Ok(())
        };
        let waiting = kept(waits, async |health, starts| {
            kept(stands_still, tells).await;
            assert!(health.is_ready());
            assert_eq!(starts.load(SeqCst), 1);
        });
        waiting.await;
    }
}
