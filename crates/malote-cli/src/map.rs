//! `malote map`: the flow of several services, put together, checked and drawn.
//!
//! Services declare their part by their handlers, each in a repository of its own perhaps, and leave
//! it as a document. Only together do they show whether an event is emitted that nobody consumes.

use crate::{
    End, Unusable,
    out::{plain, print, say},
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
/// Faults (an event that nobody consumes or emits, a name used twice, a type on two topics, a saga whose definition is
/// wrong or that asks for what nobody handles) go to standard error, and the exit code is 1.
#[derive(clap::Args)]
pub struct Args {
    /// Flow documents (JSON), put together to one flow; without any, those that malote.toml names, in
    /// this folder or one above
    files: Vec<PathBuf>,
    /// Only this saga: its steps as a table, its picture, or its outline; with @VERSION the one of that version
    #[arg(long, value_name = "NAME")]
    saga: Option<String>,
    /// In which form
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Form {
    /// Lines: consumes → service → emits; then each saga as a table
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
    print(&match &args.saga {
        Some(saga) => drawn_saga(&flow, saga, args.format)?,
        None => drawn(&flow, args.format)?,
    })?;
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
        Form::Text => flow.sagas().fold(flow.text(), |text, (service, saga)| {
            let of = format!("\n{}\ncoordinated by {service}\n", saga.table().trim_end());
            text + &plain_lines(&of)
        }),
        Form::Mermaid => flow.mermaid(),
        Form::Dot => flow.dot(),
        Form::Json => serde_json::to_string_pretty(flow).map_err(|error| Unusable::new("the flow", error))? + "\n",
    })
}

/// One saga, or one for each version that is asked for.
fn drawn_saga(flow: &Flow, wanted: &str, form: Form) -> Result<String, Unusable> {
    let (name, version) = match wanted.rsplit_once('@') {
        Some((name, version)) => match version.parse::<u32>() {
            Ok(version) => (name, Some(version)),
            Err(_) => return Err(Unusable::new("--saga", format!("NAME or NAME@VERSION is expected, not {wanted:?}"))),
        },
        None => (wanted, None),
    };
    let named = flow.sagas().map(|(_, saga)| saga).filter(|saga| saga.saga == name);
    let newest = named.filter(|saga| version.is_none_or(|version| saga.version == version));
    let Some(saga) = newest.max_by_key(|saga| saga.version) else {
        let names: Vec<_> = flow.sagas().map(|(_, saga)| format!("{}@{}", saga.saga, saga.version)).collect();
        let there =
            if names.is_empty() { "no service has any".into() } else { format!("there are {}", names.join(", ")) };
        return Err(Unusable::new("--saga", format!("there is no saga {wanted:?}; {there}")));
    };
    Ok(match form {
        Form::Text => plain_lines(&saga.table()),
        Form::Mermaid => plain_lines(&saga.mermaid()),
        Form::Json => serde_json::to_string_pretty(saga).map_err(|error| Unusable::new("the saga", error))? + "\n",
        Form::Dot => return Err(Unusable::new("--format", "a saga is drawn as mermaid, not as dot")),
    })
}

fn plain_lines(text: &str) -> String {
    text.lines().map(|line| plain(line) + "\n").collect()
}
