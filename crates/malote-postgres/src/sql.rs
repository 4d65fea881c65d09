//! The statements, each from its own file, for one schema.

use crate::name::Name;
use sqlx::{AssertSqlSafe, Postgres, postgres::PgArguments, query::Query};
use std::sync::Arc;

/// A statement that is ready to run.
#[derive(Clone)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    /// The files say `malote.outbox`; a service may have put the tables into another schema.
    /// The schema's name is checked and quoted, so the text stays safe.
    pub(crate) fn new(text: &str, schema: &Name) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let body: Vec<&str> = lines.collect();
        Self(body.join("\n").replace("malote.", &format!("{}.", schema.quoted())).into())
    }

    pub(crate) fn query(&self) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(self.0.clone()))
    }
}

macro_rules! statements {
    ($($name:ident),+ $(,)?) => {
        /// All statements of the store, by the name of their file.
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement),+
        }
        impl Statements {
            pub(crate) fn new(schema: &Name) -> Self {
                Self { $($name: Statement::new(include_str!(concat!("../sql/", stringify!($name), ".sql")), schema)),+ }
            }
        }
    };
}

statements!(
    admit,
    append,
    claim,
    finish,
    forget,
    gap_holders,
    make_relay,
    read,
    release,
    release_lease,
    save,
    seen,
    set_aside,
    take_lease,
    take_over,
);
