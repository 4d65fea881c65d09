//! Runs services until it is told to stop.
//!
//! Each service has two tasks: the relay, which moves what it wrote, and the consumer, which handles
//! what comes. A task that ends with an error or a panic is started again, after a pause that grows.

use crate::{
    Health, State,
    consumer::{Consumer, Retrier},
    janitor::Janitor,
    observer::Observer,
    relay::Relay,
    service::Service,
    timer::Timer,
};
use futures::FutureExt;
use malote_core::{BoxFuture, Failure, FullStore, Incarnation, Store, retry::Backoff, topology::Flow};
use std::{
    error::Error,
    future::Future,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

type Ended = Result<(), Box<dyn Error + Send + Sync>>;
type Start = Box<dyn FnOnce(&mut JoinSet<()>, &Context) + Send>;

/// Several services in one process, whatever their stores.
#[derive(Default)]
pub struct Runtime {
    starts: Vec<Start>,
    flow: Flow,
    faults: Vec<String>,
    health: Health,
    grace: Option<Duration>,
}

struct Context {
    stop: CancellationToken,
    health: Health,
    who: Incarnation,
}

/// Why the runtime did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The services are not well defined.
    #[error("the services are not well defined: {}", .0.join("; "))]
    Definition(Vec<String>),
}

impl Runtime {
    /// A runtime without services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service.
    pub fn with<S: FullStore>(mut self, service: Service<S>) -> Self {
        self.flow.services.push(service.flow().clone());
        self.faults.extend(service.faults.iter().cloned());
        self.starts.push(Box::new(move |tasks, context| start(Arc::new(service), tasks, context)));
        self
    }

    /// How long stopping may take (5 s by default); what is not done by then is cut off, and done
    /// again at the next start.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// The flow of all services together.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Tells, while it runs, whether every part is at work.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until `stop` resolves, then takes nothing new, finishes what is under way, gives back
    /// its leases and returns.
    pub async fn run_until(self, stop: impl Future) -> Result<(), RuntimeError> {
        if !self.faults.is_empty() {
            return Err(RuntimeError::Definition(self.faults));
        }
        let token = CancellationToken::new();
        let context = Context { stop: token.clone(), health: self.health, who: Incarnation(Uuid::now_v7()) };
        let mut tasks = JoinSet::new();
        for start in self.starts {
            start(&mut tasks, &context);
        }
        stop.await;
        token.cancel();
        let grace = self.grace.unwrap_or(Duration::from_secs(5));
        if tokio::time::timeout(grace, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!("not everything was finished within {grace:?}; the rest is done again at the next start");
        }
        Ok(())
    }
}

fn start<S: FullStore>(service: Arc<Service<S>>, tasks: &mut JoinSet<()>, context: &Context) {
    let (who, parked) = (context.who, Arc::new(Notify::new()));
    let mut part = |name: &str, run: fn(Part<S>) -> BoxFuture<'static, Ended>| {
        let at = context.supervisor(format!("{} {name}", service.name));
        let part = Part { service: service.clone(), at: at.clone(), who, parked: parked.clone() };
        tasks.spawn(at.keep(service.settings.backoff, move || run(part.clone())));
    };
    if service.settings.relay {
        part("relay", |part| Box::pin(relay(part.service, part.at, part.who)));
    }
    if !service.routes.is_empty() {
        part("consumer", |part| Box::pin(consume(part)));
        part("retries", |part| Box::pin(retry(part)));
    }
    part("timers", |part| Box::pin(time(part)));
    part("janitor", |part| Box::pin(clean(part)));
    part("observer", |part| Box::pin(observe(part)));
}

/// What a long task of a service is made from.
struct Part<S: FullStore> {
    service: Arc<Service<S>>,
    at: Arc<Supervisor>,
    who: Incarnation,
    parked: Arc<Notify>,
}

impl<S: FullStore> Clone for Part<S> {
    fn clone(&self) -> Self {
        let Self { service, at, who, parked } = self;
        Self { service: service.clone(), at: at.clone(), who: *who, parked: parked.clone() }
    }
}

async fn relay<S: Store>(service: Arc<Service<S>>, at: Arc<Supervisor>, who: Incarnation) -> Ended {
    let topics = service.flow().emitted_topics();
    let Some(there) = at.stop.run_until_cancelled(service.transport.ensure(&topics)).await else { return Ok(()) };
    there?;
    Ok(Relay::new(service, who, at.stop.clone()).run(&at.health, &at.part).await?)
}

async fn consume<S: FullStore>(Part { service, at, who, parked }: Part<S>) -> Ended {
    let topics = service.flow().topics();
    let Some(there) = at.stop.run_until_cancelled(service.transport.ensure(&topics)).await else { return Ok(()) };
    there?;
    Ok(Consumer::new(service, who, at.stop.clone(), parked).run(&at.health, &at.part).await?)
}

async fn retry<S: FullStore>(Part { service, at, who, parked }: Part<S>) -> Ended {
    Ok(Retrier::new(service, who, at.stop.clone(), parked).run(at.beat()).await?)
}

async fn time<S: FullStore>(Part { service, at, .. }: Part<S>) -> Ended {
    Ok(Timer::new(service, at.stop.clone()).run(at.beat()).await?)
}

async fn clean<S: FullStore>(Part { service, at, who, .. }: Part<S>) -> Ended {
    let refused = |why: Option<&str>| match why {
        None => at.health.set(&at.part, State::Working),
        Some(why) => {
            tracing::error!(part = at.part, "the inbox is not cleaned up: {why}");
            at.health.set(&at.part, State::Failing(why.to_owned()));
        }
    };
    Ok(Janitor::new(service, who, at.stop.clone()).run(|| (), refused).await?)
}

async fn observe<S: FullStore>(Part { service, at, .. }: Part<S>) -> Ended {
    Ok(Observer::new(service, at.stop.clone()).run(&at.health, at.beat()).await?)
}

/// Starts a part again when it ends before its time.
struct Supervisor {
    part: String,
    stop: CancellationToken,
    health: Health,
}

impl Context {
    fn supervisor(&self, part: String) -> Arc<Supervisor> {
        self.health.set(&part, State::Starting);
        Arc::new(Supervisor { part, stop: self.stop.clone(), health: self.health.clone() })
    }
}

impl Supervisor {
    /// What a part calls when it has got on.
    fn beat(&self) -> impl Fn() {
        || self.health.set(&self.part, State::Working)
    }

    async fn keep(self: Arc<Self>, backoff: Backoff, part: impl Fn() -> BoxFuture<'static, Ended>) {
        let mut attempt = 0;
        while !self.stop.is_cancelled() {
            let started = Instant::now();
            let why = match AssertUnwindSafe(part()).catch_unwind().await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => Failure::Error(error).to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            if self.stop.is_cancelled() {
                return;
            }
            // what ran well for a while starts counting anew
            attempt = if started.elapsed() > backoff.most { 1 } else { attempt + 1 };
            let wait = backoff.wait(attempt, fastrand::f64());
            tracing::error!(part = self.part, "ended, starts again in {wait:?}: {why}");
            self.health.set(&self.part, State::Failing(why));
            self.stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
    }
}
