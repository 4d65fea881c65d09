//! Listens to what is told of missing records.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// What was told, one line each.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    /// Listens from now on, in all threads; once in a test program.
    pub fn listen() -> Self {
        let told = Self::default();
        tracing::subscriber::set_global_default(told.clone()).unwrap();
        told
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

const FIELDS: [&str; 5] = ["group", "topic", "partition", "first", "last"];

#[derive(Default)]
struct Fields([Option<String>; 5]);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if let Some(i) = FIELDS.iter().position(|name| *name == field.name()) {
            self.0[i] = Some(format!("{value:?}").trim_matches('"').to_owned());
        }
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let [Some(group), Some(topic), Some(partition), Some(first), Some(last)] = fields.0 {
            self.0.lock().unwrap().push(format!("{group} {topic} {partition} {first} {last}"));
        }
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
