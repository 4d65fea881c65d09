//! Ready means that something advances, not that something lives.
#![allow(missing_docs)]

mod common;

use common::*;
use malote::{Retention, Runtime, Service, State};
use std::time::Duration;

on_each_store!(rows_that_nobody_publishes_turn_readiness_red);

async fn rows_that_nobody_publishes_turn_readiness_red<S: TestStore>() {
    let Some(store) = S::fresh("asker").await else { return };
    let log = log().await;
    let retention = Retention { lag: Duration::from_millis(100), ..Retention::default() };
    let service = |relay: bool| {
        let service = Service::new("asker", store.clone(), log.clone()).emits::<Ping>().retention(retention);
        if relay { service } else { service.without_relay() }
    };
    let lonely = Runtime::new().with(service(false));
    let health = lonely.health();
    let running = start(lonely).await;
    ask(&store, [ping("k", 1)]).await;
    eventually("it is said that nothing is published", || {
        let parts = health.parts();
        matches!(parts.get("asker outbox"), Some(State::Failing(why)) if why.contains("1 rows are not published") && why.contains("ping.v1"))
    })
    .await;
    assert!(!health.is_ready());
    // a relay anywhere mends it
    let beside = start(Runtime::new().with(service(true))).await;
    eventually("it is ready again", || health.is_ready()).await;
    beside.stop().await;
    running.stop().await;
}
