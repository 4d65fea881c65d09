//! The program itself, in a process that can be killed.

use super::{client::Client, until};
use malote_testkit::servers;
use std::{
    path::Path,
    process::{ExitStatus, Stdio},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
};

/// A running `payments …`.
pub struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
    pub banner: String,
    pub client: Client,
}

/// The program with these arguments and settings, not started yet; it dies with the test. What the
/// surroundings set does not count.
pub fn command(arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_payments"));
    command.args(arguments).env("RUST_LOG", "warn");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MALOTE_") || name.starts_with("OTEL_")) {
        if name != "MALOTE_PLANTED" {
            command.env_remove(name);
        }
    }
    command.envs(settings.iter().copied());
    let mut command = Command::from(servers::bound(&command));
    command.kill_on_drop(true).stdin(Stdio::null());
    command
}

impl Program {
    /// Starts all four services on a folder, and waits until they are ready.
    pub async fn start(folder: &Path, settings: &[(&str, &str)]) -> Self {
        let program = Self::start_one("all", folder, settings).await;
        program.client.ready().await;
        program
    }

    /// Starts one service, or `all`, on a folder, and waits until it serves HTTP.
    pub async fn start_one(service: &str, folder: &Path, settings: &[(&str, &str)]) -> Self {
        let data = folder.to_str().expect("a plain path");
        let settings = [&[("MALOTE_DATA", data), ("MALOTE_HTTP", "127.0.0.1:0")], settings].concat();
        let mut child = command(&[service], &settings).stdout(Stdio::piped()).spawn().expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("is piped"));
        let (mut banner, mut line) = (String::new(), String::new());
        while !line.starts_with("Notices:") {
            line.clear();
            assert_ne!(out.read_line(&mut line).await.expect("readable"), 0, "it ended after: {banner}");
            banner.push_str(&line);
        }
        let address = banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let client = Client::new(address.expect("the banner names the address"));
        Self { child, out, banner, client }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("is running")
    }

    /// Kills it, as a power cut would.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("dies");
    }

    /// Sends it a signal by name, and waits for its end: how it ended, and what it printed at last.
    pub async fn signal(mut self, name: &str) -> (ExitStatus, String) {
        let pid = self.pid().to_string();
        let sent = Command::new("sh").args(["-c", "kill -s \"$@\"", "sh", name, &pid]).status().await;
        assert!(sent.expect("a shell").success());
        let ended = until("the program stops", || {
            let ended = self.child.try_wait().expect("can be waited for");
            std::future::ready(ended)
        });
        let ended = ended.await;
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).await.expect("readable");
        (ended, rest)
    }
}
