//! The file: opening it, its schema, and waiting for its lock.

use malote_core::TransportError;
use rusqlite::{Connection, ErrorCode};
use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// Marks the file as a log of malote's (`PRAGMA application_id`).
const APPLICATION: i64 = 0x6d61_6c6f;
const VERSION: i64 = 1;
/// How long to wait for another process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bits of [`at`] that are the offset.
const OFFSET_BITS: u32 = 40;
/// How many offsets a partition has.
pub(super) const OFFSETS: i64 = 1 << OFFSET_BITS;

/// Where a record lies in the file.
pub(super) fn at(partition: i64, offset: i64) -> i64 {
    (partition << OFFSET_BITS) | offset
}

/// The offset within its partition.
pub(super) fn offset(at: i64) -> i64 {
    at & (OFFSETS - 1)
}

/// Opens a connection that may write.
pub(super) fn open(path: &Path) -> Result<Connection, TransportError> {
    let failed = |error: rusqlite::Error| refused(path, error);
    let end = Instant::now() + PATIENCE;
    loop {
        match Connection::open(path).and_then(prepare) {
            Err(error) if is_locked(&error) && Instant::now() < end => sleep(pause()),
            opened => {
                let mut connection = opened.map_err(failed)?;
                create(&mut connection, path)?;
                return Ok(connection);
            }
        }
    }
}

/// Opens a connection that reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, TransportError> {
    let opened = Connection::open(path).and_then(prepare).and_then(|connection| {
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    });
    opened.map_err(|error| refused(path, error))
}

fn prepare(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_handler(Some(wait_for_lock))?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Waits a little, with jitter, so that processes that want to write meet at different moments.
fn wait_for_lock(attempt: i32) -> bool {
    // 4 ms on average
    let patient = i64::from(attempt) * 4 < i64::try_from(PATIENCE.as_millis()).unwrap_or(i64::MAX);
    if patient {
        sleep(pause());
    }
    patient
}

fn pause() -> Duration {
    Duration::from_micros(fastrand::u64(200..8_000))
}

fn create(connection: &mut Connection, path: &Path) -> Result<(), TransportError> {
    let failed = |error: rusqlite::Error| refused(path, error);
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let number = |sql: &str| tx.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    match (application, version, tables) {
        (APPLICATION, VERSION, _) => Ok(()),
        (0, 0, 0) => {
            tx.execute_batch(include_str!("../../sql/embedded/schema.sql")).map_err(failed)?;
            tx.pragma_update(None, "application_id", APPLICATION).map_err(failed)?;
            tx.commit().map_err(failed)
        }
        (APPLICATION, newer, _) => Err(TransportError::lasting(
            format!("opening the log {}", path.display()),
            format!("it was made by another version of malote (its layout is {newer}, this one reads {VERSION})"),
        )),
        _ => Err(TransportError::lasting(
            format!("opening the log {}", path.display()),
            "this SQLite file is something else, a service's database perhaps: give the log a file of its own",
        )),
    }
}

pub(super) fn is_locked(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// A file that cannot be used; whether it may pass is told by the code.
fn refused(path: &Path, error: rusqlite::Error) -> TransportError {
    let doing = format!("opening the log {}", path.display());
    match error.sqlite_error_code() {
        Some(
            ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::PermissionDenied | ErrorCode::ReadOnly,
        ) => TransportError::lasting(doing, error),
        _ => TransportError::transient(doing, error),
    }
}
