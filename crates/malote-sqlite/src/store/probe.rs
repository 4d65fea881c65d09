//! A look at a file that may be anybody's.
//!
//! [`Sqlite::open`](super::Sqlite::open) makes files and turns the write-ahead log on; a tool that looks for
//! services must do neither to files that are not malote's.

use super::classify::failed;
use malote_core::{Class, StoreError};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use std::{fs::File, io::ErrorKind, path::Path, str::FromStr, time::Duration};

/// See [`super::Sqlite::holds_tables`].
pub(super) async fn holds_tables(url_or_path: &str) -> Result<bool, StoreError> {
    let doing = || format!("looking into the SQLite file {url_or_path:?}");
    let options = match url_or_path.starts_with("sqlite:") {
        true => SqliteConnectOptions::from_str(url_or_path).map_err(failed(doing()))?,
        false => SqliteConnectOptions::new().filename(url_or_path),
    };
    let options = options.create_if_missing(false).read_only(true).busy_timeout(Duration::from_secs(5));
    let file = options.get_filename().to_owned();
    let look = async {
        let mut connection = options.connect().await?;
        let holds = sqlx::query_scalar(include_str!("../../sql/holds_tables.sql")).fetch_one(&mut connection).await?;
        connection.close().await.map(|()| holds)
    };
    look.await.map_err(|error| match no_file(&file) {
        Some(why) => StoreError { doing: doing(), class: Class::Final, source: why.into() },
        None => failed(doing())(error),
    })
}

/// Why nothing can be read there, in better words than SQLite's.
fn no_file(path: &Path) -> Option<String> {
    match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let from = std::env::current_dir().unwrap_or_default();
            Some(format!("there is no such file, seen from {}", from.display()))
        }
        Ok(there) if there.is_dir() => Some("it is a folder; the path of a file in it is expected".into()),
        _ => File::open(path).err().map(|error| error.to_string()),
    }
}
