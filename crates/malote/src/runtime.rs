//! Runs services until it is told to stop.
//!
//! Each service has its tasks: the relay moves what it wrote, the consumer handles what comes, others
//! retry, fire timers, clean up and observe. `supervise.rs` keeps them at work.

use crate::{
    Health,
    consumer::{Consumer, Retrier},
    janitor::Janitor,
    observer::Observer,
    relay::Relay,
    saga::Desk,
    service::Service,
    supervise::{Beat, Ended, Part, Supervisor},
    timer::Timer,
};
use malote_core::{FullStore, Incarnation, Store, topology::Flow};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::sync::Notify;
use uuid::Uuid;

type Start = Box<dyn FnOnce(&mut Supervisor, &Context) + Send>;

/// A task without a sign of life for so long is started again.
const STALL: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);

/// Several services in one process, whatever their stores.
#[derive(Default)]
pub struct Runtime {
    starts: Vec<Start>,
    flow: Flow,
    faults: Vec<String>,
    health: Health,
    grace: Option<Duration>,
    stall: Option<Duration>,
}

/// What the tasks of all services share.
#[derive(Clone, Copy)]
struct Context {
    who: Incarnation,
    stall: Duration,
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
        self.starts.push(Box::new(move |tasks, context| start(&Arc::new(service), tasks, *context)));
        self
    }

    /// How long stopping may take (5 s by default). Handlers and calls have half of it; what is not done by
    /// then is cut off, handed back, and done again at the next start.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long a task may give no sign of life before it is started again (30 s by default; not
    /// under a second).
    pub fn stalled_after(mut self, limit: Duration) -> Self {
        self.stall = Some(limit.max(Duration::from_secs(1)));
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
        let grace = self.grace.unwrap_or(GRACE);
        let context = Context { who: Incarnation(Uuid::now_v7()), stall: self.stall.unwrap_or(STALL) };
        let mut tasks = Supervisor::new(self.health, grace);
        for start in self.starts {
            start(&mut tasks, &context);
        }
        stop.await;
        if !tasks.stop().await {
            tracing::warn!("not everything was finished within {grace:?}; the rest is done again at the next start");
        }
        Ok(())
    }
}

fn start<S: FullStore>(service: &Arc<Service<S>>, tasks: &mut Supervisor, context: Context) {
    let (who, stall) = (context.who, context.stall);
    // a handler, and a step of the janitor, may take their time: a handler all that it has
    let longest = if malote_core::planted::is("deadline-is-standstill") { stall } else { service.longest() };
    let patient = (stall * 20).max(longest * 2);
    let part = |task, limit| Part { service: service.name.clone(), task, limit, backoff: service.settings.backoff };
    let of = || service.clone();
    if service.settings.relay {
        let (service, limit) = (of(), stall.max(service.settings.lease * 2));
        tasks.keep(part("relay", limit), move |beat| relay(service.clone(), who, beat));
    }
    if !service.routes.is_empty() {
        let parked = Arc::new(Notify::new());
        let (service, told) = (of(), parked.clone());
        tasks.keep(part("consumer", patient), move |beat| consume(service.clone(), who, beat, told.clone()));
        let service = of();
        tasks.keep(part("retries", patient), move |beat| retry(service.clone(), who, beat, parked.clone()));
    }
    if let Some(sagas) = &service.sagas {
        let coordinator = sagas.coordinator().clone();
        tasks.keep(part("sagas", stall), move |beat| {
            let desk = Desk::new(coordinator.clone(), beat);
            async move { Ok(desk.run().await?) }
        });
    }
    let service = of();
    tasks.keep(part("timers", stall), move |beat| time(service.clone(), beat));
    let service = of();
    tasks.keep(part("janitor", patient), move |beat| clean(service.clone(), who, beat));
    let service = of();
    tasks.keep(part("observer", stall), move |beat| observe(service.clone(), beat));
}

async fn relay<S: Store>(service: Arc<Service<S>>, who: Incarnation, beat: Beat) -> Ended {
    ensure(&service, service.flow().emitted_topics(), &beat).await?;
    Ok(Relay::new(service, who, beat).run().await?)
}

async fn consume<S: FullStore>(service: Arc<Service<S>>, who: Incarnation, beat: Beat, parked: Arc<Notify>) -> Ended {
    ensure(&service, service.flow().topics(), &beat).await?;
    Ok(Consumer::new(service, who, beat, parked).run().await?)
}

async fn retry<S: FullStore>(service: Arc<Service<S>>, who: Incarnation, beat: Beat, parked: Arc<Notify>) -> Ended {
    Ok(Retrier::new(service, who, beat, parked).run().await?)
}

async fn time<S: FullStore>(service: Arc<Service<S>>, beat: Beat) -> Ended {
    Ok(Timer::new(service, beat.stop().clone()).run(|| beat.working()).await?)
}

async fn clean<S: FullStore>(service: Arc<Service<S>>, who: Incarnation, beat: Beat) -> Ended {
    let refused = |why: Option<&str>| match why {
        None => beat.working(),
        Some(why) => {
            tracing::error!("the inbox is not cleaned up: {why}");
            beat.failing(why);
        }
    };
    Ok(Janitor::new(service, who, beat.stop().clone()).run(|| beat.advanced(), refused).await?)
}

async fn observe<S: FullStore>(service: Arc<Service<S>>, beat: Beat) -> Ended {
    Ok(Observer::new(service, beat.stop().clone()).run(beat.health(), || beat.working()).await?)
}

async fn ensure<S: Store>(service: &Service<S>, topics: Vec<String>, beat: &Beat) -> Ended {
    let there = beat.stop().run_until_cancelled(service.transport.ensure(&topics)).await;
    Ok(there.unwrap_or(Ok(()))?)
}
