//! What is taken of the saga's definition: names, order, types; as the order service wrote it down.

use serde_json::Value;

/// The steps of a definition, in their order.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// The steps.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Those of a lower one come before it.
    pub stage: u64,
    /// Up to here the saga may turn back by itself.
    pub pivot: bool,
    /// What is said for it.
    pub asks: Exchange,
    /// What undoes it.
    pub undone_by: Vec<Undo>,
}

/// A compensation.
#[derive(Clone, Debug)]
pub struct Undo {
    /// What is said.
    pub asks: Exchange,
    /// Only when a person asks for it.
    pub on_request: bool,
}

/// A command and its answers.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The command's type.
    pub command: String,
    /// Where it goes.
    pub topic: String,
    /// The answer's type when it was done.
    pub done: String,
    /// When it was refused; empty where it cannot be.
    pub refused: String,
    /// Done within the order service, so nothing of it lies on a topic.
    pub local: bool,
}

impl Outline {
    /// Reads its JSON.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        let json: Value = serde_json::from_str(json)?;
        Ok(Self { steps: list(&json["steps"]).map(step).collect() })
    }

    /// The step of this name.
    pub fn find(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// The service that a step asks: it is named in the topic of its commands.
    pub fn service(&self, step: &str) -> &str {
        self.find(step).and_then(|step| step.asks.topic.split('.').next()).unwrap_or("order")
    }
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

fn step(json: &Value) -> Step {
    let undone_by = list(&json["undone_by"]).map(|undo| Undo {
        asks: exchange(&undo["asks"], undo["local"] == true),
        on_request: undo["on_request"] == true,
    });
    Step {
        name: text(&json["name"]),
        stage: json["stage"].as_u64().unwrap_or_default(),
        pivot: json["kind"] == "pivot",
        asks: exchange(&json["asks"], json["deadline_ms"].is_null()),
        undone_by: undone_by.collect(),
    }
}

fn exchange(json: &Value, local: bool) -> Exchange {
    Exchange {
        command: text(&json["command"]["type"]),
        topic: text(&json["command"]["topic"]),
        done: text(&json["done"]["type"]),
        refused: text(&json["refused"]["type"]),
        local,
    }
}
