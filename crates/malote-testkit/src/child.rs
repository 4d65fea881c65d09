//! A second process: the test's own binary again, running the test `child`, which does as it is told,
//! and nothing when it is run as a test like any other.

use std::{
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

const TOLD: &str = "MALOTE_TEST_CHILD";

/// What this process was told, when it is a child: words.
pub fn told() -> Option<Vec<String>> {
    std::env::var(TOLD).ok().map(|words| words.split('\n').map(str::to_owned).collect())
}

/// What starts the test `child` of this binary with some words.
///
/// # Panics
/// When this binary cannot be found.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).env(TOLD, words.join("\n"));
    command
}

/// A child, killed with the value.
pub struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// Starts the test `child` of this binary, with a role and the folder.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(role: &str, folder: &Path) -> Self {
        Self::start_with(&[role, &folder.display().to_string()])
    }

    /// Starts the test `child` of this binary with some words.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_with(words: &[&str]) -> Self {
        let mut child = command(words).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that it says with `say`; none when it has ended.
    pub fn hear(&mut self) -> Option<String> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, said) = line.split_once("said: ")?;
            Some(said.to_owned())
        })
    }

    /// Whether it has come to an end, whichever.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end, and says whether it was a good one.
    pub fn ends_well(&mut self) -> bool {
        while self.hear().is_some() {}
        self.child.wait().is_ok_and(|status| status.success())
    }

    /// Waits for its end, which has to be a good one.
    ///
    /// # Panics
    /// When it was not.
    pub fn finish(mut self) {
        assert!(self.ends_well(), "the other process came to a bad end");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Says a line to the parent.
///
/// # Panics
/// When nobody listens.
pub fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsaid: {line}").and_then(|()| out.flush()).unwrap();
}
