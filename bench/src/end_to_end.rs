//! What the guarantees cost: a row here, and what is to be done about it there.
//!
//! With malote: the row and its event in one transaction, relay, log, inbox, and the other row with the
//! inbox's in one transaction. Against it: the two rows by two plain inserts, one after the other, which
//! loses the second when the process dies between them.

use crate::{
    Fallible,
    places::{Ping, Place, Pong, Runs, log, ping, start},
    rounds,
};
use malote::{Message, Outbox, Outcome, Runtime, Service, Transaction};
use std::time::{Duration, Instant};

/// Pairs of rows, and how many write them at once.
const PAIRS: i64 = 8_000;
const WRITERS: i64 = 8;

async fn answer<T: Runs>(ping: Ping, tx: &mut T) -> Outcome {
    tx.run(&there(ping.n)).await?;
    Ok(())
}

fn here(n: i64) -> String {
    format!("INSERT INTO here VALUES ({n}, '{}')", "x".repeat(250))
}

fn there(n: i64) -> String {
    format!("INSERT INTO there VALUES ({n}, '{}')", "x".repeat(250))
}

/// Writes one pair in the way in question.
async fn pair<S: Place>(malote: bool, n: i64, a: &Outbox<S>, b: &Outbox<S>) -> Fallible<()> {
    let mut tx = a.begin().await?;
    tx.run(&here(n)).await?;
    if malote {
        let sealed = tx.sealer().seal(Message::of(&ping(n % 1_000, n))?)?;
        tx.append(vec![sealed]).await?;
    }
    tx.commit().await?;
    if !malote {
        let mut tx = b.begin().await?;
        tx.run(&there(n)).await?;
        tx.commit().await?;
    }
    Ok(())
}

async fn run<S: Place>(home: &S::Home, malote: bool) -> Fallible<Duration> {
    let folder = tempfile::tempdir()?;
    let (a, b) = (S::fresh(home, "asker").await?, S::fresh(home, "worker").await?);
    a.once("CREATE TABLE here (id integer PRIMARY KEY, text text NOT NULL)").await?;
    b.once("CREATE TABLE there (id integer PRIMARY KEY, text text NOT NULL)").await?;
    let log = log(folder.path()).await?;
    let asker = Service::new("asker", a.clone(), log.clone()).emits::<Ping>().terminal::<Pong>();
    let worker = Service::new("worker", b.clone(), log).on(answer::<S::Tx>).without_relay();
    let running = malote.then(|| start(Runtime::new().with(asker).with(worker)));
    let (from, to) = (Outbox::new("asker", a), Outbox::new("worker", b.clone()));
    let began = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (from, to) = (from.clone(), to.clone());
            tokio::spawn(async move {
                for n in (writer..PAIRS).step_by(WRITERS as usize) {
                    pair(malote, n, &from, &to).await?;
                }
                Fallible::Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let took = b.until("SELECT count(*) FROM there", PAIRS).await? - began;
    if let Some(running) = running {
        running.stop().await?;
    }
    Ok(took)
}

pub async fn measure<S: Place>(home: &S::Home) -> Fallible<()> {
    let taken = rounds::of(async |malote| run::<S>(home, malote).await).await?;
    let what = format!(
        "{}: outbox, relay, log, inbox and effect, until all is done, against two plain inserts ({WRITERS} writers)",
        S::NAME
    );
    rounds::print(&what, &taken);
    Ok(())
}
