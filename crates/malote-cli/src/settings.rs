//! `malote.toml`: what a repository tells the command, so that nobody has to type it.
//!
//! ```toml
//! flows = ["flow.json"]
//!
//! [services.ledger]
//! store = "postgres://ledger:${LEDGER_PASSWORD}@db/ledger"
//! ```

use crate::Unusable;
use figment::{
    Figment,
    error::Kind,
    providers::{Format, Toml},
};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

/// The file's name.
pub const FILE: &str = "malote.toml";

/// What stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Flow documents, by paths from the file's own folder.
    #[serde(default)]
    flows: Vec<PathBuf>,
    /// Services by name.
    #[serde(default)]
    services: BTreeMap<String, Service>,
}

/// Where a service has its database.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// As for `--store`; `${NAME}` stands for an environment variable.
    pub store: String,
    /// The schema of malote's tables on PostgreSQL.
    pub schema: Option<String>,
}

/// The nearest file: the one in the current folder, or in the closest folder above it that has one.
fn nearest() -> Result<Option<(PathBuf, Written)>, Unusable> {
    let here = env::current_dir().map_err(|error| Unusable::new("the current folder", error))?;
    let Some(file) = here.ancestors().map(|folder| folder.join(FILE)).find(|file| file.is_file()) else {
        return Ok(None);
    };
    let written = Figment::from(Toml::file_exact(&file)).extract();
    let written = written.map_err(|error| Unusable::new(file.display(), without_values(error)))?;
    Ok(Some((file, written)))
}

/// What is wrong, without the values: they may hold passwords.
fn without_values(errors: figment::Error) -> String {
    let said = errors.into_iter().map(|error| {
        let what = match &error.kind {
            Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => format!("{expected} is expected"),
            Kind::MissingField(name) => format!("`{name}` is missing"),
            Kind::UnknownField(name, expected) => format!("`{name}` is not known; {} are", expected.join(", ")),
            Kind::DuplicateField(name) => format!("`{name}` stands there twice"),
            Kind::Message(message) => unquoted(message),
            _ => "cannot be read".to_owned(),
        };
        if error.path.is_empty() { what } else { format!("{}: {what}", error.path.join(".")) }
    });
    said.collect::<Vec<_>>().join("; ")
}

/// A syntax error: where, and why. Between the two it quotes the line, beside numbers and bars.
fn unquoted(message: &str) -> String {
    let quotes = |line: &&str| line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).starts_with('|');
    let why: Vec<&str> = message.lines().skip(1).skip_while(|line| !quotes(line)).skip_while(quotes).collect();
    let place = message.lines().next().unwrap_or("cannot be read");
    if why.is_empty() { place.to_owned() } else { format!("{place}: {}", why.join(", ")) }
}

/// The flow documents that the nearest `malote.toml` names; none when there is no such file, or it names none.
pub fn flows() -> Result<Vec<PathBuf>, Unusable> {
    let Some((file, written)) = nearest()? else { return Ok(Vec::new()) };
    let folder = file.parent().unwrap_or(Path::new(""));
    Ok(written.flows.iter().map(|flow| folder.join(flow)).collect())
}

/// The services that the nearest `malote.toml` names; none when there is no such file, or it names none.
pub fn services() -> Result<Vec<(String, Service)>, Unusable> {
    let Some((file, written)) = nearest()? else { return Ok(Vec::new()) };
    let folder = file.parent().unwrap_or(Path::new(""));
    let found = |name: &str| env::var(name).ok();
    let services = written.services.into_iter().map(|(name, service)| {
        let what = || format!("{}: services.{name}.store", file.display());
        let store = expanded(&service.store, &found).map_err(|why| Unusable::new(what(), why))?;
        Ok((name, Service { store: from_folder(folder, &store), ..service }))
    });
    services.collect()
}

/// Puts environment variables in the place of `${NAME}`.
fn expanded(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("`${` without `}`")?;
        let value = variable(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        whole.extend([before, &value]);
        rest = behind;
    }
    Ok(whole + rest)
}

/// A path to a SQLite file, which starts from the settings' own folder; anything else as it is.
fn from_folder(folder: &Path, store: &str) -> String {
    let path = store.strip_prefix("sqlite:").unwrap_or(store);
    if path.contains("://") || path.starts_with("//") {
        return store.to_owned();
    }
    folder.join(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in() {
        let found = |name: &str| (name == "SECRET").then(|| "${x}y".to_owned());
        let read = |text: &str| expanded(text, &found);
        assert_eq!(read("a${SECRET}b${SECRET}").as_deref(), Ok("a${x}yb${x}y"));
        assert_eq!(read("a$b{c}").as_deref(), Ok("a$b{c}"));
        assert!(read("postgres://u:canary@${HOST}/").is_err_and(|why| why.contains("HOST") && !why.contains("canary")));
        assert!(read("postgres://u:canary@${HOST").is_err_and(|why| !why.contains("canary")));
    }

    #[test]
    fn paths_start_from_the_file() {
        let of = |store| from_folder(Path::new("/etc/malote"), store);
        assert_eq!(of("data/a.db"), "/etc/malote/data/a.db");
        assert_eq!(of("sqlite:a.db?x=1"), "/etc/malote/a.db?x=1");
        assert_eq!(of("/var/a.db"), "/var/a.db");
        assert_eq!(of("postgres://h/d"), "postgres://h/d");
    }
}
