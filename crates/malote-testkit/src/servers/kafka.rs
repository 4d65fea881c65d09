//! A throw-away Apache Kafka.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::KAFKA;
use super::ports::Port;
use super::process::{self, Process, Signal};
use super::scratch::Scratch;

/// Names the folder of Kafka's jars; unset, `dev/kafka/target/libs` of the
/// repository, where `scripts/install` puts them.
const LIBS_ENV: &str = "MALOTE_KAFKA_LIBS";
/// Sixteen bytes in the form that Kafka prints ids in.
const CLUSTER_ID: &str = "bWFsb3RlLXRlc3Qtbm9kZQ";

/// A single Kafka node (KRaft, broker and controller in one process).
///
/// Topics are not created by themselves.
#[derive(Debug)]
pub struct Kafka {
    process: Option<Process>,
    bootstrap: String,
    port: Port,
    // Kept for as long as the node may come back to it.
    _controller: Port,
    libs: PathBuf,
    scratch: Scratch,
}

impl Kafka {
    /// Starts a node and waits until it answers clients.
    ///
    /// # Errors
    /// When the jars or Java are missing, or Kafka does not start; the message
    /// holds the end of its log.
    pub fn start() -> io::Result<Self> {
        let libs = libs()?;
        let (port, controller) = (Port::claim()?, Port::claim()?);
        let scratch = Scratch::new("kafka")?;
        let data = scratch.path().join("data");
        let properties = include_str!("kafka.properties")
            .replace("{port}", &port.number().to_string())
            .replace("{controller}", &controller.number().to_string())
            .replace("{data}", &data.to_string_lossy());
        fs::write(scratch.path().join("server.properties"), properties)?;

        let mut format = java(&libs, scratch.path())?;
        format.args(["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", "server.properties"]);
        process::run("format Kafka's storage", &format, None)?;

        let bootstrap = format!("127.0.0.1:{}", port.number());
        let mut server = Self { process: None, bootstrap, port, _controller: controller, libs, scratch };
        server.start_again()?;
        Ok(server)
    }

    /// As [`start`](Self::start), or `None` after a `malote-skip:` line where it
    /// is not installed or was left out of this run.
    ///
    /// # Panics
    /// If it is installed but does not start, or would be skipped with `CI=true`.
    pub fn start_or_skip() -> Option<Self> {
        KAFKA.own(Self::start)
    }

    /// Where clients begin, such as `127.0.0.1:9092`.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Stops it in order and starts again on the same data.
    ///
    /// # Errors
    /// When it does not end or does not come back.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// Kills the node, as a power cut would.
    ///
    /// # Errors
    /// When the process will not die.
    pub fn kill9(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), Process::kill9)
    }

    /// Freezes the node: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn sigstop(&self) -> io::Result<()> {
        self.signal(Signal::Stop)
    }

    /// Wakes it from [`sigstop`](Self::sigstop).
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn sigcont(&self) -> io::Result<()> {
        self.signal(Signal::Continue)
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
        let mut kafka = java(&self.libs, self.scratch.path())?;
        kafka.args(["kafka.Kafka", "server.properties"]);
        let log = self.scratch.path().join("log");
        let mut process = Process::start("Kafka", &kafka, None, log)?;
        process.wait_ready(|| answers(self.port()).unwrap_or(false))?;
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

    fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Nothing can be done about an error here, and the data is to go anyway.
        let _ = self.kill9();
    }
}

fn libs() -> io::Result<PathBuf> {
    let libs = std::env::var_os(LIBS_ENV)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/kafka/target/libs"), PathBuf::from);
    libs.canonicalize().map_err(|_| {
        io::Error::new(ErrorKind::NotFound, format!("no Kafka jars in {} (run scripts/install)", libs.display()))
    })
}

/// Java with a small heap that starts quickly and runs in `folder`.
fn java(libs: &Path, folder: &Path) -> io::Result<Command> {
    let mut java = Command::new(process::find("java")?);
    java.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    java.arg("-cp").arg(libs.join("*")).current_dir(folder);
    Ok(java)
}

/// Whether the broker answers `ApiVersions`, the first question of every
/// client. It opens its port before it has joined the cluster and answers only
/// after.
fn answers(port: u16) -> io::Result<bool> {
    // Length; key 18, version 0; a correlation id to recognise; no client id.
    const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 42, 0xff, 0xff];
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(&REQUEST)?;
    // Length; the same correlation id; an error code, 0 for none.
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    Ok(answer[4..] == [0, 0, 0, 42, 0, 0])
}
