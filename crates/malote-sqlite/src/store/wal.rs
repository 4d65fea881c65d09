//! The write-ahead log, kept small.
//!
//! SQLite starts its log anew only at a moment at which nobody reads from it. Where readers overlap,
//! that moment never comes by itself and the log grows without bound. So it is made: this process
//! writes nothing, everything is folded into the file, readers that come then read the file alone, and
//! once the last of the former readers is done the log is cut. That takes as long as one reader does.

use super::{Sqlite, failed};
use malote_core::{StoreError, planted};
use std::{
    ffi::OsString,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// A log that is larger than this has its moment made.
const LARGE: u64 = 16 << 20;
/// For how long writers of this process wait for that moment, at most.
const MOMENT: Duration = Duration::from_millis(500);
/// Between two looks whether it has come.
const LOOK: Duration = Duration::from_millis(2);
/// Commits between two looks at the size.
const COMMITS: u64 = 64;

/// When to look.
#[derive(Debug, Default)]
pub(super) struct Folding {
    commits: AtomicU64,
}

impl Sqlite {
    /// Size of the write-ahead log, in bytes; none when there is no such file now.
    pub(super) fn wal_bytes(&self) -> Option<u64> {
        std::fs::metadata(self.beside("-wal")).ok().map(|file| file.len())
    }

    /// A file that SQLite keeps beside the database.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(self.0.path.as_os_str());
        name.push(suffix);
        name.into()
    }

    /// Looks at the size of the log now and then, and makes it small in a task of its own: a long
    /// series of commits may fill a disk between two rounds of upkeep.
    pub(super) fn after_commit(&self) {
        if self.0.folding.commits.fetch_add(1, Ordering::Relaxed) % COMMITS != COMMITS - 1 {
            return;
        }
        if self.wal_bytes().is_some_and(|bytes| bytes > LARGE) {
            let store = self.clone();
            tokio::spawn(async move {
                if let Err(error) = store.fold().await {
                    tracing::warn!(%error, file = %store.0.path.display(), "the write-ahead log stays large");
                }
            });
        }
    }

    /// Folds the log into the file, and cuts it when it is large.
    pub(super) async fn fold(&self) -> Result<(), StoreError> {
        let doing = "folding the write-ahead log into the file";
        if planted::is("wal-never-reset") {
            return Ok(());
        }
        let _turn = self.0.turn.acquire().await;
        // waits for nobody and makes nobody wait
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&self.0.writer).await.map_err(failed(doing))?;
        if self.wal_bytes().is_none_or(|bytes| bytes <= LARGE) {
            return Ok(());
        }
        let end = Instant::now() + MOMENT;
        loop {
            let (busy,): (i64,) = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)")
                .fetch_one(&self.0.writer)
                .await
                .map_err(failed(doing))?;
            if busy == 0 {
                return Ok(());
            }
            if Instant::now() >= end {
                tracing::debug!(file = %self.0.path.display(), "a reader keeps the write-ahead log from being cut");
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
