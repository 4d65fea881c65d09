//! What the command's tests share: the command itself, and a service on each store for it to look at.
#![allow(missing_docs, dead_code)]

pub mod saga;

use malote::{
    Event, Failure, FullStore, Message, Outbox, Outcome, Runtime, Service, Transaction, Transport,
    postgres::Postgres,
    retry::Policy,
    sqlite::{Embedded, Sqlite},
    with,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

/// Longer than anything here takes; a test that waits so long has failed. Shorter where tests are
/// run that have to fail.
pub const LONG: Duration = Duration::from_secs(if cfg!(feature = "planted") { 15 } else { 60 });

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command in a folder, with nothing set that could lead it elsewhere.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_malote"));
    command.current_dir(folder).env_remove("MALOTE_STORE").env_remove("MALOTE_DATA");
    command
}

pub fn malote(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().expect("starts")
}

/// What was printed, when it ended with the code given.
#[track_caller]
pub fn ended(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    (out, err)
}

/// A folder with these files.
pub fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("in the folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    folder
}

/// Asks about one store.
pub struct Asked {
    folder: TempDir,
    url: String,
}

impl Asked {
    pub fn of(url: &str) -> Self {
        Self { folder: folder(&[]), url: url.to_owned() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is printed, when it ends with the code given.
    #[track_caller]
    pub fn ends(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let output = command(self.folder.path()).args(arguments).env("MALOTE_STORE", &self.url).output();
        ended(&output.expect("starts"), code)
    }

    #[track_caller]
    pub fn text(&self, arguments: &[&str]) -> String {
        self.ends(0, arguments).0
    }

    /// The document that is printed with `--json`.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.json_of(0, arguments)
    }

    #[track_caller]
    pub fn json_of(&self, code: i32, arguments: &[&str]) -> Value {
        let (out, _) = self.ends(code, &[arguments, &["--json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Asks until the document is as expected; another process gives no sign of it.
    pub async fn until(&self, arguments: &[&str], is: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LONG;
        loop {
            let found = self.json(arguments);
            if is(&found) {
                return found;
            }
            assert!(Instant::now() < end, "{arguments:?}: {found:#}");
            tokio::time::sleep(Duration::from_millis(50)).await; // between two looks
        }
    }
}

/// How many rows a listing has.
pub fn rows(listing: &Value) -> usize {
    listing.as_array().expect("an array").len()
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Moved {
    pub key: String,
    pub n: i64,
}

impl Event for Moved {
    const TYPE: &'static str = "moved.v1";
    fn key(&self) -> String {
        self.key.clone()
    }
}

pub fn moved(key: &str, n: i64) -> Moved {
    Moved { key: key.into(), n }
}

/// Fails when it is told to, and remembers what it handled.
#[derive(Clone, Default)]
pub struct Books {
    written: Arc<Mutex<Written>>,
    more: Arc<Notify>,
}

/// Which ones fail, and how.
type Fault = (fn(&Moved) -> bool, fn() -> Failure);

#[derive(Default)]
struct Written {
    handled: Vec<Moved>,
    fault: Option<Fault>,
}

impl Books {
    /// From now on, these fail.
    pub fn fail(&self, which: fn(&Moved) -> bool, how: fn() -> Failure) {
        self.written.lock().expect("whole").fault = Some((which, how));
    }
    pub fn mend(&self) {
        self.written.lock().expect("whole").fault = None;
    }
    pub fn handled(&self) -> Vec<Moved> {
        self.written.lock().expect("whole").handled.clone()
    }
    /// Waits until so many were handled.
    pub async fn until(&self, what: &[Moved]) {
        while self.handled() != what {
            let more = tokio::time::timeout(LONG, self.more.notified()).await;
            assert!(more.is_ok(), "{:?}", self.handled());
        }
    }
}

async fn book<T: Transaction>(moved: Moved, _: &mut T, books: &Books) -> Outcome {
    let mut written = books.written.lock().expect("whole");
    match written.fault {
        Some((which, how)) if which(&moved) => Err(how()),
        _ => {
            written.handled.push(moved);
            books.more.notify_one();
            Ok(())
        }
    }
}

/// A service `ledger` that hears what it says itself.
pub fn ledger<S: FullStore>(store: &S, log: &Arc<dyn Transport>, books: &Books, retry: Policy) -> Service<S> {
    Service::new("ledger", store.clone(), log.clone())
        .emits::<Moved>()
        .on(with(books.clone(), book::<S::Tx>))
        .retry(retry)
}

/// Two attempts, the second one when somebody asks for it.
pub fn twice() -> Policy {
    Policy::default().attempts(2).backoff(Duration::from_secs(3600), Duration::from_secs(3600))
}

pub async fn publish<S: FullStore>(store: &S, moves: &[Moved]) {
    let mut tx = Outbox::new("ledger", store.clone()).begin().await.expect("begun");
    let sealed = moves.iter().map(|moved| tx.sealer().seal(Message::of(moved).expect("fit")).expect("sealed"));
    let sealed = sealed.collect();
    tx.append(sealed).await.expect("written");
    tx.commit().await.expect("committed");
}

pub async fn log(folder: &Path) -> Arc<dyn Transport> {
    Arc::new(Embedded::open(folder.join("log.db").to_str().expect("text")).await.expect("opened"))
}

/// A runtime at work, until it is stopped.
pub struct Running(oneshot::Sender<()>, JoinHandle<()>);

pub async fn start(runtime: Runtime) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let health = runtime.health();
    let task = tokio::spawn(async move { runtime.run_until(stopped).await.expect("well defined") });
    tokio::time::timeout(LONG, health.ready()).await.unwrap_or_else(|_| panic!("not ready: {:?}", health.parts()));
    Running(stop, task)
}

impl Running {
    pub async fn stop(self) {
        drop(self.0);
        self.1.await.expect("stopped");
    }
}

/// A store that a test can make.
#[allow(async_fn_in_trait)]
pub trait TestStore: FullStore {
    /// With its URL; none where its server cannot be had, which is then counted as skipped.
    async fn fresh(folder: &Path) -> Option<(Self, String)>;
}

impl TestStore for Sqlite {
    async fn fresh(folder: &Path) -> Option<(Self, String)> {
        let url = folder.join("ledger.db").to_str().expect("text").to_owned();
        let store = Sqlite::open(&url).await.expect("opened");
        store.migrate().await.expect("migrated");
        Some((store, url))
    }
}

impl TestStore for Postgres {
    async fn fresh(_: &Path) -> Option<(Self, String)> {
        let url = malote_testkit::servers::fresh_database("ledger")?;
        let store = Postgres::connect(&url).await.expect("connected");
        store.migrate().await.expect("migrated");
        Some((store, url))
    }
}

/// A test that stands still fails.
pub async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(3 * LONG, test).await.expect("the test stands still");
}

/// Runs each test on every store.
#[macro_export]
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() {
                $crate::common::in_time(super::$test::<malote::sqlite::Sqlite>()).await
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() {
                $crate::common::in_time(super::$test::<malote::postgres::Postgres>()).await
            })+
        }
    };
}
