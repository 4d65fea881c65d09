//! `malote map`: the flow of several services, put together, checked and drawn.
//!
//! Services declare their part by their handlers, each in a repository of its own perhaps, and leave
//! it as a document. Only together do they show whether an event is emitted that nobody consumes.

use crate::{
    End, Unusable,
    out::{print, say},
    settings,
};
use clap::ValueEnum;
use malote::topology::Flow;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Print who consumes and emits what, and check that it fits together
///
/// Faults (an event that nobody consumes or emits, a name used twice, a type on two topics) go to
/// standard error, and the exit code is 1.
#[derive(clap::Args)]
pub struct Args {
    /// Flow documents (JSON), put together to one flow; without any, those that malote.toml names, in
    /// this folder or one above
    files: Vec<PathBuf>,
    /// In which form
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Form {
    /// Lines: consumes → service → emits
    #[default]
    Text,
    /// A Mermaid flowchart
    Mermaid,
    /// A Graphviz digraph
    Dot,
    /// A flow document
    Json,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<End, Unusable> {
    let files = if args.files.is_empty() { settings::flows()? } else { args.files.clone() };
    if files.is_empty() {
        let why = "it is not in this folder or above it, or names no document; write `flows = [\"flow.json\"]` into it, \
                   or name flow documents";
        return Err(Unusable::new(settings::FILE, why));
    }
    let mut flow = Flow::default();
    for file in &files {
        flow.services.extend(read(file)?.services);
    }
    print(&drawn(&flow, args.format)?)?;
    let faults = flow.check();
    for fault in &faults {
        say(&format!("malote: {fault}"));
    }
    Ok(if faults.is_empty() { End::Fine } else { End::Wrong })
}

/// The names of the services in flow documents.
pub fn names(files: &[PathBuf]) -> Result<Vec<String>, Unusable> {
    let mut names = Vec::new();
    for file in files {
        names.extend(read(file)?.services.into_iter().map(|service| service.name));
    }
    Ok(names)
}

fn read(file: &Path) -> Result<Flow, Unusable> {
    let text = fs::read(file).map_err(|error| Unusable::new(file.display(), error))?;
    let flow: Flow = serde_json::from_slice(&text)
        .map_err(|error| Unusable::new(file.display(), format!("not a flow document: {error}")))?;
    match flow.services.is_empty() {
        true => Err(Unusable::new(file.display(), "a flow document without services")),
        false => Ok(flow),
    }
}

fn drawn(flow: &Flow, form: Form) -> Result<String, Unusable> {
    Ok(match form {
        Form::Text => flow.text(),
        Form::Mermaid => flow.mermaid(),
        Form::Dot => flow.dot(),
        Form::Json => serde_json::to_string_pretty(flow).map_err(|error| Unusable::new("the flow", error))? + "\n",
    })
}
