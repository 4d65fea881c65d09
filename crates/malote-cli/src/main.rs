//! The `malote` command: what people and scripts ask and do without writing a program.
//!
//! It decides nothing itself: flows are read, checked and drawn by malote; what is asked of a service and done
//! to it goes through `malote::inspect` to the service's own database, so it works while the service is down.
//!
//! ```text
//!   arguments ─▶ place.rs: whose database ─▶ store.rs: opened ─▶ dyn Inspect ─▶ out.rs: tables, or JSON
//! ```

mod act;
mod chosen;
mod dead;
mod demo;
mod doctor;
mod list;
mod map;
mod migrate;
mod out;
mod place;
mod prune;
mod rows;
mod saga;
mod settings;
mod status;
mod store;
mod when;

use clap::{Parser, Subcommand};
use std::{fmt::Display, process::ExitCode};

/// Reliable messages between services: see how they stand, and do something about it
#[derive(Parser)]
#[command(name = "malote", version, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Exit codes:
  0  fine
  1  something is wrong with what was looked at (map, doctor, status --check)
  2  wrong usage, or something could not be looked at
  3  an act that was refused, for some or all of what it was meant for, or not confirmed: nobody said
     yes, or there is no terminal to ask at and no --yes
  4  an act on a saga that is written down, and that no process has dealt with yet

Times are given by RFC 3339 (2026-11-30T08:00:00Z), as a day (2026-11-30), or as an age (30s, 15m, 2h, 3d, 2w).
Acts need --reason, are written down in the service's own `audit`, and ask before they do anything; scripts say --yes.";

#[derive(Subcommand)]
enum Command {
    Status(status::Args),
    Outbox(list::Outbox),
    Parked(list::Parked),
    Dead(dead::Args),
    Saga(saga::Args),
    Retry(act::Retry),
    Relay(list::Relay),
    Scheduled(list::Scheduled),
    Audit(list::Audit),
    Replay(act::Replay),
    Erase(act::Erase),
    Prune(prune::Args),
    Migrate(migrate::Args),
    Doctor(doctor::Args),
    Map(map::Args),
    Demo(demo::Args),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// As it should.
    Fine = 0,
    /// Something is wrong with what was looked at.
    Wrong = 1,
    /// Something could not be looked at.
    Unusable = 2,
    /// Not done, or not all of it.
    Refused = 3,
    /// Written down, and not dealt with yet.
    Open = 4,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let end = run(cli.command).unwrap_or_else(|unusable| {
        out::say(&format!("malote: {unusable}"));
        End::Unusable
    });
    ExitCode::from(end as u8)
}

/// Help and version go where they were asked for. An error quotes what was typed, which may hold a password.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    out::say(error.render().to_string().trim_end());
    ExitCode::from(End::Unusable as u8)
}

fn run(command: Command) -> Result<End, Unusable> {
    if let Command::Map(args) = command {
        return map::run(&args);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Unusable::new("starting", error))?.block_on(async {
        match command {
            Command::Status(args) => status::run(&args).await,
            Command::Outbox(args) => args.run().await,
            Command::Parked(args) => args.run().await,
            Command::Dead(args) => dead::run(&args).await,
            Command::Saga(args) => saga::run(&args).await,
            Command::Retry(args) => args.run().await,
            Command::Relay(args) => args.run().await,
            Command::Scheduled(args) => args.run().await,
            Command::Audit(args) => args.run().await,
            Command::Replay(args) => args.run().await,
            Command::Erase(args) => args.run().await,
            Command::Prune(args) => prune::run(&args).await,
            Command::Migrate(args) => migrate::run(&args).await,
            Command::Doctor(args) => doctor::run(&args).await,
            Command::Map(args) => map::run(&args),
            Command::Demo(args) => demo::run(&args).await,
        }
    })
}

/// What could not be looked at, and why.
#[derive(Debug)]
struct Unusable(String);

impl Unusable {
    fn new(what: impl Display, why: impl Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

impl Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn arguments_fit_together() {
        Cli::command().debug_assert();
    }
}
