//! A throw-away Prometheus, with its own check of rules.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::PROMETHEUS;
use super::ports::Port;
use super::process::{self, Process, Signal};
use super::scratch::Scratch;

/// A Prometheus that scrapes what its configuration says, and keeps it until the drop.
#[derive(Debug)]
pub struct Prometheus {
    process: Option<Process>,
    port: Port,
    _scratch: Scratch,
}

impl Prometheus {
    /// Starts one with a configuration, whose `rule_files` lie in `rules`, and waits until it answers.
    ///
    /// # Errors
    /// When Prometheus is not installed or does not start; the message holds the end of its log.
    pub fn start(configuration: &str, rules: &Path) -> io::Result<Self> {
        let (port, scratch) = (Port::claim()?, Scratch::new("prometheus")?);
        for file in fs::read_dir(rules)? {
            let file = file?;
            fs::copy(file.path(), scratch.path().join(file.file_name()))?;
        }
        let config = scratch.path().join("prometheus.yml");
        fs::write(&config, configuration)?;
        let mut command = Command::new(process::find("prometheus")?);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", scratch.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{}", port.number()));
        let mut process = Process::start("Prometheus", &command, None, scratch.path().join("log"))?;
        process.wait_ready(|| is_ready(port.number()))?;
        Ok(Self { process: Some(process), port, _scratch: scratch })
    }

    /// As [`start`](Self::start), or `None` after a `malote-skip:` line where it is not installed or was
    /// left out of this run.
    ///
    /// # Panics
    /// If it is installed but does not start, or would be skipped with `CI=true`.
    pub fn start_or_skip(configuration: &str, rules: &Path) -> Option<Self> {
        PROMETHEUS.own(|| Self::start(configuration, rules))
    }

    /// Such as `http://127.0.0.1:20090`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Nothing can be done about an error here.
        let _ = self.process.take().map(|process| process.end(Signal::Terminate));
    }
}

/// Runs `promtool` in a folder: what it printed, or `None` after a `malote-skip:` line.
///
/// # Panics
/// If it finds fault, or would be skipped with `CI=true`.
pub fn promtool(folder: &Path, arguments: &[&str]) -> Option<String> {
    PROMETHEUS.own(|| {
        let mut command = Command::new(process::find("promtool")?);
        command.args(arguments).current_dir(folder);
        process::run("promtool", &command, None)
    })
}

fn is_ready(port: u16) -> bool {
    let answer = || -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /-/ready HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    answer().is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}
