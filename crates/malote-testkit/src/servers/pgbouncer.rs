//! A connection pooler in front of a throw-away PostgreSQL.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::process::Command;

use super::ports::Port;
use super::postgres::{Postgres, service_user};
use super::process::{self, Process, Signal};
use super::scratch::Scratch;

/// A `PgBouncer` that pools by transaction: what a session sets, prepares or
/// listens to does not last beyond it, which is how many production databases
/// are reached.
#[derive(Debug)]
pub struct PgBouncer {
    process: Option<Process>,
    port: Port,
    _scratch: Scratch,
}

impl PgBouncer {
    /// Starts one in front of `postgres` and waits until a query passes.
    ///
    /// # Errors
    /// When it is not installed or does not start; the message holds the end of
    /// its log.
    pub fn before(postgres: &Postgres) -> io::Result<Self> {
        let port = Port::claim()?;
        let scratch = Scratch::new("pgbouncer")?;
        let user = service_user()?;
        let config = scratch.path().join("pgbouncer.ini");
        fs::write(&config, settings(port.number(), postgres.port()))?;
        if let Some(user) = user {
            chown(&config, Some(user.id), Some(user.group))?;
        }
        let mut command = Command::new(process::find("pgbouncer")?);
        command.arg("-q").arg(&config).current_dir(scratch.path());
        let mut process = Process::start("PgBouncer", &command, user, scratch.path().join("log"))?;
        let at = super::PostgresAt::new(base(&port));
        process.wait_ready(|| at.psql("postgres", "SELECT 1").is_ok())?;
        Ok(Self { process: Some(process), port, _scratch: scratch })
    }

    /// The URL of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("{}/{database}", base(&self.port))
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // Nothing can be done about an error here.
        let _ = self.process.take().map(|process| process.end(Signal::Terminate));
    }
}

fn base(port: &Port) -> String {
    format!("postgres://postgres@127.0.0.1:{}", port.number())
}

fn settings(port: u16, server: u16) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         max_client_conn = 300\n\
         default_pool_size = 20\n\
         ignore_startup_parameters = extra_float_digits,options\n"
    )
}
