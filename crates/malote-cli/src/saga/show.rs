//! `malote saga show`: the whole story of one, in one look.

use super::{
    Id,
    find::Found,
    steps::{self, StepNow},
};
use crate::{
    End, Unusable,
    out::{self, Cell, age, maybe, plain, text, time},
    place::Place,
    status::SILENT_SECONDS,
};
use chrono::{DateTime, Utc};
use malote::{
    StoreError, chain,
    saga::{Deed, Direction, LogRow, Outline, Status},
};
use malote_core::saga::OpenDeed;
use serde::Serialize;
use std::collections::BTreeMap;

/// Show one: its steps, those to come too, what may be done about it, and its history
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    id: Id,
    /// For scripts: an object with `steps`, `acts` and `history`
    #[arg(long, conflicts_with = "mermaid")]
    json: bool,
    /// As a Mermaid flowchart: each step as it stands
    #[arg(long)]
    mermaid: bool,
    /// Also what its steps know of each other, which may be private
    #[arg(long, conflicts_with = "mermaid")]
    payload: bool,
    #[command(flatten)]
    place: Place,
}

/// An act that is possible now.
#[derive(Serialize)]
struct ActNow {
    act: &'static str,
    step: Option<String>,
    /// The command line, where TEXT and JSON stand for what only a person can say.
    command: String,
}

/// An act that a person asked for, and that no process has dealt with. Not its answer, which may be private.
#[derive(Serialize)]
struct Awaited {
    number: i64,
    act: &'static str,
    step: Option<String>,
    at: DateTime<Utc>,
    actor: String,
    reason: String,
}

/// The story, as scripts read it.
#[derive(Serialize)]
struct Story {
    service: String,
    id: String,
    definition: String,
    version: u32,
    status: Status,
    heading: Direction,
    reason: Option<String>,
    started_at: Option<DateTime<Utc>>,
    changed_at: Option<DateTime<Utc>>,
    /// For how long no process has said that it has code for this version; none where nobody ever did.
    code_seen_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<serde_json::Value>,
    steps: Vec<StepNow>,
    acts: Vec<ActNow>,
    awaited: Vec<Awaited>,
    history: Vec<LogRow>,
    #[serde(skip)]
    outlined: bool,
}

impl Args {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        let found = self.id.id.find(&self.place).await?;
        if self.mermaid {
            found.service.store.close().await;
            let outline = found.outline.as_ref().ok_or_else(|| {
                Unusable::new("--mermaid", "no process has told how this version is defined; one that starts does")
            })?;
            let picture = outline.mermaid_of(&found.saga);
            out::print(&picture.lines().map(|line| plain(line) + "\n").collect::<String>())?;
            return Ok(End::Fine);
        }
        let story = story(&found, self.payload).await;
        found.service.store.close().await;
        let story = story.map_err(|error| Unusable::new(&found.service.name, chain(&error)))?;
        if self.json { out::json(&story) } else { out::print(&story.text()) }?;
        Ok(End::Fine)
    }
}

async fn story(found: &Found, payload: bool) -> Result<Story, StoreError> {
    let Found { service, saga, outline } = found;
    let inspect = service.store.inspect();
    let due = inspect.scheduled_of(&steps::timers(saga)).await?;
    let due: BTreeMap<_, _> = due.iter().filter_map(|row| Some((row.id.parse().ok()?, row.due_at))).collect();
    let history = inspect.saga_log(saga.id).await?;
    let versions = inspect.status().await?.saga_versions;
    let ours = |of: &malote_core::saga::SagaVersion| of.definition == saga.definition && of.version == saga.version;
    Ok(Story {
        service: service.name.clone(),
        id: saga.id.to_string(),
        definition: saga.definition.clone(),
        version: saga.version,
        status: saga.status,
        heading: saga.heading,
        reason: saga.reason.clone(),
        started_at: history.first().map(|row| row.at),
        changed_at: history.last().map(|row| row.at),
        code_seen_seconds: versions.into_iter().find(ours).map(|of| of.seen_seconds),
        state: payload.then(|| serde_json::from_str(&saga.state).unwrap_or_else(|_| saga.state.clone().into())),
        steps: steps::of(saga, outline.as_ref(), &due),
        awaited: inspect.open_deeds(saga.id).await?.into_iter().map(awaited).collect(),
        acts: outline.as_ref().map(|outline| acts(found, outline)).unwrap_or_default(),
        history,
        outlined: outline.is_some(),
    })
}

fn awaited(OpenDeed { number, asked_at, act, deed }: OpenDeed) -> Awaited {
    let (step, name) = (deed.step().map(str::to_owned), deed.as_str());
    Awaited { number, act: name, step, at: asked_at, actor: act.actor, reason: act.reason }
}

fn acts(found: &Found, outline: &Outline) -> Vec<ActNow> {
    let deeds = outline.possible(&found.saga);
    deeds.iter().map(|deed| act(found, outline, deed)).collect()
}

fn act(Found { service, saga, .. }: &Found, outline: &Outline, deed: &Deed) -> ActNow {
    let mut command = format!("malote saga {} {}", deed.as_str(), saga.id);
    if let Some(step) = deed.step() {
        command += &format!(" --step {}", quoted(step));
    }
    if let Deed::Skip { step, .. } = deed
        && outline.answer_of(saga, step).is_some()
    {
        command += " --answer JSON";
    }
    command += &format!(" --service {} --reason TEXT", quoted(&service.name));
    ActNow { act: deed.as_str(), step: deed.step().map(str::to_owned), command }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    match !word.is_empty() && word.chars().all(bare) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl Story {
    fn text(&self) -> String {
        let at = |at: Option<DateTime<Utc>>| at.map_or_else(|| "-".into(), time);
        let turned = if self.heading == Direction::Undo { ", turned back" } else { "" };
        let mut lines = vec![
            ("saga", format!("{} of {}", self.id, self.service)),
            ("definition", format!("{} version {}", self.definition, self.version)),
            ("status", format!("{}{turned}", self.status.as_str())),
        ];
        lines.extend(self.reason.clone().map(|reason| ("because", reason)));
        lines.push(("began", at(self.started_at)));
        lines.push(("changed", at(self.changed_at)));
        lines.extend(self.state.as_ref().map(|state| ("state", state.to_string())));
        let head: String = lines.iter().map(|(name, value)| format!("{name:<11} {}\n", plain(value))).collect();
        let awaited = self.awaited_text();
        format!("{head}\n{}\n{awaited}{}\n{}", steps::table(&self.steps), self.may(), history(&self.history))
    }

    /// What was asked for and not done yet: asking again would ask twice.
    fn awaited_text(&self) -> String {
        if self.awaited.is_empty() {
            return String::new();
        }
        let rows = self.awaited.iter().map(|of| {
            vec![
                Cell::new(of.number),
                Cell::new(time(of.at)),
                Cell::new(of.act),
                maybe(of.step.as_deref()),
                text(&of.actor),
                text(&of.reason),
            ]
        });
        let table = out::table(&["act", "asked at", "what", "step", "who", "reason"], rows);
        format!("Asked for, and no process has dealt with it yet; do not ask again:\n{table}\n")
    }

    /// What may be done, and what stands in the way of it.
    fn may(&self) -> String {
        let (name, version) = (plain(&self.definition), self.version);
        let mut text = match (self.outlined, self.acts.is_empty()) {
            (false, _) => format!(
                "No process has told how {name} version {version} is defined, so steps to come and possible acts are \
                 not known here.\n"
            ),
            (true, true) => format!("Nothing more can be done about it: it is {}.\n", self.status.as_str()),
            (true, false) => {
                let lines = self.acts.iter().map(|act| format!("  {}\n", plain(&act.command)));
                format!("What you may do:\n{}", lines.collect::<String>())
            }
        };
        let silent = self.code_seen_seconds.filter(|seconds| *seconds > SILENT_SECONDS);
        if let Some(seconds) = silent.filter(|_| !self.status.is_final()) {
            text += &format!(
                "No process has said for {} that it has code for {name} version {version}: it stands still, and what \
                 you ask for waits, until one does.\n",
                age(seconds)
            );
        }
        text
    }
}

fn history(rows: &[LogRow]) -> String {
    let cells = rows.iter().map(|LogRow { at, trace, entry }| {
        let undo = if entry.direction == Some(Direction::Undo) { " (undo)" } else { "" };
        vec![
            Cell::new(time(*at)),
            Cell::new(entry.what.as_str()),
            maybe(entry.leg.as_ref().map(|leg| format!("{leg}{undo}"))),
            maybe(entry.attempt.map(|attempt| attempt.to_string())),
            // cut, it would be of no help
            Cell::new(entry.reason.as_deref().map_or_else(|| "-".into(), plain)),
            maybe(entry.actor.as_deref()),
            maybe(entry.envelope.map(|id| id.to_string())),
            trace.as_deref().map_or_else(|| Cell::new("-"), text),
        ]
    });
    out::table(&["at", "what", "step", "attempt", "reason", "who", "envelope", "trace"], cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_words_for_a_shell() {
        for (word, shown) in
            [("charge", "charge"), ("reserve stock", "'reserve stock'"), ("a#b'c", r"'a#b'\''c'"), ("", "''")]
        {
            assert_eq!(quoted(word), shown);
        }
    }
}
