//! Ratios, each of two ways measured side by side in one run on one machine.
//!
//! ```text
//! make bench                      everything
//! make bench BENCH="bad-keys"     one of: bad-keys snapshot end-to-end
//! ```
//!
//! Rates depend on the machine and on what else it does; a ratio of two runs that take turns says
//! something on any. So each measurement is taken several times in turn and the median of the ratios is
//! printed, with the lowest and the highest beside it. PostgreSQL runs with `fsync`, SQLite as malote
//! opens it.

mod bad_keys;
mod end_to_end;
mod places;
mod rounds;
mod snapshot;

use malote::{postgres::Postgres, sqlite::Sqlite};
use std::process::ExitCode;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ALL: [&str; 3] = ["bad-keys", "snapshot", "end-to-end"];

#[tokio::main]
async fn main() -> ExitCode {
    let mut chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = chosen.iter().find(|name| !ALL.contains(&name.as_str())) {
        eprintln!("there is no {unknown}; there are {}", ALL.join(", "));
        return ExitCode::from(2);
    }
    if chosen.is_empty() {
        chosen = ALL.map(String::from).to_vec();
    }
    match run(&chosen).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("malote-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(chosen: &[String]) -> Fallible<()> {
    let server = tokio::task::spawn_blocking(|| malote_testkit::servers::Postgres::builder().fsync(true).start());
    let server = server.await??;
    let folder = tempfile::tempdir()?;
    for name in chosen {
        match name.as_str() {
            "bad-keys" => {
                bad_keys::measure::<Sqlite>(folder.path()).await?;
                bad_keys::measure::<Postgres>(server.at()).await?;
            }
            "snapshot" => snapshot::measure(&server).await?,
            _ => {
                end_to_end::measure::<Sqlite>(folder.path()).await?;
                end_to_end::measure::<Postgres>(server.at()).await?;
            }
        }
    }
    Ok(())
}
