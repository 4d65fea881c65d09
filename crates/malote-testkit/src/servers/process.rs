//! A server's process: started so that it cannot outlive us, signalled by pid,
//! waited for by condition.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to start or to stop: far more than it does, for
/// a machine with much else to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);

/// A signal that a server understands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Signal {
    Interrupt,
    Quit,
    Terminate,
    Stop,
    Continue,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "INT",
            Self::Quit => "QUIT",
            Self::Terminate => "TERM",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

/// Whom a server runs as where not as ourselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) id: u32,
    pub(super) group: u32,
}

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output appended to `log`, as `user` where one
    /// is given.
    pub(super) fn start(name: &'static str, command: &Command, user: Option<User>, log: PathBuf) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(&log)?;
        let mut bound = bound_to_us(command, user);
        // Its own group, so that Ctrl-C at the terminal reaches the tests only.
        bound.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = spawn(bound).map_err(|error| io::Error::new(error.kind(), format!("start {name}: {error}")))?;
        Ok(Self { name, child, log })
    }

    /// Waits until `ready` says so, or fails with the log's end if the process
    /// died or took too long.
    pub(super) fn wait_ready(&mut self, mut ready: impl FnMut() -> bool) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                return Err(self.failure(&format!("ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(self.failure("is not ready"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        send(signal.name(), &[self.child.id()])
    }

    /// Asks it to end, waits, and kills it if it does not.
    pub(super) fn end(mut self, signal: Signal) -> io::Result<()> {
        self.signal(signal)?;
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                let name = self.name;
                self.kill9()?;
                return Err(io::Error::new(ErrorKind::TimedOut, format!("{name} had to be killed")));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Kills it and its children in one stroke, as a power cut would: children
    /// left alone would finish what they were doing.
    pub(super) fn kill9(mut self) -> io::Result<()> {
        let mut family = children(self.child.id());
        family.insert(0, self.child.id());
        send("KILL", &family)?;
        self.child.wait()?;
        let deadline = Instant::now() + PATIENCE;
        while family[1..].iter().any(|pid| is_alive(*pid)) {
            if Instant::now() > deadline {
                return Err(io::Error::new(ErrorKind::TimedOut, format!("a child of {} will not die", self.name)));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn failure(&self, what: &str) -> io::Error {
        io::Error::other(format!("{} {what}; its log ends with:\n{}", self.name, tail(&self.log)))
    }
}

/// Runs a helper program to its end (`initdb`, `psql`): its output, or what it
/// complained about.
pub(super) fn run(name: &str, command: &Command, user: Option<User>) -> io::Result<String> {
    let mut bound = bound_to_us(command, user);
    bound.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn(bound)
        .and_then(Child::wait_with_output)
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    Err(io::Error::other(format!("{name} ended with {}: {}", output.status, said.trim())))
}

/// Where a program is, in the folders of `PATH` or those of the system.
pub(super) fn find(program: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            io::Error::new(ErrorKind::NotFound, format!("no {program} on this machine (run scripts/install)"))
        })
}

/// The same command under `setpriv`, which asks the kernel to kill it when its
/// parent dies, and changes user where asked to.
pub(super) fn bound_to_us(command: &Command, user: Option<User>) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL"]);
    if let Some(user) = user {
        bound.args(["--reuid", &user.id.to_string(), "--regid", &user.group.to_string(), "--clear-groups"]);
    }
    bound.arg("--").arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(key, value),
            None => bound.env_remove(key),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

/// Starts a command from a thread that lives as long as this process.
///
/// To the kernel the parent is the *thread* that started a child, and a test's
/// thread ends with the test: a shared server must not end with it.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static ORDERS: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, incoming) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in incoming {
                // Who no longer waits for the answer needs no child either.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, started) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts servers is gone");
    let sent = orders.lock().map_err(|_| gone())?.send((command, answer));
    sent.map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

/// Sends a signal by the shell's own `kill`: the system call needs `unsafe`.
fn send(signal: &str, pids: &[u32]) -> io::Result<()> {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // A child that ended meanwhile makes `kill` complain; whether the server
    // itself ended is what its caller looks at next.
    Command::new("sh").args(["-c", "kill -s \"$@\"", "sh", signal]).args(pids).stderr(Stdio::null()).status().map(drop)
}

/// The direct children of a process.
fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|(_, its_parent)| its_parent == parent))
        .collect()
}

fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// State and parent of a process. The name before them may hold anything, so
/// they are read from behind its closing parenthesis.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
