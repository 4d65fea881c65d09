//! What is wrong with the file, its settings, and malote's tables in it.

use super::{
    super::{Sqlite, migrate},
    status,
};
use malote_core::{
    Class, StoreError,
    inspect::{Finding, Grade},
};
use sqlx::SqliteConnection;
use std::{os::unix::fs::MetadataExt, path::Path, time::Duration};
use tokio::time::timeout;

/// A file that is larger is not read through: that would take longer than a person waits.
const READ_THROUGH: u64 = 512 << 20;
/// Somebody who has the write lock for so long keeps others waiting.
const LONG: Duration = Duration::from_secs(2);
/// A log that is larger has a reader that stays, or readers that never leave a moment free.
const LARGE_LOG: u64 = 64 << 20;
/// Below this the file may not grow for long.
const LITTLE_SPACE: u64 = 256 << 20;
/// What clocks of one machine may differ by.
const CLOCKS: i64 = 1_000;

fn found(grade: Grade, what: &str, says: impl Into<String>) -> Finding {
    Finding { grade, what: what.into(), says: says.into() }
}

pub(super) async fn doctor(store: &Sqlite) -> Result<Vec<Finding>, StoreError> {
    let mut reader = store.reader("looking what is wrong with the file").await?;
    let mut findings = vec![file(store), space(store)];
    findings.push(mode(&mut reader).await);
    findings.push(log(store));
    findings.push(integrity(store, &mut reader).await);
    findings.push(tables(&mut reader).await);
    findings.push(clock(&mut reader).await);
    drop(reader);
    findings.push(lock(store).await);
    Ok(findings)
}

fn file(store: &Sqlite) -> Finding {
    let path = &store.0.path;
    match std::fs::metadata(path) {
        Ok(file) if file.permissions().readonly() => {
            found(Grade::Fault, "file", format!("{} is read-only: give this user the right to write", path.display()))
        }
        Ok(file) => found(Grade::Fine, "file", format!("{}, {} bytes", path.display(), file.len())),
        Err(error) => found(Grade::Fault, "file", format!("{} cannot be seen: {error}", path.display())),
    }
}

fn space(store: &Sqlite) -> Finding {
    let folder = store.0.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = match rustix::fs::statvfs(folder) {
        Ok(of) => of.f_bavail.saturating_mul(of.f_frsize),
        Err(error) => return found(Grade::Warning, "space", format!("cannot be asked for: {error}")),
    };
    let says = format!("{} MiB are free", free >> 20);
    match free {
        0..LITTLE_SPACE => found(Grade::Warning, "space", format!("{says}: make room before nothing can be written")),
        _ => found(Grade::Fine, "space", says),
    }
}

async fn mode(reader: &mut SqliteConnection) -> Finding {
    match sqlx::query_scalar::<_, String>("PRAGMA journal_mode").fetch_one(reader).await {
        Ok(mode) if mode == "wal" => found(Grade::Fine, "journal", "write-ahead log"),
        Ok(mode) => {
            found(Grade::Fault, "journal", format!("{mode}, not wal: readers and the writer wait for each other"))
        }
        Err(error) => found(Grade::Fault, "journal", error.to_string()),
    }
}

fn log(store: &Sqlite) -> Finding {
    let bytes = store.wal_bytes().unwrap_or(0);
    let says = format!("{} MiB", bytes >> 20);
    if bytes > LARGE_LOG {
        let says =
            format!("{says}: a reader stays open, or a transaction writes that much; end what reads for minutes");
        return found(Grade::Warning, "log size", says);
    }
    found(Grade::Fine, "log size", says)
}

async fn integrity(store: &Sqlite, reader: &mut SqliteConnection) -> Finding {
    let size = std::fs::metadata(&store.0.path).map_or(0, |file| file.len());
    if size > READ_THROUGH {
        let says = format!("not read through: {} MiB; run PRAGMA quick_check on a copy", size >> 20);
        return found(Grade::Fine, "integrity", says);
    }
    match sqlx::query_scalar::<_, String>("PRAGMA quick_check(1)").fetch_one(reader).await {
        Ok(said) if said == "ok" => found(Grade::Fine, "integrity", "ok"),
        Ok(said) => found(Grade::Fault, "integrity", format!("{said}: stop the service and restore a copy")),
        Err(error) => found(Grade::Fault, "integrity", error.to_string()),
    }
}

async fn tables(reader: &mut SqliteConnection) -> Finding {
    let known = migrate::KNOWN;
    match status::version(reader).await {
        Ok(version) if version == known => found(Grade::Fine, "tables", format!("version {version}")),
        Ok(version) if version > known => {
            let says = format!("version {version} is newer than this program's {known}, which lives with it");
            found(Grade::Warning, "tables", says)
        }
        Ok(version) => {
            found(Grade::Fault, "tables", format!("version {version}, {known} is needed: run `malote migrate`"))
        }
        Err(error) => found(Grade::Fault, "tables", format!("there are none: run `malote migrate` ({error})")),
    }
}

async fn clock(reader: &mut SqliteConnection) -> Finding {
    match sqlx::query_scalar::<_, i64>(include_str!("../../../sql/clock_off.sql")).fetch_one(reader).await {
        Ok(off) if off.abs() <= CLOCKS => found(Grade::Fine, "clock", "the machine's own"),
        Ok(off) => {
            let says = format!("the view malote_clock is {off} ms off the machine's clock: it was replaced");
            found(Grade::Warning, "clock", says)
        }
        Err(error) => found(Grade::Fault, "clock", error.to_string()),
    }
}

/// Takes the write lock and gives it back: whether it may, and whether somebody keeps it.
async fn lock(store: &Sqlite) -> Finding {
    match timeout(LONG, store.lock()).await {
        Ok(Ok(tx)) => match tx.rollback("giving the write lock back").await {
            Ok(()) => found(Grade::Fine, "write lock", "free"),
            Err(error) => found(Grade::Fault, "write lock", error.to_string()),
        },
        Ok(Err(error)) if error.class != Class::Conflict => {
            found(Grade::Fault, "write lock", format!("{error}: this user may not write"))
        }
        _ => {
            let who = holder(&store.beside("-shm")).map_or(String::new(), |pid| format!(" by process {pid}"));
            let says = format!("held for more than {} s{who}: nothing can be written meanwhile", LONG.as_secs());
            found(Grade::Warning, "write lock", says)
        }
    }
}

/// Which process has the write lock: SQLite's is byte 120 of the shared memory file, and Linux tells.
fn holder(shared: &Path) -> Option<u32> {
    let inode = std::fs::metadata(shared).ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, "WRITE", pid, place, from, to] = words[..] else { return None };
        let covers = from.parse::<u64>().ok()? <= 120 && to.parse::<u64>().unwrap_or(u64::MAX) >= 120;
        (covers && place.rsplit(':').next() == Some(&inode)).then(|| pid.parse().ok())?
    })
}
