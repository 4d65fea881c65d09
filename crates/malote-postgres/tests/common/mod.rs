//! What the tests share.
#![allow(dead_code, unused_imports, missing_docs)]

use malote_core::{
    Event, Incarnation, Lease, Read, Saved, Store, Taken,
    relay::{Cursor, Observation, Plan},
};
use malote_postgres::Postgres;
use serde::{Deserialize, Serialize};
use sqlx::Executor;
use std::time::{Duration, Instant};
use uuid::Uuid;

pub use malote_testkit::conformance::store::sealer;

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const LEASE: Duration = Duration::from_secs(600);

/// A migrated store on a database of its own.
pub async fn open() -> Option<Postgres> {
    let url = malote_testkit::servers::fresh_database("store")?;
    Some(migrated(Postgres::builder(url).connections(24)).await)
}

pub async fn migrated(builder: malote_postgres::Builder) -> Postgres {
    let store = builder.connect().await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Asks until the answer is yes.
pub async fn until(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ask().await {
        assert!(Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// From here on the database's clock stands still, until it is moved: its beginning is an hour ago.
pub async fn stop_clock(store: &Postgres) {
    let stand = "CREATE TABLE standing (at timestamptz NOT NULL); \
                 INSERT INTO standing VALUES (clock_timestamp() - interval '1 hour'); \
                 CREATE OR REPLACE FUNCTION malote.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE \
                 AS 'SELECT at FROM public.standing'";
    store.pool().execute(stand).await.unwrap();
}

pub async fn pass(store: &Postgres, time: Duration) {
    let move_on = "UPDATE standing SET at = at + $1 * interval '1 second'";
    sqlx::query(move_on).bind(time.as_secs_f64()).execute(store.pool()).await.unwrap();
}

/// An aggregate's change; the version is the aggregate's own.
#[derive(Serialize, Deserialize)]
pub struct Changed {
    pub aggregate: String,
    pub version: i64,
}

impl Event for Changed {
    const TYPE: &'static str = "aggregate.changed.v1";
    fn key(&self) -> String {
        self.aggregate.clone()
    }
}

pub fn changed(aggregate: impl Into<String>, version: i64) -> Changed {
    Changed { aggregate: aggregate.into(), version }
}

/// What a relay has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub seq: i64,
    pub id: Uuid,
    pub key: String,
    pub version: i64,
}

/// A relay with nothing in it but the plan: what it reads is sent at once.
pub struct Relay {
    pub store: Postgres,
    pub plan: Plan,
    pub lease: Lease,
    pub lasts: Duration,
    pub sent: Vec<Sent>,
}

impl Relay {
    pub async fn start(store: &Postgres) -> Self {
        Self::take_up(store, LEASE, Vec::new()).await
    }

    /// Waits for the lease, and goes on where the cursor stands.
    pub async fn take_up(store: &Postgres, lasts: Duration, sent: Vec<Sent>) -> Self {
        let who = Incarnation(Uuid::now_v7());
        let deadline = Instant::now() + PATIENCE;
        loop {
            match store.take_lease("relay", who, lasts).await.unwrap() {
                Taken::Mine { lease, cursor, .. } => {
                    return Self { store: store.clone(), plan: Plan::resume(cursor), lease, lasts, sent };
                }
                Taken::Theirs(left) => tokio::time::sleep(left.min(Duration::from_millis(20))).await,
            }
            assert!(Instant::now() < deadline, "the lease never ended");
        }
    }

    /// One read, of which `settle` says how much has its report at once; returns the positions it showed.
    pub async fn read(&mut self, limit: usize) -> Vec<i64> {
        let window = self.plan.window(limit);
        let Read { ended_below, rows } = self.store.read(&window).await.unwrap();
        let positions: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        self.plan.observe(&Observation { ended_below, positions: &positions, window: &window });
        for row in rows {
            let envelope = row.envelope.unwrap();
            let version = envelope.open::<Changed>().map_or(0, |changed| changed.version);
            self.sent.push(Sent { seq: row.seq, id: envelope.id, key: envelope.key, version });
        }
        positions
    }

    /// Reads and settles all that it shows.
    pub async fn step(&mut self) -> usize {
        let mut positions = self.read(1_000).await;
        positions.sort_unstable();
        self.plan.settle(&positions);
        positions.len()
    }

    /// Stores the cursor, which bounds the gaps that were seen.
    pub async fn save(&mut self) -> Cursor {
        let ticket = self.plan.ask_bound();
        let cursor = self.plan.cursor();
        match self.store.save(&self.lease, &cursor, self.lasts).await.unwrap() {
            Saved::Kept { bound } => self.plan.bound(ticket, bound),
            Saved::Fenced => panic!("fenced"),
        }
        cursor
    }

    /// Sends what there is and closes what can be closed, until no gap is left.
    pub async fn drain(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.step().await > 0 || !self.plan.gaps().is_empty() {
            self.save().await;
            assert!(Instant::now() < deadline, "gaps stay open: {:?}", self.plan.gaps());
        }
    }

    pub fn keys(&self) -> Vec<&str> {
        self.sent.iter().map(|sent| sent.key.as_str()).collect()
    }
}
