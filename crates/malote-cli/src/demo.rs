//! `malote demo`: faults to order in a demonstration, so that a person can see what happens then.
//!
//! A demonstration is a folder with the SQLite files of its services, each named after its service.
//! The services look into `faults/NAME` before they handle anything; this command writes that file
//! and removes it.

use crate::{
    End, Unusable,
    out::{count, json, plain, print},
    store::Url,
};
use clap::{Subcommand, ValueEnum};
use malote::{chain, sqlite::Sqlite};
use serde_json::json;
use std::{
    env, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Names the folder of a demonstration.
const FOLDER: &str = "MALOTE_DATA";
/// With what each SQLite file begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Make a service of a demonstration fail, and mend it
///
/// A demonstration is a folder with one SQLite file for each service: the one that MALOTE_DATA names, or ./data.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Let a service fail with everything it is to handle
    Break {
        /// The service
        service: String,
        /// How it fails
        #[arg(long, value_enum)]
        class: Class,
        /// For scripts: {"service", "fault"}
        #[arg(long)]
        json: bool,
    },
    /// Let a service handle messages again
    Mend {
        /// The service
        service: String,
        /// For scripts: {"service", "fault": null}
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Class {
    /// As if it might go better later: it is tried again, and given up in the end
    Transient,
    /// As if it could never succeed: it is given up at once
    Final,
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    let folder = told().unwrap_or_else(usual);
    let services: Vec<_> = services(&folder).await?.into_iter().map(|(name, _)| name).collect();
    let (Command::Break { service, .. } | Command::Mend { service, .. }) = &args.command;
    if !services.contains(service) {
        let why =
            format!("the demonstration in {} has no such service, only {}", folder.display(), services.join(", "));
        return Err(Unusable::new(service, why));
    }
    let file = folder.join("faults").join(service);
    let failed = |error: io::Error| Unusable::new(file.display(), error);
    match args.command {
        Command::Break { class, json: as_json, .. } => {
            let (class, then) = match class {
                Class::Transient => ("transient", "each message is tried again, and becomes a dead letter in the end"),
                Class::Final => ("final", "each message becomes a dead letter at once"),
            };
            write(&file, class).map_err(failed)?;
            match as_json {
                true => json(&json!({"service": service, "fault": class}))?,
                false => print(&format!(
                    "{service} fails from now on ({class}): {then}.\n`malote demo mend {service}` ends it.\n",
                    service = plain(service)
                ))?,
            }
        }
        Command::Mend { json: as_json, .. } => {
            let was = remove(&file).map_err(failed)?;
            match as_json {
                true => json(&json!({"service": service, "fault": null}))?,
                false if was => print(&format!("{} handles messages again.\n", plain(service)))?,
                false => print(&format!("{} was not told to fail.\n", plain(service)))?,
            }
        }
    }
    Ok(End::Fine)
}

/// Puts the file there whole: a service may look at any moment.
fn write(file: &Path, class: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)?;
    let part = folder.join(format!(".{}.part", std::process::id()));
    fs::write(&part, format!("{class}\n"))?;
    fs::rename(&part, file)
}

/// Whether it was there.
fn remove(file: &Path) -> io::Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The folder that the environment names.
pub fn told() -> Option<PathBuf> {
    env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The folder where nothing is named.
pub fn usual() -> PathBuf {
    PathBuf::from("data")
}

/// The services of a demonstration, by name: each SQLite file in the folder that has malote's tables.
pub async fn services(folder: &Path) -> Result<Vec<(String, Url)>, Unusable> {
    let none = |why: String| {
        let say = "name a database by --store (or MALOTE_STORE), services in malote.toml, or a demonstration's folder by \
                   MALOTE_DATA";
        Unusable::new(folder.display(), format!("no demonstration: {why}; {say}"))
    };
    let entries = fs::read_dir(folder).map_err(|error| none(error.to_string()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|file| is_database(file)).collect();
    files.sort();
    let mut services = Vec::new();
    for file in &files {
        let path = file.to_string_lossy().into_owned();
        // one that cannot be read may well be a service's: leaving it out would hide it
        if Sqlite::holds_tables(&path).await.map_err(|error| Unusable(chain(&error)))? {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            services.push((name, Url::new(&path, None)?));
        }
    }
    match services.is_empty() {
        true => {
            Err(none(format!("{} in it, and none with tables of malote", count(files.len() as u64, "SQLite file"))))
        }
        false => Ok(services),
    }
}

fn is_database(file: &Path) -> bool {
    let mut begins = [0; MAGIC.len()];
    // a pipe would keep its reader waiting
    file.is_file() && fs::File::open(file).and_then(|mut file| file.read_exact(&mut begins)).is_ok() && begins == *MAGIC
}
