//! `malote saga`: one piece of business over several services, as its store tells it, and what a person does
//! about it.
//!
//! Looks need no code of the service: each process leaves the outlines of its definitions in the store. Acts do:
//! they are written down, and a process that has the definition deals with them.

mod act;
mod describe;
mod find;
mod show;
mod steps;

use crate::{End, Unusable, list::Listing, store::Store, when};
use act::Asking;
use clap::Subcommand;
use find::Beginning;
use malote::saga::{Deed, SagaFilter, Status};
use std::time::Duration;

/// Sagas: see how they stand, why, and what may be done; and do it
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Show(show::Args),
    Describe(describe::Args),
    /// Ask again, now, for one step or for all that wait or stand still
    Retry {
        #[command(flatten)]
        id: Id,
        /// Only this one
        #[arg(long, value_name = "STEP")]
        step: Option<String>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Take a step as done (or, where it is being undone, as undone)
    Skip {
        #[command(flatten)]
        id: Id,
        /// Which one
        #[arg(long, value_name = "STEP")]
        step: String,
        /// What it would have answered, as JSON, or @FILE; later steps lean on it, so only an undoing needs none
        #[arg(long, value_name = "JSON")]
        answer: Option<String>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Turn back: undo what was done, after the pivot as far as the definition says how
    Compensate {
        #[command(flatten)]
        id: Id,
        #[command(flatten)]
        asking: Asking,
    },
    /// Give it up as it stands; nothing is undone
    Abandon {
        #[command(flatten)]
        id: Id,
        #[command(flatten)]
        asking: Asking,
    },
}

/// Which saga.
#[derive(clap::Args)]
struct Id {
    /// Its id, or the beginning of it
    #[arg(value_name = "ID", value_parser = find::beginning)]
    id: Beginning,
}

/// List them, the longest unchanged first
#[derive(clap::Args)]
struct List {
    /// Only those that wait for a person
    #[arg(long, conflicts_with = "status")]
    stuck: bool,
    /// In this status: running, compensating, completed, compensated, stuck, abandoned; may be given several times
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Vec<Status>,
    /// Of this definition
    #[arg(long, value_name = "NAME")]
    definition: Option<String>,
    /// Of this version
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// Of which this step waits, or keeps it from going on
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Unchanged for longer than this
    #[arg(long, value_name = "AGE", value_parser = when::age)]
    older_than: Option<Duration>,
    #[command(flatten)]
    listing: Listing,
}

fn status(text: &str) -> Result<Status, String> {
    let names = Status::ALL.map(Status::as_str).join(", ");
    let found = Status::ALL.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| format!("one of {names} is expected"))
}

impl List {
    async fn run(&self) -> Result<End, Unusable> {
        let filter = SagaFilter {
            definition: self.definition.clone(),
            version: self.version,
            statuses: if self.stuck { vec![Status::Stuck] } else { self.status.clone() },
            older_than: self.older_than,
            step: self.step.clone(),
        };
        self.listing.run(async |store: &Store, most| store.inspect().sagas(&filter, most).await).await
    }
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    match &args.command {
        Command::List(list) => list.run().await,
        Command::Show(args) => args.run().await,
        Command::Describe(args) => args.run().await,
        Command::Retry { id, step, asking } => asking.run(&id.id, Deed::Retry { step: step.clone() }).await,
        Command::Skip { id, step, answer, asking } => {
            let answer = answer.as_deref().map(act::answer).transpose()?;
            asking.run(&id.id, Deed::Skip { step: step.clone(), answer }).await
        }
        Command::Compensate { id, asking } => asking.run(&id.id, Deed::Compensate).await,
        Command::Abandon { id, asking } => asking.run(&id.id, Deed::Abandon).await,
    }
}
