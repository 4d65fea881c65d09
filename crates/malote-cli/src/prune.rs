//! `malote prune`: what the janitor does every minute, done by hand.

use crate::{
    End, Unusable,
    act::{Acting, Deed, Target},
    out::{age, count},
    place::Place,
    when,
};
use clap::ValueEnum;
use malote::{
    inspect::{Act, Acted, Filter},
    planted,
};
use malote_core::Prune;
use std::time::Duration;

/// Rows removed in one transaction.
const STEP: u32 = 1_000;
/// After each, so that the service gets its turn.
const PAUSE: Duration = Duration::from_millis(20);
/// The shortest time for which what tells a repeat from a first is kept unasked: a topic's usual week, and a day for the rounding to days.
const SHORTEST: Duration = Duration::from_secs(8 * 86_400);

/// Remove old rows, in small steps; services do this by themselves
#[derive(clap::Args)]
pub struct Args {
    /// What is to go
    what: What,
    /// Only what is older
    #[arg(long, value_name = "AGE", value_parser = when::age)]
    older_than: Duration,
    /// Also what tells a repeat from a first (inbox, operations, tombstones) and is younger than 8 days, because I know that no message comes back after so long
    #[arg(long)]
    although_short: bool,
    #[command(flatten)]
    acting: Acting,
    #[command(flatten)]
    place: Place,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Rows of events that are done; a repeat that comes later takes effect again
    Inbox,
    /// Answers at the HTTP edge; a request that comes again later is done again
    Answers,
    /// Dead letters
    Dead,
    /// Acts of people
    Audit,
    /// Sagas that have ended: state, steps and history; that they were, and how they ended, stays
    Sagas,
    /// That sagas were, by when they ended; a start that comes again later begins anew
    Tombstones,
    /// What this service was asked by sagas; a command that comes again later takes effect again
    Operations,
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    let what = match args.what {
        What::Inbox => Prune::Inbox(args.older_than),
        What::Answers => Prune::Answers(args.older_than),
        What::Dead => Prune::Dead(args.older_than),
        What::Audit => Prune::Audit(args.older_than),
        What::Sagas => Prune::Sagas(args.older_than),
        What::Tombstones => Prune::Tombstones(args.older_than),
        What::Operations => Prune::Operations(args.older_than),
    };
    let is_memory = matches!(what, Prune::Inbox(_) | Prune::Tombstones(_) | Prune::Operations(_));
    if is_memory && what.keep() < SHORTEST && !args.although_short && !planted::is("cli-short-inbox") {
        let why = "the inbox, operations and tombstones tell a repeat from a first, and Kafka's topics keep records for a \
                   week unless told otherwise: what comes back after its row is gone takes effect twice. Say 8d or \
                   more; or, if no message of this service can come back after so long, say so by --although-short";
        return Err(Unusable::new("--older-than", why));
    }
    let targets = args.place.open().await?;
    let targets: Vec<_> = targets.into_iter().map(|service| Target { service, filter: Filter::default() }).collect();
    let deed = Deed { verb: "prune", done: "removed", what: "row" };
    let rows = format!("{} older than {}", what.name(), age(args.older_than.as_secs_f64()));
    let act = async |target: &Target, act: &Act, dry: bool| {
        let store = &target.service.store;
        if dry {
            let done = store.prune(what, u32::MAX, true).await?.rows;
            return Ok(Acted { done, refused: Vec::new() });
        }
        // it is many transactions: the first says that it began, whatever becomes of the others
        store.inspect().note(act, "prune", &rows, "begun").await?;
        let mut done = 0;
        loop {
            let pruned = store.prune(what, STEP, false).await?;
            done += pruned.rows;
            if !pruned.more {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        store.inspect().note(act, "prune", &rows, &format!("{} removed", count(done, "row"))).await?;
        Ok(Acted { done, refused: Vec::new() })
    };
    args.acting.carry_out(deed, &targets, &[], act).await
}
