//! Real servers, thrown away after the test.
//!
//! A claim about PostgreSQL, Redis or Kafka is only worth what the real server
//! says. So a test either starts a server of its own (which it may then
//! restart, freeze or kill), or shares one with all other tests:
//!
//! ```no_run
//! use malote_testkit::servers::{self, Postgres};
//!
//! # fn main() -> std::io::Result<()> {
//! // Its own, to be mistreated:
//! let Some(mut postgres) = Postgres::start_or_skip() else { return Ok(()) };
//! let url = postgres.create_database("ledger")?;
//! postgres.kill9()?;
//! postgres.start_again()?;
//!
//! // A shared one, with a database for this test alone:
//! let Some(url) = servers::fresh_database("ledger") else { return Ok(()) };
//! # Ok(())
//! # }
//! ```
//!
//! Shared servers are those that `MALOTE_TEST_POSTGRES`, `MALOTE_TEST_REDIS`
//! and `MALOTE_TEST_KAFKA` name (`malote-servers run` sets them); an unset
//! variable means "start one, once in this process", an empty one "there is
//! none". Where a server cannot be had the functions here return `None` after
//! they wrote `malote-skip: <test> needs <server>` for the test runner to
//! count; with `CI=true` they panic instead, so that nothing is skipped unseen.
//!
//! All servers listen on loopback, die with the process that started them
//! (even if that is killed). Their folders go with them, or, after a kill,
//! when the next run begins.

mod kafka;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod prometheus;
mod redis;
mod scratch;

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub use kafka::Kafka;
pub use pgbouncer::PgBouncer;
pub use ports::Port;
pub use postgres::{Builder as PostgresBuilder, Postgres, PostgresAt};
pub use prometheus::{Prometheus, promtool};
pub use redis::Redis;

/// Names the shared PostgreSQL: a URL without a database, such as
/// `postgres://postgres@127.0.0.1:5555`.
pub const POSTGRES_ENV: &str = "MALOTE_TEST_POSTGRES";
/// Names the shared Redis: a URL such as `redis://127.0.0.1:6399`.
pub const REDIS_ENV: &str = "MALOTE_TEST_REDIS";
/// Names the shared Kafka: its bootstrap address, such as `127.0.0.1:9092`.
pub const KAFKA_ENV: &str = "MALOTE_TEST_KAFKA";
/// Empty, there is no Prometheus; each test that needs one starts its own.
pub const PROMETHEUS_ENV: &str = "MALOTE_TEST_PROMETHEUS";
/// Set to `1`, every server counts as not to be had.
pub const QUICK_ENV: &str = "MALOTE_TEST_QUICK";

/// The shared PostgreSQL, or `None` after a `malote-skip:` line.
///
/// # Panics
/// If it is installed but does not start, or would be skipped with `CI=true`.
pub fn postgres() -> Option<PostgresAt> {
    static OWN: OnceLock<io::Result<Postgres>> = OnceLock::new();
    POSTGRES
        .shared(|| OWN.get_or_init(Postgres::start).as_ref().map(|server| server.at().base().to_owned()))
        .map(PostgresAt::new)
}

/// The URL of the shared Redis, or `None` after a `malote-skip:` line.
///
/// Other tests use it at the same time: prefix the keys, flush nothing.
///
/// # Panics
/// If it is installed but does not start, or would be skipped with `CI=true`.
pub fn redis() -> Option<String> {
    static OWN: OnceLock<io::Result<Redis>> = OnceLock::new();
    REDIS.shared(|| OWN.get_or_init(Redis::start).as_ref().map(Redis::url))
}

/// The bootstrap address of the shared Kafka, or `None` after a
/// `malote-skip:` line.
///
/// Other tests use it at the same time: name topics and groups uniquely
/// ([`unique`]).
///
/// # Panics
/// If it is installed but does not start, or would be skipped with `CI=true`.
pub fn kafka() -> Option<String> {
    static OWN: OnceLock<io::Result<Kafka>> = OnceLock::new();
    KAFKA.shared(|| OWN.get_or_init(Kafka::start).as_ref().map(|server| server.bootstrap().to_owned()))
}

/// A new, empty database in the shared PostgreSQL: its URL, or `None` after a
/// `malote-skip:` line.
///
/// # Panics
/// If the server is there but refuses to create the database.
pub fn fresh_database(prefix: &str) -> Option<String> {
    let server = postgres()?;
    let name = unique(prefix);
    Some(server.create_database(&name).unwrap_or_else(|error| panic!("create database {name}: {error}")))
}

/// The same command, for a program that must not outlive the test: the kernel kills it when the thread
/// that started it ends, however that comes about. It keeps its process id, arguments and environment;
/// standard input and output are to be set on what is returned.
pub fn bound(command: &std::process::Command) -> std::process::Command {
    process::bound_to_us(command, None)
}

/// `prefix` with an ending that no other call, process or earlier run used:
/// for databases, topics and groups in a shared server.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}_{:x}_{next}_{:08x}", std::process::id(), fastrand::u32(..))
}

const POSTGRES: Kind = Kind { name: "PostgreSQL", variable: POSTGRES_ENV };
const REDIS: Kind = Kind { name: "Redis", variable: REDIS_ENV };
const PROMETHEUS: Kind = Kind { name: "Prometheus", variable: PROMETHEUS_ENV };
const KAFKA: Kind = Kind { name: "Kafka", variable: KAFKA_ENV };

/// What a test may need, and go without.
struct Kind {
    name: &'static str,
    variable: &'static str,
}

impl Kind {
    /// The address of the shared server: by environment, or else that of the
    /// one this process starts on first use.
    ///
    /// The latter sits in a static, which is never dropped: it dies with the
    /// process, and the next run sweeps its folder away.
    fn shared<'a>(&self, own: impl FnOnce() -> Result<String, &'a io::Error>) -> Option<String> {
        self.unless_left_out(|| match std::env::var(self.variable) {
            Ok(address) => Some(address.trim_end_matches('/').to_owned()),
            Err(_) => own().map_or_else(|error| self.missing(error), Some),
        })
    }

    /// A server for the running test alone.
    fn own<S>(&self, start: impl FnOnce() -> io::Result<S>) -> Option<S> {
        self.unless_left_out(|| start().map_or_else(|error| self.missing(&error), Some))
    }

    fn unless_left_out<S>(&self, find: impl FnOnce() -> Option<S>) -> Option<S> {
        if is_set(QUICK_ENV, "1") {
            self.skip("this is a quick run")
        } else if is_set(self.variable, "") {
            self.skip("it was left out of this run")
        } else {
            find()
        }
    }

    /// Only what is not installed may be gone without; a server that does not
    /// start is a failure like any other.
    fn missing<S>(&self, error: &io::Error) -> Option<S> {
        assert!(error.kind() == io::ErrorKind::NotFound, "{} does not start: {error}", self.name);
        self.skip(&error.to_string())
    }

    /// Says that the running test goes without a server it needs.
    ///
    /// Written past the capture of test output, which swallows what a passing
    /// test prints.
    fn skip<S>(&self, why: &str) -> Option<S> {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        assert!(!is_set("CI", "true"), "{test} needs {} ({why}), and CI must not skip", self.name);
        let line = format!("malote-skip: {test} needs {} ({why})\n", self.name);
        // In one write, whole beside the lines of other tests; a runner that
        // closed its standard error loses it, no more.
        let _ = io::stderr().write_all(line.as_bytes());
        None
    }
}

fn is_set(variable: &str, value: &str) -> bool {
    std::env::var(variable).is_ok_and(|found| found == value)
}
