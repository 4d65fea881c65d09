//! The program: all four services in one process, or one of them.

use clap::{Parser, Subcommand};
use malote::topology::Flow;
use payments::{
    app::{self, Name},
    config::{self, Config, Notices},
};
use std::process::ExitCode;
use support::{
    app::Fatal,
    program::{Format, finish, indented, map, run},
};
use tokio_util::sync::CancellationToken;

/// A payment across four services, by choreography.
#[derive(Parser)]
#[command(version, after_help = config::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all four services in one process
    All,
    /// Run the service that writes payments down, with its HTTP interface
    Payment,
    /// Run the service that approves or rejects
    Fraud,
    /// Run the service that moves money
    Ledger,
    /// Run the service that tells the outside
    Notification,
    /// Print what consumes and emits what, as the handlers declare it
    Map {
        /// In which form
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish("payments", async {
        match cli.command {
            Command::All => serve(&Name::ALL).await,
            Command::Payment => serve(&[Name::Payment]).await,
            Command::Fraud => serve(&[Name::Fraud]).await,
            Command::Ledger => serve(&[Name::Ledger]).await,
            Command::Notification => serve(&[Name::Notification]).await,
            Command::Map { format } => map(&app::flow().await?, format),
        }
    })
}

async fn serve(services: &[Name]) -> Result<(), Fatal> {
    let config = Config::from_env()?;
    let name = if let [one] = services { one.as_str() } else { "payments" };
    let banner = |address: &str, flow: &Flow| banner(services, &config, address, flow);
    run(name, &app::parts(services, &config)?, &config.common, CancellationToken::new(), banner).await
}

/// What is printed at the start.
fn banner(services: &[Name], config: &Config, address: &str, flow: &Flow) -> String {
    let flow = indented(&flow.text());
    let places = places(services, config);
    if let [one] = services {
        return format!(
            "{} is at http://{address} (/health, /ready, /metrics)\n\nWhat it consumes and emits:\n\n{flow}\n{places}",
            one.as_str()
        );
    }
    format!(
        "Four services in one process, at http://{address}\n\n{howto}\n\n\
         The flow, as the handlers declare it (consumes → service → emits):\n\n{flow}\n{places}\n\n\
         Ctrl-C stops. Nothing is lost, not by kill -9 either: the next start goes on.",
        howto = app::howto(address, config.rules.approve_percent),
    )
}

/// Where things are; of what may hold a secret, only its kind.
fn places(services: &[Name], config: &Config) -> String {
    let names: Vec<_> = services.iter().map(|name| name.as_str()).collect();
    let places = config.common.places(&names);
    let notices = match &config.notices {
        Notices::Mailbox(folder) => format!("{}/", folder.display()),
        Notices::Smtp { host, port, .. } => format!("mail by {host}:{port}"),
        Notices::Webhook(_) => "a webhook (MALOTE_WEBHOOK)".into(),
    };
    format!("{places}\nNotices:  {notices}")
}
