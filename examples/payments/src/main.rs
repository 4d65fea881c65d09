//! The program: all four services in one process, or one of them.

use clap::{Parser, Subcommand, ValueEnum};
use malote::{telemetry, topology::Flow};
use payments::{
    app::{self, App, Fatal, Name},
    config::{self, Carrier, Config, Notices, Stores},
};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// A payment across four services, by choreography.
#[derive(Parser)]
#[command(version, after_help = config::HELP)]
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

#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    #[default]
    Text,
    Mermaid,
    Dot,
    Json,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("payments: cannot start: {error}");
            return ExitCode::from(1);
        }
    };
    let code = runtime.block_on(done(cli.command));
    // a question to a broker that is not there may be under way, and nobody waits for the answer
    runtime.shutdown_timeout(Duration::from_millis(500));
    code
}

async fn done(command: Command) -> ExitCode {
    let result = match command {
        Command::All => run(&Name::ALL).await,
        Command::Payment => run(&[Name::Payment]).await,
        Command::Fraud => run(&[Name::Fraud]).await,
        Command::Ledger => run(&[Name::Ledger]).await,
        Command::Notification => run(&[Name::Notification]).await,
        Command::Map { format } => app::flow().await.and_then(|flow| map(&flow, format)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            eprintln!("payments: {fatal}");
            ExitCode::from(if matches!(fatal, Fatal::Setting(_)) { 2 } else { 1 })
        }
    }
}

async fn run(services: &[Name]) -> Result<(), Fatal> {
    let config = Config::from_env()?;
    let name = if let [one] = services { one.as_str() } else { "payments" };
    let _telemetry = telemetry::init(name);
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signals(stop.clone()));
    let Some(app) = App::open(services, &config, &stop).await? else { return Ok(()) };
    let address = app.address().map_err(|error| Fatal::Other(error.to_string()))?;
    say(&format!("{}\n", banner(services, &config, &address.to_string(), app.flow())));
    app.run().await?;
    say("stopped\n");
    Ok(())
}

/// Prints, for whoever still listens: a reader that has left is no reason to end.
fn say(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn map(flow: &Flow, format: Format) -> Result<(), Fatal> {
    let json = || serde_json::to_string_pretty(flow).map_err(|error| Fatal::Other(error.to_string()));
    say(&match format {
        Format::Text => flow.text(),
        Format::Mermaid => flow.mermaid(),
        Format::Dot => flow.dot(),
        Format::Json => json()? + "\n",
    });
    Ok(())
}

/// The first signal stops in good order, a second one at once.
async fn stop_on_signals(stop: CancellationToken) {
    if let Err(error) = signal().await {
        // without signals only a kill stops the program, and that loses nothing either
        tracing::warn!("signals cannot be received: {error}");
        return;
    }
    stop.cancel();
    if signal().await.is_ok() {
        std::process::exit(130);
    }
}

async fn signal() -> io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed,
        _ = terminate.recv() => Ok(()),
    }
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
    let [first, second] = curls(address);
    format!(
        "Four services in one process, at http://{address}\n\n\
         A payment that fraud approves about {percent} % of the time:\n\n{first}\n\n\
         One that carol cannot pay: approved or not, it comes to nothing:\n\n{second}\n\n\
         The same key again gets the same answer; change it for another payment.\n\n\
         How it ended, with the id from the answer:\n\n  curl http://{address}/payment/ID\n\n\
         The flow, as the handlers declare it (consumes → service → emits):\n\n{flow}\n{places}\n\n\
         Ctrl-C stops. Nothing is lost, not by kill -9 either: the next start goes on.",
        percent = config.rules.approve_percent,
    )
}

fn curls(address: &str) -> [String; 2] {
    let first = format!(
        "  curl -X POST http://{address}/payment \\\n    -H 'Content-Type: application/json' \\\n    \
         -H 'x-idempotency-key: 11111111-1111-1111-1111-111111111111' \\\n    \
         -d '{{\"amount\": 1500, \"from\": \"alice\", \"to\": \"bob\"}}'"
    );
    let second = format!(
        "  curl -X POST http://{address}/payment \\\n    \
         -H 'x-idempotency-key: 33333333-3333-3333-3333-333333333333' \\\n    \
         -d '{{\"amount\": 999999999, \"from\": \"carol\", \"to\": \"bob\"}}'"
    );
    [first, second]
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Where things are; of what may hold a secret, only its kind.
fn places(services: &[Name], config: &Config) -> String {
    let data = match &config.store {
        Stores::Postgres(_) => "PostgreSQL (MALOTE_STORE)".into(),
        files => services.iter().map(|name| files.place(name.as_str())).collect::<Vec<_>>().join(", "),
    };
    let log = match &config.transport {
        Carrier::Embedded { path, .. } => path.display().to_string(),
        Carrier::Kafka { .. } => "Kafka (MALOTE_TRANSPORT)".into(),
    };
    let notices = match &config.notices {
        Notices::Mailbox(folder) => format!("{}/", folder.display()),
        Notices::Smtp { host, port, .. } => format!("mail by {host}:{port}"),
        Notices::Webhook(_) => "a webhook (MALOTE_WEBHOOK)".into(),
    };
    format!("Data:     {data}\nEvents:   {log}\nNotices:  {notices}")
}
