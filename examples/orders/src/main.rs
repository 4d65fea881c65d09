//! The program: all four services in one process, or one of them.

use clap::{Parser, Subcommand};
use malote::topology::Flow;
use orders::{
    app::{self, Name},
    config::{self, Config},
};
use std::process::ExitCode;
use support::{
    app::Fatal,
    program::{Format, finish, indented, map, run},
};
use tokio_util::sync::CancellationToken;

/// An order across four services and an outside provider, by orchestration.
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
    /// Run the service that takes orders and leads them, with its HTTP interface
    Order,
    /// Run the service that sets stock aside
    Inventory,
    /// Run the service that deals with the payment provider
    Billing,
    /// Run the service that has orders delivered
    Shipping,
    /// Print what consumes and emits what, as the handlers and the saga declare it
    Map {
        /// In which form
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish("orders", async {
        match cli.command {
            Command::All => serve(&Name::ALL).await,
            Command::Order => serve(&[Name::Order]).await,
            Command::Inventory => serve(&[Name::Inventory]).await,
            Command::Billing => serve(&[Name::Billing]).await,
            Command::Shipping => serve(&[Name::Shipping]).await,
            Command::Map { format } => map(&app::flow().await?, format),
        }
    })
}

async fn serve(services: &[Name]) -> Result<(), Fatal> {
    let config = Config::from_env()?;
    let name = if let [one] = services { one.as_str() } else { "orders" };
    let stop = CancellationToken::new();
    let (parts, provider) = app::parts(services, &config, &stop).await?;
    let banner = |address: &str, flow: &Flow| banner(services, &config, address, &provider, flow);
    run(name, &parts, &config.common, stop.clone(), banner).await
}

/// What is printed at the start.
fn banner(services: &[Name], config: &Config, address: &str, provider: &str, flow: &Flow) -> String {
    let flow = indented(&flow.text());
    let names: Vec<_> = services.iter().map(|name| name.as_str()).collect();
    let places = config.common.places(&names);
    if let [one] = services {
        return format!(
            "{} is at http://{address} (/health, /ready, /metrics)\n\nWhat it consumes and emits:\n\n{flow}\n{places}",
            one.as_str()
        );
    }
    format!(
        "Four services in one process, at http://{address}; the payment provider is at {provider} (/book, /faults)\n\n\
         {howto}\n\nThe flow, as the handlers declare it (consumes → service → emits):\n\n{flow}\n{places}\n\
         Notices:  {mailbox}/\n\n\
         Ctrl-C stops. Nothing is lost, not by kill -9 either: the next start goes on.",
        howto = app::howto(address),
        mailbox = config.mailbox().display(),
    )
}
