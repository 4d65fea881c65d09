//! `malote.toml`: what a repository tells the command, so that nobody has to type it.

use crate::Unusable;
use figment::{
    Figment,
    providers::{Format, Toml},
};
use serde::Deserialize;
use std::{
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
    flows: Vec<PathBuf>,
}

/// The flow documents that the nearest `malote.toml` names: the one in the current folder, or in the
/// closest folder above it that has one.
pub fn flows() -> Result<Vec<PathBuf>, Unusable> {
    let here = env::current_dir().map_err(|error| Unusable::new("the current folder", error))?;
    let file = here.ancestors().map(|folder| folder.join(FILE)).find(|file| file.is_file());
    let file = file.ok_or_else(|| {
        Unusable::new(
            FILE,
            format!(
                "there is none in {} or above it; write one with `flows = [\"flow.json\"]`, or name flow documents",
                here.display()
            ),
        )
    })?;
    let written: Written =
        Figment::from(Toml::file_exact(&file)).extract().map_err(|error| Unusable::new(file.display(), error))?;
    if written.flows.is_empty() {
        return Err(Unusable::new(file.display(), "`flows` names no document"));
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    Ok(written.flows.iter().map(|flow| folder.join(flow)).collect())
}
