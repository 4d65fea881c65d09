//! Folders for servers, gone when the server is.
//!
//! A process that is killed removes nothing. So each folder holds a file that
//! its owner keeps locked, and whoever makes the next folder first sweeps away
//! those whose lock is free.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "malote-server-";
const LOCK: &str = "owner.lock";
/// A folder this young may not have its lock yet.
const YOUNG: Duration = Duration::from_secs(60);

/// A folder that is removed on drop.
#[derive(Debug)]
pub(super) struct Scratch {
    // The lock goes first: a folder without one is nobody's.
    _owner: File,
    folder: TempDir,
}

impl Scratch {
    pub(super) fn new(kind: &str) -> io::Result<Self> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| sweep(&base()));
        let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{kind}-")).tempdir_in(base())?;
        // The server may run as another user, who must get to its data.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let owner = File::create(folder.path().join(LOCK))?;
        owner.lock()?;
        Ok(Self { _owner: owner, folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Where folders are made: root's own temporary folder may be closed to the
/// user that PostgreSQL runs as, `/tmp` is not.
pub(super) fn base() -> PathBuf {
    if is_root() { PathBuf::from("/tmp") } else { std::env::temp_dir() }
}

pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Removes the folders of processes that are gone; what it cannot remove
/// (another user's, for one) is left to that user.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for folder in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let is_old = folder
            .metadata()
            .and_then(|data| data.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > YOUNG));
        let is_nobodys = || File::open(folder.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_old && is_nobodys() {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}
