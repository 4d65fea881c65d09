//! A look at a file that may be anybody's.
//!
//! [`Sqlite::open`](super::Sqlite::open) makes files and turns the write-ahead log on; a tool that looks for
//! services must do neither to files that are not malote's.

use super::classify::failed;
use malote_core::{Class, StoreError};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use std::{io::ErrorKind, str::FromStr, time::Duration};

/// See [`super::Sqlite::holds_tables`].
pub(super) async fn holds_tables(url_or_path: &str) -> Result<bool, StoreError> {
    let doing = || format!("looking into the SQLite file {url_or_path:?}");
    let options = match url_or_path.starts_with("sqlite:") {
        true => SqliteConnectOptions::from_str(url_or_path).map_err(failed(doing()))?,
        false => SqliteConnectOptions::new().filename(url_or_path),
    };
    let options = options.create_if_missing(false).read_only(true).busy_timeout(Duration::from_secs(5));
    let file = options.get_filename().to_owned();
    let mut connection = match options.connect().await {
        Err(_) if file.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) => {
            let from = std::env::current_dir().unwrap_or_default();
            let source = format!("there is no such file, seen from {}", from.display());
            return Err(StoreError { doing: doing(), class: Class::Final, source: source.into() });
        }
        connected => connected.map_err(failed(doing()))?,
    };
    let holds = sqlx::query_scalar(include_str!("../../sql/holds_tables.sql")).fetch_one(&mut connection).await;
    let holds = holds.map_err(failed(doing()))?;
    connection.close().await.map_err(failed(doing()))?;
    Ok(holds)
}
