//! The `malote` command: what people and scripts ask without writing a program.
//!
//! It decides nothing itself: flows are read, checked and drawn by malote, migrations are the stores'
//! own. Exit codes are the same for every command: 0 fine, 1 there is something wrong with what was
//! looked at, 2 it could not be looked at (usage, a file, a database).

mod map;
mod migrate;
mod settings;

use clap::{Parser, Subcommand};
use std::{fmt::Display, process::ExitCode};

/// Reliable messages between services: look at flows, bring databases up to date.
#[derive(Parser)]
#[command(version, after_help = "Exit codes: 0 fine, 1 faults found, 2 wrong usage or something that cannot be read.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Map(map::Args),
    Migrate(migrate::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Map(args) => map::run(&args),
        Command::Migrate(args) => migrate::run(&args),
    };
    done.unwrap_or_else(|unusable| {
        eprintln!("malote: {unusable}");
        ExitCode::from(2)
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
