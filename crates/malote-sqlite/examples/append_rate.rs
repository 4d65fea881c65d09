//! How many acknowledged appends a second the embedded log takes from 64 producers, each of which
//! waits for its report before it sends the next, against one transaction per row.
//!
//! `cargo run --release -p malote-sqlite --example append_rate [seconds]`

use malote_core::{Clock, Message, Report, Sealer, Transport};
use malote_sqlite::Embedded;
use std::{
    error::Error,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

const PRODUCERS: usize = 64;
const BODY: &[u8] = br#"{"id":"0192f1c0-0000-7000-8000-000000000000","amount":1500,"from":"alice","to":"bob"}"#;

struct Wall;

impl Clock for Wall {
    fn now(&self) -> chrono::DateTime<chrono::Utc> {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        chrono::DateTime::UNIX_EPOCH + since
    }
    fn new_id(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    let lasts = Duration::from_secs(seconds);
    let folder = tempfile::tempdir_in(".")?;
    let grouped = embedded(&folder.path().join("log.db"), lasts).await?;
    println!("embedded log, {PRODUCERS} producers:  {grouped:>9.0} acknowledged appends/s");
    let path = folder.path().join("rows.db");
    let single = tokio::task::spawn_blocking(move || row_by_row(&path, lasts)).await??;
    println!("one transaction per row:     {single:>9.0} acknowledged appends/s");
    println!("ratio:                       {:>9.1}", grouped / single);
    Ok(())
}

async fn embedded(path: &Path, lasts: Duration) -> Result<f64, Box<dyn Error + Send + Sync>> {
    let log = Embedded::open(path).await?;
    let topic = "payment.received.v1".to_owned();
    log.ensure(std::slice::from_ref(&topic)).await?;
    let sealer = Sealer::new("bench", Arc::new(Wall));
    let begin = Instant::now();
    let mut producers = tokio::task::JoinSet::new();
    for number in 0..PRODUCERS {
        let (log, topic, sealer) = (log.clone(), topic.clone(), sealer.clone());
        producers.spawn(async move {
            let mut publisher = log.publisher().await?;
            let mut sent = 0u64;
            while begin.elapsed() < lasts {
                let message = Message {
                    kind: topic.clone(),
                    topic: topic.clone(),
                    key: format!("{number}/{sent}"),
                    content_type: "application/json".into(),
                    payload: bytes::Bytes::from_static(BODY),
                };
                let reports = publisher.send(vec![sealer.seal(message)?]).await?.await;
                if reports != [Report::Stored] {
                    return Err(format!("{reports:?}").into());
                }
                sent += 1;
            }
            Ok::<u64, Box<dyn Error + Send + Sync>>(sent)
        });
    }
    let mut sent = 0;
    while let Some(producer) = producers.join_next().await {
        sent += producer??;
    }
    Ok(sent as f64 / begin.elapsed().as_secs_f64())
}

/// The same durability, without a group: WAL, synchronous=FULL, one connection.
fn row_by_row(path: &Path, lasts: Duration) -> rusqlite::Result<f64> {
    let connection = rusqlite::Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch("CREATE TABLE record (at INTEGER PRIMARY KEY, key BLOB, payload BLOB)")?;
    let mut insert = connection.prepare("INSERT INTO record (key, payload) VALUES (?1, ?2)")?;
    let (begin, mut rows) = (Instant::now(), 0u64);
    while begin.elapsed() < lasts {
        insert.execute((rows.to_string(), BODY))?;
        rows += 1;
    }
    Ok(rows as f64 / begin.elapsed().as_secs_f64())
}
