//! Programs under test, each in a process of its own, that are killed as by `kill -9` and started again.

use crate::servers::{Port, bound};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// How long a program may take to be ready: far more than it does.
const PATIENCE: Duration = Duration::from_secs(120);

type Start = Box<dyn Fn(&str) -> Command + Send + Sync>;

/// The programs; they die with it.
pub struct Fleet {
    logs: PathBuf,
    members: Vec<Member>,
}

struct Member {
    name: String,
    ready: &'static str,
    port: Port,
    start: Start,
    child: Child,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fleet {
    /// Of none yet; what they write to standard error goes to files in the folder `logs`.
    pub fn new(logs: &Path) -> Self {
        Self { logs: logs.to_owned(), members: Vec::new() }
    }

    /// Starts a program, by the command that `start` makes for an address (`127.0.0.1:20001`), always the same. It
    /// is ready once it answers 200 to a GET of the path `ready`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        ready: &'static str,
        start: impl Fn(&str) -> Command + Send + Sync + 'static,
    ) {
        let (name, port, start) = (name.into(), Port::claim().expect("a port"), Box::new(start) as Start);
        let child = spawn(&self.logs, &name, &start(&address(&port)));
        self.members.push(Member { name, ready, port, start, child });
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// A program's name.
    pub fn name(&self, at: usize) -> &str {
        &self.members[at].name
    }

    /// Where a program serves HTTP: `http://127.0.0.1:20001`.
    pub fn base(&self, at: usize) -> String {
        format!("http://{}", address(&self.members[at].port))
    }

    /// Kills a program as `kill -9` does.
    ///
    /// # Panics
    /// When it has ended by itself.
    pub fn kill9(&mut self, at: usize) {
        let ended = self.members[at].child.try_wait().expect("it is ours");
        assert!(ended.is_none(), "{} has ended by itself\n{}", self.name(at), self.logs());
        self.members[at].child.kill().expect("it runs");
        self.members[at].child.wait().expect("it is ours");
    }

    /// Starts a program again.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self, at: usize) {
        let Member { name, port, start, .. } = &self.members[at];
        let child = spawn(&self.logs, name, &start(&address(port)));
        self.members[at].child = child;
    }

    /// Waits until a program is ready.
    ///
    /// # Panics
    /// When it never is, with the ends of all logs.
    pub async fn ready(&self, at: usize) {
        let member = &self.members[at];
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = get(&address(&member.port), member.ready).await;
            match answer {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => return,
                Ok(said) if Instant::now() > end => panic!("{} is not ready: {said}\n{}", member.name, self.logs()),
                Err(error) if Instant::now() > end => panic!("{} is away: {error}\n{}", member.name, self.logs()),
                _ => tokio::time::sleep(Duration::from_millis(20)).await, // between two looks
            }
        }
    }

    /// The ends of the programs' logs.
    pub fn logs(&self) -> String {
        self.members.iter().fold(String::new(), |mut all, member| {
            let log = std::fs::read_to_string(log(&self.logs, &member.name)).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            all += &format!("== {}\n{}\n", member.name, lines[lines.len().saturating_sub(15)..].join("\n"));
            all
        })
    }
}

fn address(port: &Port) -> String {
    format!("127.0.0.1:{}", port.number())
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn spawn(folder: &Path, name: &str, command: &Command) -> Child {
    let log = File::options().create(true).append(true).open(log(folder, name)).expect("a log file");
    bound(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts")
}

async fn get(address: &str, path: &str) -> std::io::Result<String> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(Duration::from_secs(5), asking).await?
}
