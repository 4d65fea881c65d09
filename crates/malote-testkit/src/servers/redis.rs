//! A throw-away Redis.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::REDIS;
use super::ports::Port;
use super::process::{self, Process, Signal};
use super::scratch::Scratch;

/// A Redis server that logs every write before it answers, so that what it
/// acknowledged survives [`kill9`](Self::kill9).
#[derive(Debug)]
pub struct Redis {
    process: Option<Process>,
    port: Port,
    scratch: Scratch,
}

impl Redis {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When Redis is not installed or does not start; the message holds the end
    /// of its log.
    pub fn start() -> io::Result<Self> {
        let mut server = Self { process: None, port: Port::claim()?, scratch: Scratch::new("redis")? };
        server.start_again()?;
        Ok(server)
    }

    /// As [`start`](Self::start), or `None` after a `malote-skip:` line where it
    /// is not installed or was left out of this run.
    ///
    /// # Panics
    /// If it is installed but does not start, or would be skipped with `CI=true`.
    pub fn start_or_skip() -> Option<Self> {
        REDIS.own(Self::start)
    }

    /// The URL, such as `redis://127.0.0.1:6399`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Removes all keys.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn flush(&self) -> io::Result<()> {
        match self.ask("FLUSHALL")?.as_str() {
            "+OK" => Ok(()),
            other => Err(io::Error::other(format!("Redis answered {other}"))),
        }
    }

    /// Kills the server.
    ///
    /// # Errors
    /// When the process will not die.
    pub fn kill9(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), Process::kill9)
    }

    /// Freezes the server: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn sigstop(&self) -> io::Result<()> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(Signal::Stop))
    }

    /// Wakes it from [`sigstop`](Self::sigstop).
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn sigcont(&self) -> io::Result<()> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(Signal::Continue))
    }

    /// Starts on the same data and port after [`kill9`](Self::kill9) or
    /// [`stop`](Self::stop); does nothing while it runs.
    ///
    /// # Errors
    /// When it does not start; the message holds the end of its log.
    pub fn start_again(&mut self) -> io::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let mut redis = Command::new(process::find("redis-server")?);
        redis.args(["--bind", "127.0.0.1", "--port", &self.port().to_string()]);
        redis.args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
        redis.arg("--dir").arg(self.scratch.path());
        let log = self.scratch.path().join("log");
        let mut process = Process::start("Redis", &redis, None, log)?;
        process.wait_ready(|| self.ask("PING").is_ok_and(|answer| answer == "+PONG"))?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops it in order; the data stays until the drop.
    ///
    /// # Errors
    /// When it had to be killed.
    pub fn stop(&mut self) -> io::Result<()> {
        self.sigcont()?;
        self.process.take().map_or(Ok(()), |process| process.end(Signal::Terminate))
    }

    /// Sends a command without arguments, returns the first line of the answer.
    fn ask(&self, command: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut answer = [0; 128];
        let length = stream.read(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer[..length]);
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Nothing can be done about an error here, and the data is to go anyway.
        let _ = self.kill9();
    }
}
