//! The flow, as the handlers declare it: who consumes what and emits what.
//!
//! In a choreography nobody holds the whole sequence; it only emerges from who listens to what. So it
//! is taken from the handlers' own types, checked, and drawn.

use crate::{
    EventType,
    saga::{CommandType, Outline},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt::Write as _};

/// Several services and what passes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// The services, in the order in which they were named.
    pub services: Vec<ServiceFlow>,
}

/// One service's part of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFlow {
    /// The service's name, which is also its consumer group.
    pub name: String,
    /// What it reacts to.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// What it emits without being asked by an event: from its edge.
    #[serde(default)]
    pub emits: Vec<EventType>,
    /// Events of its own that nobody is expected to consume.
    #[serde(default)]
    pub terminal: Vec<EventType>,
    /// The sagas that it coordinates, every version of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sagas: Vec<Outline>,
    /// What is wrong with its sagas, as its own start would say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}

/// One reaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The event it reacts to.
    pub consumes: EventType,
    /// How.
    pub by: Reaction,
    /// What it may emit.
    #[serde(default)]
    pub emits: Vec<EventType>,
}

/// How a service reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    /// In its own database, in one transaction.
    Handler,
    /// By a call to the outside.
    Effect,
    /// By advancing a saga.
    Saga,
}

/// Something about a flow that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Emitted, and nobody listens.
    #[error("{service} emits {event}, and nobody consumes it: add a handler, or declare it with .terminal::<…>()")]
    Unconsumed {
        /// Who emits.
        service: String,
        /// What.
        event: String,
    },
    /// A saga asks for it, and nobody obeys.
    #[error(
        "saga {saga} of {service} asks for {command} in its step {step:?}, and nobody handles it: add .command(…) to the service that listens to {topic}"
    )]
    Unhandled {
        /// Whose saga.
        service: String,
        /// Which.
        saga: String,
        /// In which step, or for which step's undoing.
        step: String,
        /// What.
        command: String,
        /// Where it travels.
        topic: String,
    },
    /// A saga takes answers to a command that are not those of whoever handles it.
    #[error(
        "saga {saga} awaits {awaited} as the answer to {command}, and {handler} gives {given}: both have to use one contract"
    )]
    OtherAnswer {
        /// Which saga.
        saga: String,
        /// The command.
        command: String,
        /// What is awaited.
        awaited: String,
        /// Who handles it.
        handler: String,
        /// What that one gives.
        given: String,
    },
    /// A definition that its own service would refuse to start with.
    #[error("{service} would not start: {what}")]
    Mistaken {
        /// Which service.
        service: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Waited for, and nobody emits it.
    #[error(
        "{service} consumes {event}, and nobody emits it: add the service that does, or declare it with .emits::<…>() where an edge sends it"
    )]
    Unemitted {
        /// Who waits.
        service: String,
        /// For what.
        event: String,
    },
    /// One type on two topics.
    #[error("{event} travels on two topics, {one} and {other}: an event type has one topic")]
    TwoTopics {
        /// The type.
        event: String,
        /// One topic.
        one: String,
        /// The other.
        other: String,
    },
    /// One name, two services.
    #[error("two services are named {0}: the name is the consumer group, so each would get half of the events")]
    TwoServices(String),
}

impl ServiceFlow {
    /// Every type that may leave the service.
    pub fn all_emitted(&self) -> impl Iterator<Item = &EventType> {
        self.routes.iter().flat_map(|r| &r.emits).chain(&self.emits)
    }

    /// The topics it listens to, sorted, each once.
    pub fn topics(&self) -> Vec<String> {
        let topics: BTreeSet<_> = self.routes.iter().map(|r| r.consumes.topic.clone()).collect();
        topics.into_iter().collect()
    }

    /// The topics it writes to, sorted, each once.
    pub fn emitted_topics(&self) -> Vec<String> {
        let topics: BTreeSet<_> = self.all_emitted().map(|e| e.topic.clone()).collect();
        topics.into_iter().collect()
    }
}

impl Flow {
    /// What cannot be meant; empty when the flow closes.
    pub fn check(&self) -> Vec<Fault> {
        let consumed: BTreeSet<_> = self.services.iter().flat_map(|s| &s.routes).map(|r| &r.consumes.name).collect();
        let emitted: BTreeSet<_> = self.services.iter().flat_map(|s| s.all_emitted()).map(|e| &e.name).collect();
        let terminal: BTreeSet<_> = self.services.iter().flat_map(|s| &s.terminal).map(|e| &e.name).collect();
        let mut faults = BTreeSet::new();
        let mut found = Vec::new();
        let mut add = |fault: Fault| {
            if faults.insert(fault.to_string()) {
                found.push(fault);
            }
        };
        for (i, service) in self.services.iter().enumerate() {
            if self.services[..i].iter().any(|other| other.name == service.name) {
                add(Fault::TwoServices(service.name.clone()));
            }
            service.mistakes.iter().for_each(|what| {
                add(Fault::Mistaken { service: service.name.clone(), what: what.clone() });
            });
            for fault in self.saga_faults(service) {
                add(fault);
            }
            let asked: BTreeSet<_> = commands(service).map(|(_, _, asks)| &asks.command.name).collect();
            let said = service.all_emitted().filter(|e| !asked.contains(&e.name));
            for event in said.filter(|e| !consumed.contains(&e.name) && !terminal.contains(&e.name)) {
                add(Fault::Unconsumed { service: service.name.clone(), event: event.name.clone() });
            }
            for event in service.routes.iter().map(|r| &r.consumes).filter(|e| !emitted.contains(&e.name)) {
                add(Fault::Unemitted { service: service.name.clone(), event: event.name.clone() });
            }
        }
        let mut topics = std::collections::BTreeMap::new();
        for event in self.services.iter().flat_map(|s| s.all_emitted().chain(s.routes.iter().map(|r| &r.consumes))) {
            let topic = topics.entry(&event.name).or_insert(&event.topic);
            if **topic != event.topic {
                add(Fault::TwoTopics { event: event.name.clone(), one: (*topic).clone(), other: event.topic.clone() });
            }
        }
        found
    }

    /// What a service's sagas ask for that nobody does, or answers otherwise.
    fn saga_faults(&self, service: &ServiceFlow) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (outline, step, asks) in commands(service) {
            let handlers = self.services.iter().flat_map(|s| s.routes.iter().map(move |route| (&s.name, route)));
            let handlers: Vec<_> = handlers.filter(|(_, route)| route.consumes.name == asks.command.name).collect();
            let saga = format!("{} version {}", outline.saga, outline.version);
            if handlers.is_empty() && !crate::planted::is("map-unhandled-unseen") {
                let EventType { name: command, topic } = asks.command.clone();
                let (service, step) = (service.name.clone(), step.to_owned());
                faults.push(Fault::Unhandled { service, saga, step, command, topic });
                continue;
            }
            let given = |route: &Route| route.emits.iter().any(|event| event.name == asks.done.name);
            if let Some((handler, route)) = handlers.iter().find(|(_, route)| !given(route)) {
                let names: Vec<_> = route.emits.iter().map(|event| event.name.as_str()).collect();
                let given = if names.is_empty() { "nothing".into() } else { names.join(" | ") };
                let (command, awaited) = (asks.command.name.clone(), asks.done.name.clone());
                faults.push(Fault::OtherAnswer { saga, command, awaited, handler: (*handler).clone(), given });
            }
        }
        faults
    }

    /// Every saga with its service.
    pub fn sagas(&self) -> impl Iterator<Item = (&str, &Outline)> {
        self.services.iter().flat_map(|service| service.sagas.iter().map(|saga| (service.name.as_str(), saga)))
    }

    /// The flow as lines of text: consumes → service → emits.
    pub fn text(&self) -> String {
        let rows: Vec<[String; 3]> = self.rows().map(|(from, service, to)| [from, service, to]).collect();
        let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        rows.iter().fold(String::new(), |mut out, [from, service, to]| {
            let _ = writeln!(out, "{from:first$}  →  {service:second$}  →  {to}");
            out
        })
    }

    fn rows(&self) -> impl Iterator<Item = (String, String, String)> + '_ {
        self.services.iter().flat_map(|service| {
            let names = |events: &[EventType]| match events {
                [] => "(nothing)".to_owned(),
                some => some.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(" | "),
            };
            let edge =
                (!service.emits.is_empty()).then(|| ("(edge)".to_owned(), service.name.clone(), names(&service.emits)));
            let routes = service.routes.iter().map(move |route| {
                let by = if route.by == Reaction::Effect {
                    format!("{} (effect)", service.name)
                } else {
                    service.name.clone()
                };
                (route.consumes.name.clone(), by, names(&route.emits))
            });
            edge.into_iter().chain(routes)
        })
    }

    /// Arrows from service to service, each with the event's name; `(edge)` and `(nobody)` where an end is open.
    fn arrows(&self) -> BTreeSet<(String, String, String)> {
        let mut arrows = BTreeSet::new();
        for from in &self.services {
            for event in from.all_emitted() {
                let to: Vec<_> =
                    self.services.iter().filter(|s| s.routes.iter().any(|r| r.consumes.name == event.name)).collect();
                if to.is_empty() {
                    arrows.insert((from.name.clone(), event.name.clone(), "nobody".to_owned()));
                }
                arrows.extend(to.iter().map(|s| (from.name.clone(), event.name.clone(), s.name.clone())));
            }
        }
        arrows
    }

    /// The flow as a Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        self.arrows().iter().fold("flowchart LR\n".to_owned(), |mut out, (from, event, to)| {
            let _ = writeln!(
                out,
                "  {}[\"{}\"] -->|\"{}\"| {}[\"{}\"]",
                node(from),
                label(from),
                label(event),
                node(to),
                label(to)
            );
            out
        })
    }

    /// The flow as a Graphviz digraph.
    pub fn dot(&self) -> String {
        let mut out = "digraph flow {\n  rankdir=LR; node [shape=box];\n".to_owned();
        for (from, event, to) in self.arrows() {
            let _ = writeln!(out, "  \"{}\" -> \"{}\" [label=\"{}\"];", label(&from), label(&to), label(&event));
        }
        out + "}\n"
    }
}

/// What a service's sagas ask of others: by saga and step.
fn commands(service: &ServiceFlow) -> impl Iterator<Item = (&Outline, &str, &CommandType)> {
    service.sagas.iter().flat_map(|saga| {
        saga.steps.iter().flat_map(move |step| {
            let own = step.deadline_ms.is_some().then_some(&step.asks);
            let undos = step.undone_by.iter().filter(|undo| !undo.local).map(|undo| &undo.asks);
            own.into_iter().chain(undos).map(move |asks| (saga, step.name.as_str(), asks))
        })
    })
}

/// A name as an identifier that Mermaid takes.
fn node(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A name inside quotes.
fn label(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '"' | '\\' | '\n' | '\r')).collect()
}
