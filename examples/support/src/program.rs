//! What a program does around its services: it says things, hears signals, and ends with a code.

use crate::app::{App, Fatal, Part};
use crate::config::Common;
use clap::ValueEnum;
use malote::{telemetry, topology::Flow};
use std::{
    future::Future,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Runs `work` to its end; what goes wrong is said on standard error, and told by the code: 2 for a
/// setting, 1 for anything else.
pub fn finish(name: &str, work: impl Future<Output = Result<(), Fatal>>) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: cannot start: {error}");
            return ExitCode::from(1);
        }
    };
    let code = match runtime.block_on(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            eprintln!("{name}: {fatal}");
            ExitCode::from(if matches!(fatal, Fatal::Setting(_)) { 2 } else { 1 })
        }
    };
    // a question to a broker that is not there may be under way, and nobody waits for the answer
    runtime.shutdown_timeout(Duration::from_millis(500));
    code
}

/// Opens services, says `banner` of their address and flow, and runs them until a signal or `stop`.
pub async fn run(
    name: &str,
    parts: &[Box<dyn Part>],
    config: &Common,
    stop: CancellationToken,
    banner: impl FnOnce(&str, &Flow) -> String,
) -> Result<(), Fatal> {
    let _telemetry = telemetry::init(name);
    tokio::spawn(stop_on_signals(stop.clone()));
    let Some(app) = App::open(parts, config, &stop).await? else { return Ok(()) };
    let address = app.address().map_err(|error| Fatal::Other(error.to_string()))?;
    say(&format!("{}\n", banner(&address.to_string(), app.flow())));
    app.run().await?;
    say("stopped\n");
    Ok(())
}

/// In which form a flow is printed.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Format {
    /// Lines: consumes → service → emits
    #[default]
    Text,
    /// A Mermaid flowchart
    Mermaid,
    /// A Graphviz digraph
    Dot,
    /// A document for `malote map`
    Json,
}

/// Prints a flow.
pub fn map(flow: &Flow, format: Format) -> Result<(), Fatal> {
    let json = || serde_json::to_string_pretty(flow).map_err(|error| Fatal::Other(error.to_string()));
    say(&match format {
        Format::Text => flow.text(),
        Format::Mermaid => flow.mermaid(),
        Format::Dot => flow.dot(),
        Format::Json => json()? + "\n",
    });
    Ok(())
}

/// Prints, for whoever still listens: a reader that has left is no reason to end.
pub fn say(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The flow as text, set off from what is around it.
pub fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
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
