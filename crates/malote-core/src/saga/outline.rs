//! A definition as data: to be shown, drawn, compared with another version, and put on the map.

use super::{CommandType, Instance, Saga, StepState, step::StepDef};
use crate::{
    EventType,
    retry::Policy,
    topology::{Reaction, Route},
};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// What can be said of a definition without running it. Kept in a file beside the code, it shows when a
/// change needs a new version: see [`differences`](Self::differences).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// The saga's name.
    pub saga: String,
    /// Its version.
    pub version: u32,
    /// Its steps, in order.
    pub steps: Vec<StepOutline>,
}

/// What can be said of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOutline {
    /// Its place in the order, from 0; steps of one place are done at the same time.
    pub stage: usize,
    /// Its name.
    pub name: String,
    /// What it is in the saga.
    pub kind: StepKind,
    /// Whether it is done for each of several parts.
    pub per_part: bool,
    /// Whether it may be left out.
    pub conditional: bool,
    /// What is asked.
    pub asks: CommandType,
    /// How long an answer is awaited, in milliseconds; none for what is done in the saga's own transaction.
    pub deadline_ms: Option<u64>,
    /// How often it is asked at most, by itself.
    pub attempts: u32,
    /// What undoes it.
    pub undone_by: Vec<UndoOutline>,
    /// Whether it leaves nothing that would have to be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing_to_undo: bool,
}

/// What can be said of a compensation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoOutline {
    /// What is asked.
    pub asks: CommandType,
    /// Whether it applies only to some states.
    pub conditional: bool,
    /// Whether it is made only when a person asks.
    pub on_request: bool,
    /// Whether it is done in the saga's own transaction.
    pub local: bool,
}

/// What a step is in its saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Before the pivot: can be undone.
    Compensatable,
    /// The point of no return.
    Pivot,
    /// After the pivot: asked until it is done.
    Retriable,
}

impl StepKind {
    /// Its name where people and scripts read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compensatable => "compensatable",
            Self::Pivot => "pivot",
            Self::Retriable => "retriable",
        }
    }
}

impl<S> Saga<S> {
    /// The definition as data.
    pub fn outline(&self) -> Outline {
        let steps = self.steps().map(|(stage, step)| self.step_outline(stage, step)).collect();
        Outline { saga: self.name.clone(), version: self.version, steps }
    }

    fn step_outline(&self, stage: usize, step: &StepDef<S>) -> StepOutline {
        let policy: Option<Policy> = step.forward.policy(self.usual_policy(stage));
        let undone_by = step.undos.iter().map(|undo| UndoOutline {
            asks: undo.exchange.types.clone(),
            conditional: undo.when.is_some(),
            on_request: undo.on_request,
            local: undo.exchange.local,
        });
        StepOutline {
            stage,
            name: step.name.clone(),
            kind: match self.pivot() {
                _ if step.pivot => StepKind::Pivot,
                Some(pivot) if stage > pivot => StepKind::Retriable,
                _ => StepKind::Compensatable,
            },
            per_part: step.parts.is_some(),
            conditional: step.when.is_some(),
            asks: step.forward.types.clone(),
            deadline_ms: policy.map(|policy| policy.deadline.as_millis() as u64),
            attempts: policy.map_or(1, |policy| policy.attempts),
            undone_by: undone_by.collect(),
            nothing_to_undo: step.nothing_to_undo,
        }
    }

    /// Whether this definition can go on with an instance: the same name and version, and no step in it
    /// that this one does not have. Says what is wrong otherwise.
    pub fn fits<T>(&self, instance: &Instance<T>) -> Result<(), String> {
        if (instance.definition.as_str(), instance.version) != (self.name.as_str(), self.version) {
            let (name, version) = (&instance.definition, instance.version);
            return Err(format!(
                "the instance is of {name} version {version}, not of {} version {}",
                self.name, self.version
            ));
        }
        for leg in &instance.legs {
            let Some((_, step)) = self.find(&leg.id.step) else {
                return Err(format!("there is no step {:?}", leg.id.step));
            };
            let whole = leg.state == StepState::LeftOut || step.parts.is_none();
            if whole != leg.id.part.is_none() {
                return Err(format!("the step {:?} has parts in one of the two, and none in the other", leg.id.step));
            }
            let sent = leg.undoing.as_ref().and_then(|asking| asking.sent.as_ref());
            if let Some(sent) = sent.filter(|sent| step.undo_by_kind(&sent.kind).is_none()) {
                return Err(format!("the step {:?} is not undone by {}", leg.id.step, sent.kind));
            }
        }
        Ok(())
    }

    /// The commands that a start sends: what the saga's service emits from its edge.
    pub fn first(&self) -> Vec<EventType> {
        self.outline().commands_from(0)
    }

    /// What the saga's service reacts to and emits, for [`Flow`](crate::topology::Flow).
    pub fn routes(&self) -> Vec<Route> {
        self.outline().routes()
    }
}

impl Outline {
    /// The commands of a stage, and of those after it as far as the ones before may be left out or are
    /// done in the saga's own transaction.
    fn commands_from(&self, stage: usize) -> Vec<EventType> {
        let mut commands = Vec::new();
        for at in stage..=self.steps.last().map_or(0, |step| step.stage) {
            let steps: Vec<_> = self.steps.iter().filter(|step| step.stage == at).collect();
            commands
                .extend(steps.iter().filter(|step| step.deadline_ms.is_some()).map(|step| step.asks.command.clone()));
            if steps.iter().any(|step| step.deadline_ms.is_some() && !step.conditional && !step.per_part) {
                break;
            }
        }
        commands
    }

    /// The compensations that may follow on something in a step: those of its stage and of the stages before
    /// it, but of its own only what comes after the first `past`; all of them where it has several parts.
    fn undos_from(&self, step: &StepOutline, past: usize) -> Vec<EventType> {
        let steps = self.steps.iter().rev().filter(|other| other.stage <= step.stage);
        let undos = steps.flat_map(|other| {
            let over = if other.name == step.name && !step.per_part { past } else { 0 };
            other.undone_by.iter().skip(over)
        });
        undos.filter(|undo| !undo.local).map(|undo| undo.asks.command.clone()).collect()
    }

    /// What the service of the saga reacts to, and emits in turn.
    pub fn routes(&self) -> Vec<Route> {
        let mut routes: Vec<Route> = Vec::new();
        let mut add = |consumes: &EventType, emits: Vec<EventType>| {
            let known = routes.iter().position(|route| route.consumes == *consumes);
            let route = match known {
                Some(known) => &mut routes[known],
                None => {
                    routes.push(Route { consumes: consumes.clone(), by: Reaction::Saga, emits: Vec::new() });
                    let last = routes.len() - 1;
                    &mut routes[last]
                }
            };
            for event in emits {
                if !route.emits.contains(&event) {
                    route.emits.push(event);
                }
            }
        };
        for step in &self.steps {
            if step.deadline_ms.is_some() {
                add(&step.asks.done, self.commands_from(step.stage + 1));
                if let Some(refused) = &step.asks.refused {
                    add(refused, self.undos_from(step, step.undone_by.len()));
                }
            }
            for (at, undo) in step.undone_by.iter().enumerate().filter(|(_, undo)| !undo.local) {
                for answer in undo.asks.answers() {
                    add(answer, self.undos_from(step, at + 1));
                }
            }
        }
        // An answer may come when the saga has turned back already; that is told of the steps that nothing
        // else undoes.
        for step in &self.steps {
            let undone = step.undone_by.iter().filter(|undo| !undo.local).map(|undo| &undo.asks.command);
            let untold: Vec<EventType> =
                undone.filter(|undo| !routes.iter().any(|route| route.emits.contains(undo))).cloned().collect();
            if let Some(done) = routes.iter_mut().find(|route| route.consumes == step.asks.done) {
                done.emits.extend(untold);
            }
        }
        routes
    }

    /// What of `newer` an instance that began under this outline would not survive, where both have the
    /// same version; nothing where the version was raised. Deadlines and numbers of attempts may change.
    pub fn differences(&self, newer: &Self) -> Vec<String> {
        if (&self.saga, self.version) != (&newer.saga, newer.version) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for old in &self.steps {
            let Some(new) = newer.steps.iter().find(|step| step.name == old.name) else {
                found.push(format!("the step {:?} is gone", old.name));
                continue;
            };
            let changes = [
                (old.stage != new.stage, "comes at another place"),
                (old.kind != new.kind, "is on another side of the pivot"),
                (old.per_part != new.per_part, "has parts in one of the two, and none in the other"),
                (old.deadline_ms.is_some() != new.deadline_ms.is_some(), "is local in one of the two only"),
                (old.asks != new.asks, "asks with other types"),
                (old.undone_by != new.undone_by, "is undone in another way"),
            ];
            let changed = changes.into_iter().filter(|(changed, _)| *changed);
            found.extend(changed.map(|(_, what)| format!("the step {:?} {what}", old.name)));
        }
        let known = |step: &&StepOutline| !self.steps.iter().any(|old| old.name == step.name);
        found.extend(newer.steps.iter().filter(known).map(|step| format!("the step {:?} is new", step.name)));
        found
    }

    /// The step table: what each step asks, how its end is known, and what happens when it cannot go on.
    pub fn table(&self) -> String {
        let mut out = format!("# {} version {}\n\n", self.saga, self.version);
        out.push_str("| step | kind | command | done | refused | compensation | if it does not answer |\n");
        out.push_str("|---|---|---|---|---|---|---|\n");
        for step in &self.steps {
            let _ = writeln!(
                out,
                "| {} | {} | `{}` | `{}` | {} | {} | {} |",
                step.title(),
                step.kind.as_str(),
                step.asks.command.name,
                step.asks.done.name,
                step.asks.refused.as_ref().map_or("–".into(), |refused| format!("`{}`", refused.name)),
                step.compensations(),
                step.silence(),
            );
        }
        out
    }
}

impl StepOutline {
    fn title(&self) -> String {
        let notes = [(self.per_part, "for each"), (self.conditional, "unless left out")];
        let notes: Vec<_> = notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note).collect();
        match notes.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, notes.join(", ")),
        }
    }

    fn compensations(&self) -> String {
        let each = |undo: &UndoOutline| {
            let request = if undo.on_request { " on request" } else { "" };
            let some = if undo.conditional { " where it applies" } else { "" };
            format!("`{}`{request}{some}", undo.asks.command.name)
        };
        match self.undone_by.is_empty() {
            true => "–".into(),
            false => self.undone_by.iter().map(each).collect::<Vec<_>>().join(", else "),
        }
    }

    fn silence(&self) -> String {
        let Some(deadline) = self.deadline_ms else { return "local".into() };
        let wait = std::time::Duration::from_millis(deadline);
        let asks = match self.attempts {
            1 => String::new(),
            many => format!(", asked up to {many} times"),
        };
        let then = match self.kind {
            StepKind::Compensatable => "undo it and what came before",
            StepKind::Pivot | StepKind::Retriable => "stuck",
        };
        format!("{wait:?}{asks}: {then}")
    }
}
