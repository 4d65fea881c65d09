//! `malote migrate`: malote's own tables, brought up to date by hand.
//!
//! For those who do not let services change their schema. Running it twice, or by several at once,
//! does no harm; services that find their tables up to date change nothing. What was changed is in
//! `audit`, which the first migration makes: so it is written right after them.

use crate::{
    End, Unusable,
    act::{actor, words},
    out::{count, json, plain, print},
    place::Place,
};
use malote::{chain, inspect::Act};
use serde_json::json;

/// Create malote's tables in a service's database, or bring them up to date
#[derive(clap::Args)]
pub struct Args {
    /// For scripts: an array of objects with `service`, `migrated` and `steps`, how many that took
    #[arg(long)]
    json: bool,
    /// Why, in your own words; it is written down with what was changed
    #[arg(long, value_name = "TEXT", value_parser = words, default_value = "an update of malote")]
    reason: String,
    /// Who acts [the login name]
    #[arg(long, value_name = "NAME", value_parser = words)]
    actor: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    let act = Act { actor: actor(args.actor.as_deref())?, reason: args.reason.clone() };
    let services = args.place.services().await?;
    let mut done = Vec::new();
    for (name, url) in services {
        let failed = |error| Unusable::new(&name, chain(&error));
        let store = url.open_or_make().await.map_err(failed)?;
        let migrated = async {
            let steps = store.migrate().await?;
            if steps > 0 {
                let outcome = format!("{} taken", count(steps.into(), "step"));
                store.inspect().note(&act, "migrate", "malote's tables", &outcome).await?;
            }
            Ok(steps)
        };
        let migrated = migrated.await;
        store.close().await;
        let steps = migrated.map_err(failed)?;
        if !args.json {
            let taken = if steps == 0 { String::new() } else { format!(", {} taken", count(steps.into(), "step")) };
            print(&format!("{}: malote's tables are up to date{taken}\n", plain(&name)))?;
        }
        done.push(json!({"service": name, "migrated": true, "steps": steps}));
    }
    if args.json {
        json(&done)?;
    }
    Ok(End::Fine)
}
