//! One way to read a SQLite file and a PostgreSQL database: every column as text.

use sqlx::{
    AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection, postgres::PgRow, sqlite::SqliteConnectOptions,
    sqlite::SqliteRow,
};

/// A database, to be read only.
#[derive(Debug)]
pub enum Db {
    /// A file.
    Sqlite(SqliteConnection),
    /// A database on a server.
    Postgres(PgConnection),
}

impl Db {
    /// Opens a path or a `postgres://` URL.
    pub async fn open(place: &str) -> Result<Self, sqlx::Error> {
        if place.starts_with("postgres") {
            return Ok(Self::Postgres(PgConnection::connect(place).await?));
        }
        let options = SqliteConnectOptions::new().filename(place).read_only(true);
        Ok(Self::Sqlite(SqliteConnection::connect_with(&options).await?))
    }

    /// Some columns of a table, as text, empty where NULL. Malote's own tables are written `malote.x`; SQLite has
    /// no schemas.
    pub async fn rows<const N: usize>(
        &mut self,
        columns: [&str; N],
        from: &str,
    ) -> Result<Vec<[String; N]>, sqlx::Error> {
        let columns = columns.map(|column| format!("coalesce(CAST({column} AS TEXT), '')")).join(", ");
        let query = format!("SELECT {columns} FROM {from}");
        match self {
            Self::Sqlite(db) => {
                let query = AssertSqlSafe(query.replace("malote.", "malote_"));
                let rows: Vec<SqliteRow> = sqlx::query(query).fetch_all(db).await?;
                rows.iter().map(|row| texts(|at| row.try_get(at))).collect()
            }
            Self::Postgres(db) => {
                let rows: Vec<PgRow> = sqlx::query(AssertSqlSafe(query)).fetch_all(db).await?;
                rows.iter().map(|row| texts(|at| row.try_get(at))).collect()
            }
        }
    }
}

fn texts<const N: usize>(get: impl Fn(usize) -> Result<String, sqlx::Error>) -> Result<[String; N], sqlx::Error> {
    let mut row = [const { String::new() }; N];
    for (at, text) in row.iter_mut().enumerate() {
        *text = get(at)?;
    }
    Ok(row)
}

/// A whole number that came as text.
pub(crate) fn number(text: &str) -> Result<i64, sqlx::Error> {
    text.parse().map_err(|_| sqlx::Error::Decode(format!("{text:?} is no number").into()))
}
