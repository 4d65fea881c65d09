//! `malote migrate`: malote's own tables, brought up to date by hand.
//!
//! For those who do not let services change their schema. Running it twice, or by several at once,
//! does no harm; services that find their tables up to date change nothing.

use crate::{
    End, Unusable,
    out::{json, plain, print},
    place::Place,
};
use malote::chain;
use serde_json::json;

/// Create malote's tables in a service's database, or bring them up to date
#[derive(clap::Args)]
pub struct Args {
    /// For scripts: an array of objects with `service` and `migrated`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    let services = args.place.services().await?;
    let mut done = Vec::new();
    for (name, url) in services {
        let failed = |error| Unusable::new(&name, chain(&error));
        let store = url.open_or_make().await.map_err(failed)?;
        let migrated = store.migrate().await;
        store.close().await;
        migrated.map_err(failed)?;
        if !args.json {
            print(&format!("{}: malote's tables are up to date\n", plain(&name)))?;
        }
        done.push(json!({"service": name, "migrated": true}));
    }
    if args.json {
        json(&done)?;
    }
    Ok(End::Fine)
}
