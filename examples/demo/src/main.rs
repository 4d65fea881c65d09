//! Both example systems in one process: payments by choreography, orders by orchestration, and the
//! provider that orders are paid through.

use clap::Parser;
use malote::topology::Flow;
use std::{path::Path, process::ExitCode};
use support::{
    app::Fatal,
    program::{finish, run},
};
use tokio_util::sync::CancellationToken;

/// Payments and orders in one process; every setting of `payments` and of `orders` holds.
#[derive(Parser)]
#[command(version)]
struct Cli;

fn main() -> ExitCode {
    Cli::parse();
    finish("demo", demo())
}

async fn demo() -> Result<(), Fatal> {
    let (payments, orders) = (payments::config::Config::from_env()?, orders::config::Config::from_env()?);
    let stop = CancellationToken::new();
    let mut parts = payments::app::parts(&payments::app::Name::ALL, &payments)?;
    let (others, provider) = orders::app::parts(&orders::app::Name::ALL, &orders, &stop).await?;
    parts.extend(others);
    let names: Vec<_> = parts.iter().map(|part| part.name()).collect();
    let places = payments.common.places(&names);
    let command = command(&payments.common.data);
    let banner = |address: &str, _: &Flow| {
        format!(
            "Payments and orders in one process, at http://{address}\n\n\
             PAYMENTS: four services, none of which leads.\n\n{}\n\n\
             ORDERS: four services, one of which leads; the payment provider is at {provider} (/book, /faults).\n\n{}\n\n\
             {places}\nNotices:  {}/\n{command}\n\
             Ctrl-C stops. Nothing is lost, not by kill -9 either: the next start goes on.",
            payments::app::howto(address, payments.rules.approve_percent),
            orders::app::howto(address),
            orders.mailbox().display(),
        )
    };
    run("demo", &parts, &payments.common, stop, banner).await
}

/// How to call `malote` from any folder, where it was built beside this program; with an empty line before it.
fn command(data: &Path) -> String {
    let malote = std::env::current_exe().map(|here| here.with_file_name("malote"));
    let (Ok(malote), Ok(data)) = (malote, data.canonicalize()) else { return String::new() };
    if !malote.exists() {
        return String::new();
    }
    format!(
        "\nLook at it and act on it:\n\n  alias malote='MALOTE_DATA={} {}'\n  malote status\n",
        data.display(),
        malote.display()
    )
}
