//! What a snapshot that is held open for long (a report, a backup) costs publishing.

use crate::{
    Fallible,
    places::{Ping, Place, Pong, log, ping, start, write},
    rounds,
};
use malote::{Runtime, Service, postgres::Postgres};
use malote_testkit::servers;
use sqlx::{Connection, Executor, PgConnection};
use std::time::{Duration, Instant};

/// Rows that are written while others are published.
const ROWS: i64 = 30_000;
/// Rows of one transaction.
const EACH: i64 = 50;

/// How long it takes to write and to publish, in one database.
async fn run(server: &servers::Postgres, held: bool) -> Fallible<Duration> {
    let (folder, store) = (tempfile::tempdir()?, Postgres::fresh(server.at(), "asker").await?);
    let database: String = sqlx::query_scalar("SELECT current_database()::text").fetch_one(store.pool()).await?;
    let mut reader = PgConnection::connect(&server.url(&database)).await?;
    if held {
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM malote.outbox").await?;
    }
    let service = Service::new("asker", store.clone(), log(folder.path()).await?).emits::<Ping>().terminal::<Pong>();
    let running = start(Runtime::new().with(service));
    let began = Instant::now();
    for first in (0..ROWS).step_by(EACH as usize) {
        write(&store, (first..first + EACH).map(|n| ping(n % 1_000, n))).await?;
    }
    let settled = format!("SELECT count(*) FROM malote.relay WHERE name = 'asker' AND high >= {ROWS}");
    let took = store.until(&settled, 1).await? - began;
    running.stop().await?;
    reader.close().await?;
    Ok(took)
}

pub async fn measure(server: &servers::Postgres) -> Fallible<()> {
    let taken = rounds::of(async |held| run(server, held).await).await?;
    rounds::print(
        "PostgreSQL: rows written and published with a snapshot held open all the while, against none",
        &taken,
    );
    Ok(())
}
