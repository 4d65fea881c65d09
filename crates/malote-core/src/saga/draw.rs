//! Pictures of a definition and of one run.

use super::{Direction, Instance, Leg, Outline, StepKind, StepOutline, StepState};
use std::fmt::Write as _;

impl Outline {
    /// The definition as a Mermaid flowchart: forward along full arrows, back along dotted ones.
    pub fn mermaid(&self) -> String {
        let mut out = "flowchart TD\n".to_owned();
        for (n, step) in self.steps.iter().enumerate() {
            let _ = writeln!(out, "  {}", self.node(n, step, ""));
        }
        self.arrows(&mut out);
        out + "  classDef pivot stroke-width:4px\n"
    }

    /// One run as a Mermaid flowchart: each step as it stands, the steps to come among them.
    pub fn mermaid_of<S>(&self, instance: &Instance<S>) -> String {
        let mut out = "flowchart TD\n".to_owned();
        for (n, step) in self.steps.iter().enumerate() {
            let legs = instance.legs.iter().filter(|leg| leg.id.step == step.name);
            let states: Vec<_> = legs.map(|leg| format!("<br/>{}", describe(leg))).collect();
            let state = if states.is_empty() { "<br/>waiting".into() } else { states.concat() };
            let _ = writeln!(out, "  {}", self.node(n, step, &state));
        }
        self.arrows(&mut out);
        for (n, step) in self.steps.iter().enumerate() {
            let legs: Vec<_> = instance.legs.iter().filter(|leg| leg.id.step == step.name).collect();
            let class = ["open", "pending", "undone", "done"].into_iter().find(|c| legs.iter().any(|l| class(l) == *c));
            if let Some(class) = class {
                let _ = writeln!(out, "  class s{n} {class}");
            }
        }
        out.push_str("  classDef pivot stroke-width:4px\n  classDef done fill:#cfc\n  classDef pending fill:#ffc\n");
        out + "  classDef undone fill:#ddd\n  classDef open fill:#fcc\n"
    }

    fn node(&self, n: usize, step: &StepOutline, more: &str) -> String {
        let pivot = if step.kind == StepKind::Pivot { ":::pivot" } else { "" };
        let ask = &step.asks.command.name;
        format!("s{n}[\"{}<br/>{}{}\"]{pivot}", label(&step.name), label(ask), more)
    }

    fn arrows(&self, out: &mut String) {
        let last = self.steps.last().map_or(0, |step| step.stage);
        for (n, step) in self.steps.iter().enumerate() {
            let next = self.steps.iter().enumerate().filter(|(_, s)| s.stage == step.stage + 1);
            for (m, other) in next {
                let maybe = if other.conditional { "|\"if needed\"|" } else { "" };
                let _ = writeln!(out, "  s{n} -->{maybe} s{m}");
            }
            if step.stage == last {
                let _ = writeln!(out, "  s{n} --> completed([completed])");
            }
            for (u, undo) in step.undone_by.iter().enumerate() {
                let note = if undo.on_request { "on request" } else { "undo" };
                let _ = writeln!(out, "  s{n} -.->|\"{note}\"| s{n}u{u}[\"{}\"]", label(&undo.asks.command.name));
            }
        }
    }

    /// One run as text: each step with how it stands, how often it was asked, and why; the steps to come.
    pub fn text_of<S>(&self, instance: &Instance<S>) -> String {
        let mut out = format!(
            "{} version {}  {}  {}",
            instance.definition,
            instance.version,
            instance.id,
            instance.status.as_str()
        );
        if let Some(reason) = &instance.reason {
            let _ = write!(out, ": {reason}");
        }
        out.push('\n');
        let mut rows: Vec<[String; 3]> = Vec::new();
        for step in &self.steps {
            let legs: Vec<_> = instance.legs.iter().filter(|leg| leg.id.step == step.name).collect();
            if legs.is_empty() {
                rows.push(["·".into(), step.name.clone(), "waiting".into()]);
            }
            rows.extend(legs.iter().map(|leg| [sign(leg).into(), leg.id.to_string(), describe(leg)]));
        }
        let width = rows.iter().map(|row| row[1].chars().count()).max().unwrap_or(0);
        for [sign, name, state] in rows {
            let _ = writeln!(out, "  {sign} {name:width$}  {state}");
        }
        out
    }
}

/// How a leg stands, in words.
fn describe(leg: &Leg) -> String {
    let mut text = leg.state.as_str().to_owned();
    let asking = leg.asking(if leg.state.is_undo() { Direction::Undo } else { Direction::Do });
    if let Some(asking) = asking.filter(|asking| asking.asks > 1) {
        let _ = write!(text, ", asked {} times", asking.asks);
    }
    if let Some(reason) = leg.state.reason() {
        let _ = write!(text, ": {}", label(reason));
    }
    text
}

fn class(leg: &Leg) -> &'static str {
    match leg.state {
        StepState::Done | StepState::Skipped => "done",
        StepState::Undone => "undone",
        StepState::LeftOut => "left",
        _ if leg.state.is_pending() => "pending",
        _ => "open",
    }
}

fn sign(leg: &Leg) -> &'static str {
    match class(leg) {
        "done" => "✓",
        "undone" => "↩",
        "pending" => "…",
        "left" => "–",
        _ => "✗",
    }
}

/// A text inside quotes.
fn label(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '"' | '\\' | '\n' | '\r' | '<' | '>') { ' ' } else { c }).collect()
}
