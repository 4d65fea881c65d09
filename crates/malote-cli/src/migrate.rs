//! `malote migrate`: malote's own tables, brought up to date by hand.
//!
//! For those who do not let services change their schema. Running it twice, or by several at once,
//! does no harm; services that find their tables up to date change nothing.

use crate::Unusable;
use malote::{chain, postgres::Postgres, sqlite::Sqlite};
use std::process::ExitCode;

/// Create malote's tables in a service's database, or bring them up to date
#[derive(clap::Args)]
pub struct Args {
    /// The database: a path, sqlite:PATH, or postgres://user:password@host:port/database
    #[arg(long, value_name = "URL", env = "MALOTE_STORE", hide_env_values = true)]
    store: String,
}

pub fn run(args: &Args) -> Result<ExitCode, Unusable> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Unusable::new("starting", error))?;
    // the URL may hold a password: it is not repeated in what is said
    runtime.block_on(migrate(&args.store)).map_err(|error| Unusable::new("--store", error))?;
    println!("malote's tables are up to date");
    Ok(ExitCode::SUCCESS)
}

async fn migrate(store: &str) -> Result<(), String> {
    match store.split_once("://").map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => {
            let store = Postgres::connect(store).await.map_err(|error| chain(&error))?;
            store.migrate().await.map_err(|error| chain(&error))
        }
        Some("sqlite") | None => {
            let store = Sqlite::open(store).await.map_err(|error| chain(&error))?;
            let migrated = store.migrate().await.map(drop).map_err(|error| chain(&error));
            store.close().await;
            migrated
        }
        Some(scheme) => Err(format!("a path, sqlite:PATH or postgres://… is expected; {scheme:?} is none of these")),
    }
}
