//! A service's database, of either kind.

use crate::Unusable;
use malote::{
    StoreError, chain,
    inspect::Inspect,
    planted,
    postgres::{Postgres, Problem},
    sqlite::Sqlite,
};
use malote_core::{KeptStore, Prune, Pruned};
use std::{path::Path, time::Duration};

/// How long to wait for a connection, or for somebody else's write to a file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a database is. It may hold a password, so it cannot be printed.
#[derive(Clone)]
pub enum Url {
    /// A path, or `sqlite:PATH`.
    Sqlite(String),
    /// A URL, and the schema of malote's tables where it is not the usual one.
    Postgres(String, Option<String>),
}

impl Url {
    /// Tells the kinds apart.
    pub fn new(store: &str, schema: Option<&str>) -> Result<Self, Unusable> {
        match store.split_once("://").map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => Ok(Self::Postgres(store.to_owned(), schema.map(str::to_owned))),
            Some("sqlite") | None => Ok(Self::Sqlite(store.to_owned())),
            Some(scheme) => Err(Unusable::new(
                "--store",
                format!("a path, sqlite:PATH or postgres://… is expected; {scheme:?} is none of these"),
            )),
        }
    }

    /// A name for a service of which nothing else is known: the database's, or the file's.
    pub fn name(&self) -> String {
        let (Self::Sqlite(url) | Self::Postgres(url, _)) = self;
        let path = url.split(['?', '#']).next().unwrap_or_default();
        let last = match path.split_once("://") {
            // without a path the last part holds the password
            Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
            None => path.strip_prefix("sqlite:").unwrap_or(path),
        };
        let name = Path::new(last).file_stem().map(|name| name.to_string_lossy().into_owned());
        name.filter(|name| !name.contains('@')).unwrap_or_else(|| "service".into())
    }

    /// Opens a database whose tables this program can ask; says so where they are newer than what it knows.
    pub async fn open(&self) -> Result<(Store, Option<String>), String> {
        let store = self.open_any().await?;
        let tables = match planted::is("cli-any-version") {
            true => Ok((0, 0)),
            false => store.inspect().tables().await,
        };
        let (has, knows) = tables.map_err(|error| chain(&error))?;
        if has >= knows {
            let newer =
                format!("its tables are of version {has}, and this malote knows {knows}: take the newer malote");
            return Ok((store, (has > knows).then_some(newer)));
        }
        store.close().await;
        Err(match has {
            0 => "it has no tables of malote; `malote migrate` makes them".to_owned(),
            _ => format!("its tables are of version {has}, and this malote needs {knows}: run `malote migrate`"),
        })
    }

    /// Opens a database that has malote's tables, in whichever version.
    pub async fn open_any(&self) -> Result<Store, String> {
        if let Self::Sqlite(path) = self
            && !planted::is("cli-makes-file")
            && !Sqlite::holds_tables(path).await.map_err(|error| chain(&error))?
        {
            return Err(format!("{path:?} has no tables of malote; `malote migrate` makes them"));
        }
        self.open_or_make().await.map_err(|error| chain(&error))
    }

    /// Opens a database whose tables are still to come; makes a file that is not there.
    pub async fn open_or_make(&self) -> Result<Store, StoreError> {
        match self {
            Self::Sqlite(path) => Ok(Store::Sqlite(Sqlite::builder().lock_wait(PATIENCE).open(path).await?)),
            Self::Postgres(url, schema) => connect(url, schema.as_deref()).await.map(Store::Postgres),
        }
    }
}

/// Connects, through a pooler where there is one: nobody should have to know that.
async fn connect(url: &str, schema: Option<&str>) -> Result<Postgres, StoreError> {
    let builder = Postgres::builder(url).connections(2).patience(PATIENCE);
    let builder = match schema {
        Some(schema) => builder.schema(schema),
        None => builder,
    };
    match builder.clone().connect().await {
        Err(error) if matches!(error.source.downcast_ref(), Some(Problem::Pooler)) => {
            builder.behind_pooler(true).connect().await
        }
        done => done,
    }
}

/// An open database.
pub enum Store {
    /// One file.
    Sqlite(Sqlite),
    /// On a server.
    Postgres(Postgres),
}

impl Store {
    /// What may be asked of it and done with it.
    pub fn inspect(&self) -> &dyn Inspect {
        match self {
            Self::Sqlite(store) => store,
            Self::Postgres(store) => store,
        }
    }

    /// One step of a clean-up.
    pub async fn prune(&self, what: Prune, most: u32, dry: bool) -> Result<Pruned, StoreError> {
        match self {
            Self::Sqlite(store) => store.prune(what, most, dry).await,
            Self::Postgres(store) => store.prune(what, most, dry).await,
        }
    }

    /// Brings malote's tables up to date.
    pub async fn migrate(&self) -> Result<u32, StoreError> {
        match self {
            Self::Sqlite(store) => store.migrate().await,
            Self::Postgres(store) => store.migrate().await,
        }
    }

    /// Ends what was opened, so that a file is left as it was found.
    pub async fn close(&self) {
        if let Self::Sqlite(store) = self {
            store.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_gives_its_name_and_nothing_else() {
        for (store, name) in [
            ("data/ledger.db", "ledger"),
            ("sqlite:ledger.db?x=/y.db", "ledger"),
            ("postgres://u:canary@h:1/ledger?sslmode=disable", "ledger"),
            ("postgresql://u:canary@h", "service"),
            ("postgres://u:can/ary@h", "service"),
            ("postgres://u:can?ary@h/x", "service"),
        ] {
            assert_eq!(Url::new(store, None).map(|url| url.name()).ok().as_deref(), Some(name), "{store}");
        }
        assert!(Url::new("mysql://u:canary@h", None).is_err_and(|why| !why.to_string().contains("canary")));
    }
}
