//! Tasks that die, stand still or lose their lease, and what is told of it.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Runtime, Service, Transport, retry::Backoff, telemetry::metrics::install};
use malote_testkit::faults::{Fate, Faulty};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::oneshot;

on_each_store!(
    ac_015_a_relay_that_panics_once_goes_on_and_is_counted,
    ac_015_a_relay_that_always_panics_is_not_ready,
    a_relay_that_was_fenced_moves_no_cursor_and_is_counted,
);

/// Longer pauses than a start takes, so that a flicker would show.
const SLOW: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_millis(400) };

/// A service of its own name, since a process counts its services by name.
fn asker<S: TestStore>(what: &str, store: &S, transport: Arc<dyn Transport>) -> Service<S> {
    let name = format!("{what} {}", std::any::type_name::<S>().rsplit("::").next().unwrap());
    Service::new(&name, store.clone(), transport).emits::<Ping>().backoff(SLOW)
}

/// The sum of a metric over all its series that have this text in their labels.
fn told(metric: &str, label: &str) -> f64 {
    let text = install().expect("a recorder").render();
    let lines = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn ac_015_a_relay_that_panics_once_goes_on_and_is_counted<S: TestStore>() {
    let Some(store) = S::fresh("asker").await else { return };
    install().expect("a recorder");
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let transport = Faulty::new(log().await, move |_| {
        assert!(count.fetch_add(1, SeqCst) != 2, "the third sending");
        Fate::Pass
    });
    let service = asker("once", &store, Arc::new(transport));
    let name = service.flow().name.clone();
    let running = start(Runtime::new().with(service)).await;
    ask(&store, (0..10).map(|n| ping("k", n))).await;
    let published = format!("service=\"{name}\"");
    eventually("all is published", || told("malote_published_total", &published) >= 10.0).await;
    running.stop().await;
    assert_eq!(told("malote_task_restarts_total", &published), 1.0);
    assert_eq!(told("malote_relay_leader", &published), 0.0);
}

async fn ac_015_a_relay_that_always_panics_is_not_ready<S: TestStore>() {
    let Some(store) = S::fresh("asker").await else { return };
    install().expect("a recorder");
    let transport = Faulty::new(log().await, |_| panic!("each time"));
    let service = asker("always", &store, Arc::new(transport));
    let label = format!("service=\"{}\"", service.flow().name);
    let runtime = Runtime::new().with(service);
    let health = runtime.health();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(runtime.run_until(stopped));
    ask(&store, [ping("k", 1)]).await;
    let restarts = || told("malote_task_restarts_total", &label);
    eventually("it panics", || restarts() >= 1.0).await;
    eventually("it panicked often", || {
        assert!(!health.is_ready(), "after {} restarts", restarts());
        restarts() >= 8.0
    })
    .await;
    drop(stop);
    running.await.unwrap().unwrap();
}

async fn a_relay_that_was_fenced_moves_no_cursor_and_is_counted<S: TestStore>() {
    let Some(store) = S::fresh("asker").await else { return };
    install().expect("a recorder");
    let service = asker("fenced", &store, log().await).lease(Duration::from_secs(2));
    let name = service.flow().name.clone();
    let running = start(Runtime::new().with(service)).await;
    ask(&store, [ping("k", 1)]).await;
    store.until_count(&format!("select count(*) from malote.relay where name = '{name}' and high = 1"), 1).await;
    // another one takes over, which has seen more, and does not end
    store.execute(&format!("update malote.relay set epoch = epoch + 5, high = 100 where name = '{name}'")).await;
    let label = format!("service=\"{name}\"");
    eventually("it notices", || told("malote_fenced_total", &label) >= 1.0).await;
    running.stop().await;
    let moved = format!("select count(*) from malote.relay where name = '{name}' and high = 100 and epoch >= 6");
    assert_eq!(store.count(&moved).await, 1);
}
