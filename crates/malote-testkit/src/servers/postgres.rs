//! A throw-away PostgreSQL.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::POSTGRES;
use super::ports::Port;
use super::process::{self, Process, Signal, User};
use super::scratch::{self, Scratch};

/// Where a PostgreSQL server listens, and how to make databases there.
#[derive(Clone, Debug)]
pub struct PostgresAt {
    base: String,
}

impl PostgresAt {
    pub(super) fn new(base: String) -> Self {
        Self { base }
    }

    /// The URL without a database, such as `postgres://postgres@127.0.0.1:5555`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The URL of a database; creates nothing.
    pub fn url(&self, database: &str) -> String {
        format!("{}/{database}", self.base)
    }

    /// Creates a database and returns its URL.
    ///
    /// # Errors
    /// What `psql` says: no connection, or the name is taken.
    pub fn create_database(&self, name: &str) -> io::Result<String> {
        self.psql("postgres", &format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\"")))?;
        Ok(self.url(name))
    }

    /// Runs SQL by `psql` and returns its bare output: one row a line, columns
    /// apart by `|`. For a test's preparation and last look, not for speed.
    ///
    /// # Errors
    /// What `psql` says.
    pub fn psql(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut psql = Command::new(binaries()?.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, &self.url(database)]);
        process::run("psql", &psql, None).map(|output| output.trim_end().to_owned())
    }
}

/// How to start a [`Postgres`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    fsync: bool,
    settings: Vec<(String, String)>,
}

impl Builder {
    /// Whether commits reach the disk before they are acknowledged. Off unless
    /// asked for: it guards against a machine that loses power, which no test
    /// here brings about, and costs most of a commit's time.
    #[must_use]
    pub fn fsync(mut self, on: bool) -> Self {
        self.fsync = on;
        self
    }

    /// A line for `postgresql.conf`; a later one wins.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server and waits until it takes connections.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start; the message holds
    /// the end of its log.
    pub fn start(self) -> io::Result<Postgres> {
        self.start_on(|data| {
            let mut initdb = Command::new(binaries()?.join("initdb"));
            initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]);
            initdb.arg("--pgdata").arg(data);
            Ok(initdb)
        })
    }

    /// Starts a streaming copy of a server, which takes no writes until it is promoted (`SELECT pg_promote()`).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn standby_of(self, primary: &Postgres) -> io::Result<Postgres> {
        self.start_on(|data| {
            let mut copy = Command::new(binaries()?.join("pg_basebackup"));
            copy.args([
                "--dbname",
                &primary.url("postgres"),
                "--checkpoint=fast",
                "--no-sync",
                "--write-recovery-conf",
            ]);
            copy.arg("--pgdata").arg(data);
            Ok(copy)
        })
    }

    /// Starts a server on the data that a program has made in a folder.
    fn start_on(self, make: impl FnOnce(&Path) -> io::Result<Command>) -> io::Result<Postgres> {
        let port = Port::claim()?;
        let scratch = Scratch::new("postgres")?;
        let user = service_user()?;
        let data = scratch.path().join("data");
        fs::create_dir(&data)?;
        fs::set_permissions(&data, Permissions::from_mode(0o700))?;
        if let Some(user) = user {
            chown(&data, Some(user.id), Some(user.group))?;
        }
        let mut make = make(&data)?;
        process::run("the making of the data", make.current_dir(scratch.path()), user)?;
        let at = PostgresAt::new(format!("postgres://postgres@127.0.0.1:{}", port.number()));
        let mut server = Postgres { process: None, at, port, user, options: self, scratch };
        server.start_again()?;
        Ok(server)
    }

    /// As [`start`](Self::start), or `None` after a `malote-skip:` line where it
    /// is not installed or was left out of this run.
    ///
    /// # Panics
    /// If it is installed but does not start, or would be skipped with `CI=true`.
    pub fn start_or_skip(self) -> Option<Postgres> {
        POSTGRES.own(|| self.start())
    }
}

/// A PostgreSQL server of the newest version that is installed, with room for
/// 300 connections and ten prepared transactions, open to everyone on
/// 127.0.0.1. Its superuser is `postgres`.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    at: PostgresAt,
    port: Port,
    user: Option<User>,
    options: Builder,
    scratch: Scratch,
}

impl Postgres {
    /// Starts a server with the settings of [`Postgres::builder`].
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// As [`start`](Self::start), or `None` after a `malote-skip:` line where it
    /// is not installed or was left out of this run.
    ///
    /// # Panics
    /// If it is installed but does not start, or would be skipped with `CI=true`.
    pub fn start_or_skip() -> Option<Self> {
        POSTGRES.own(Self::start)
    }

    /// Settings before the start.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where it listens; stays true after the server's end.
    pub fn at(&self) -> &PostgresAt {
        &self.at
    }

    /// The URL of a database; creates nothing.
    pub fn url(&self, database: &str) -> String {
        self.at.url(database)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Creates a database and returns its URL.
    ///
    /// # Errors
    /// See [`PostgresAt::create_database`].
    pub fn create_database(&self, name: &str) -> io::Result<String> {
        self.at.create_database(name)
    }

    /// Runs SQL by `psql`; see [`PostgresAt::psql`].
    ///
    /// # Errors
    /// What `psql` says.
    pub fn psql(&self, database: &str, sql: &str) -> io::Result<String> {
        self.at.psql(database, sql)
    }

    /// Ends all sessions and starts again on the same data: with a checkpoint,
    /// or, `immediate`, by recovery from the log.
    ///
    /// # Errors
    /// When it does not end or does not come back.
    pub fn restart(&mut self, immediate: bool) -> io::Result<()> {
        self.end(if immediate { Signal::Quit } else { Signal::Interrupt })?;
        self.start_again()
    }

    /// Kills the server and all its sessions, as a power cut would.
    ///
    /// # Errors
    /// When a process will not die.
    pub fn kill9(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), Process::kill9)
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
        let binaries = binaries()?;
        let port = self.port.number().to_string();
        let mut isready = Command::new(binaries.join("pg_isready"));
        isready.args(["-q", "-h", "127.0.0.1", "-p", &port, "-d", "postgres", "-U", "postgres"]);
        let log = self.scratch.path().join("log");
        let mut process = Process::start("PostgreSQL", &self.command(&binaries), self.user, log)?;
        process.wait_ready(|| isready.status().is_ok_and(|status| status.success()))?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops it after its sessions were ended; the data stays until the drop.
    ///
    /// # Errors
    /// When it had to be killed.
    pub fn stop(&mut self) -> io::Result<()> {
        self.end(Signal::Interrupt)
    }

    fn end(&mut self, signal: Signal) -> io::Result<()> {
        self.process.take().map_or(Ok(()), |process| process.end(signal))
    }

    fn command(&self, binaries: &Path) -> Command {
        let mut postgres = Command::new(binaries.join("postgres"));
        postgres.arg("-D").arg(self.scratch.path().join("data")).current_dir(self.scratch.path());
        let on_off = |on| if on { "on" } else { "off" };
        let mut set = |name: &str, value: &str| {
            postgres.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "127.0.0.1");
        set("port", &self.port.number().to_string());
        set("unix_socket_directories", "");
        set("fsync", on_off(self.options.fsync));
        set("full_page_writes", on_off(self.options.fsync));
        set("max_connections", "300");
        set("max_prepared_transactions", "10");
        for (name, value) in &self.options.settings {
            set(name, value);
        }
        postgres
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Nothing can be done about an error here, and the data is to go anyway.
        let _ = self.end(Signal::Quit);
    }
}

/// PostgreSQL refuses to run as root: then it runs as the user that its package
/// made, or as nobody.
pub(super) fn service_user() -> io::Result<Option<User>> {
    if !scratch::is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let line = passwd.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1);
        Some(User { id: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    };
    match find("postgres").or_else(|| find("nobody")) {
        Some(user) => Ok(Some(user)),
        None => Err(io::Error::new(ErrorKind::NotFound, "PostgreSQL needs a user that is not root")),
    }
}

/// The programs of the newest PostgreSQL: Debian keeps them off the path, one
/// folder a version.
fn binaries() -> io::Result<PathBuf> {
    let version = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|folder| folder.join("bin/postgres").metadata().is_ok_and(|file| file.size() > 0))
        .max_by_key(version)
        .map(|folder| folder.join("bin"))
        .ok_or_else(|| {
            io::Error::new(ErrorKind::NotFound, "no PostgreSQL in /usr/lib/postgresql (run scripts/install)")
        })
}
