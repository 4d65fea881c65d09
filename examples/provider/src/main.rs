//! The program: the provider, on a file and an address.

use clap::Parser;
use provider::{Book, Provider, router, serve};
use std::{io, path::PathBuf, process::ExitCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// An outside payment provider, with faults that can be set while it runs.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Where it serves HTTP
    #[arg(long, env = "PROVIDER_HTTP", default_value = "127.0.0.1:8090")]
    http: String,
    /// Its book, a SQLite file
    #[arg(long, env = "PROVIDER_BOOK", default_value = "./data/provider.db")]
    book: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("provider: {error}");
            ExitCode::from(1)
        }
    }
}

async fn run(cli: Cli) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = cli.book.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let book = Book::open(&cli.book).await?;
    let listener = TcpListener::bind(&cli.http).await?;
    println!("the provider is at http://{} (/book, /faults)", listener.local_addr()?);
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signals(stop.clone()));
    serve(listener, router(Provider::new(book.clone())), stop).await?;
    book.close().await;
    Ok(())
}

async fn stop_on_signals(stop: CancellationToken) {
    let signal = async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => pressed,
            _ = terminate.recv() => io::Result::Ok(()),
        }
    };
    match signal.await {
        Ok(()) => stop.cancel(),
        Err(error) => eprintln!("provider: signals cannot be received: {error}"),
    }
}
