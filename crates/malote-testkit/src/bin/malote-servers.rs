//! Runs a command with real servers beside it.
//!
//! ```text
//! malote-servers run [--without postgres|redis|kafka]… -- COMMAND…
//! ```
//!
//! One PostgreSQL, one Redis and one Kafka serve the whole command (a test run
//! of many programs), named by `MALOTE_TEST_POSTGRES`, `MALOTE_TEST_REDIS` and
//! `MALOTE_TEST_KAFKA`. They end with it; the exit code is the command's. A signal that asks this program
//! to end is passed on to the command and all that it started, and waited for.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use malote_testkit::servers::{KAFKA_ENV, Kafka, POSTGRES_ENV, Postgres, REDIS_ENV, Redis, bound};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: malote-servers run [--without postgres|redis|kafka]... -- COMMAND...";

fn main() -> ExitCode {
    let Some(order) = parse(std::env::args_os().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&order) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("malote-servers: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Order {
    without: Vec<String>,
    command: Vec<OsString>,
}

fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Order> {
    if words.next()? != "run" {
        return None;
    }
    let mut without = Vec::new();
    loop {
        match words.next()?.to_str()? {
            "--without" => without.push(words.next()?.into_string().ok()?),
            "--" => break,
            _ => return None,
        }
    }
    let command: Vec<OsString> = words.collect();
    let known = ["postgres", "redis", "kafka"];
    (!command.is_empty() && without.iter().all(|name| known.contains(&name.as_str())))
        .then_some(Order { without, command })
}

fn run(order: &Order) -> io::Result<u8> {
    let wanted = |name: &str| !order.without.iter().any(|left_out| left_out == name);
    // Side by side: Kafka takes several times as long as the others.
    let (postgres, redis, kafka) = thread::scope(|scope| {
        let postgres = scope.spawn(|| wanted("postgres").then(Postgres::start).transpose());
        let redis = scope.spawn(|| wanted("redis").then(Redis::start).transpose());
        let kafka = wanted("kafka").then(Kafka::start).transpose();
        (join(postgres), join(redis), kafka)
    });
    let (postgres, redis, kafka) = (postgres?, redis?, kafka?);

    // Empty means "there is none": the command is not to start its own.
    let mut command = Command::new(&order.command[0]);
    command
        .args(&order.command[1..])
        .env(POSTGRES_ENV, postgres.as_ref().map(|server| server.at().base()).unwrap_or_default())
        .env(REDIS_ENV, redis.as_ref().map(Redis::url).unwrap_or_default())
        .env(KAFKA_ENV, kafka.as_ref().map(Kafka::bootstrap).unwrap_or_default());
    let status = to_its_end(&command)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", order.command[0].display())))?;
    // A command ended by a signal gets the code that a shell would give it.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Runs the command in a group of its own, which gets the signals that are meant to end us.
fn to_its_end(command: &Command) -> io::Result<ExitStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let mut child = tokio::process::Command::from(bound(command)).process_group(0).spawn()?;
        let group = child.id().map(|id| format!("-{id}"));
        loop {
            let name = tokio::select! {
                status = child.wait() => return status,
                Some(()) = terminated.recv() => "TERM",
                Some(()) = interrupted.recv() => "INT",
                Some(()) = hung_up.recv() => "HUP",
            };
            if let Some(group) = &group {
                tokio::process::Command::new("sh")
                    .args(["-c", "kill -s \"$1\" -- \"$2\"", "sh", name, group])
                    .status()
                    .await?;
            }
        }
    })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that starts a server panicked")))
}
