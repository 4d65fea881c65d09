//! Which rows are meant.

use crate::{Unusable, when};
use chrono::{DateTime, Utc};
use malote::{Class, inspect::Filter};
use malote_core::By;

/// Which ones; what is not given chooses all, and all that is given has to hold.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Which ones (all that is given has to hold)")]
pub struct Chosen {
    /// Of this event type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Of this topic
    #[arg(long)]
    topic: Option<String>,
    /// Of this ordering key
    #[arg(long)]
    key: Option<String>,
    /// Of this event id, or correlation id
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Written, parked or given up at or after this time
    #[arg(long, value_name = "TIME", value_parser = when::time)]
    since: Option<DateTime<Utc>>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = when::time)]
    until: Option<DateTime<Utc>>,
}

/// Whose, and how they failed.
#[derive(clap::Args, Clone)]
pub struct Failing {
    /// Of this consumer (NAME, or "consumer NAME"), or relay ("relay NAME")
    #[arg(long, value_name = "WHO", value_parser = by)]
    by: Option<By>,
    /// Whose last failure was of this class: conflict, transient, unknown, final
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
}

fn by(text: &str) -> Result<By, String> {
    match text {
        "" => Err("a name is expected".into()),
        name if !name.contains(' ') => Ok(By::Consumer(name.to_owned())),
        text => text.parse(),
    }
}

impl Chosen {
    /// For the store.
    pub fn filter(&self) -> Filter {
        Filter {
            kind: self.kind.clone(),
            topic: self.topic.clone(),
            key: self.key.clone(),
            event: self.event.clone(),
            since: self.since,
            until: self.until,
            ..Filter::default()
        }
    }

    /// Whether nothing is chosen, and so everything.
    pub fn is_empty(&self) -> bool {
        let texts = [&self.kind, &self.topic, &self.key, &self.event];
        texts.iter().all(|text| text.is_none()) && self.since.is_none() && self.until.is_none()
    }
}

impl Failing {
    /// A filter of dead letters.
    pub fn of_dead(&self, filter: Filter) -> Filter {
        Filter { by: self.by.as_ref().map(By::to_string), class: self.class(), ..filter }
    }

    /// A filter of parked messages, which only consumers have.
    pub fn of_parked(&self, filter: Filter) -> Result<Filter, Unusable> {
        let by = match &self.by {
            Some(By::Relay(_)) => return Err(Unusable::new("--by", "a relay parks nothing; name a consumer")),
            Some(By::Consumer(name)) => Some(name.clone()),
            None => None,
        };
        Ok(Filter { by, class: self.class(), ..filter })
    }

    fn class(&self) -> Option<String> {
        self.class.map(|class| class.as_str().to_owned())
    }

    /// Whether nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.by.is_none() && self.class.is_none()
    }
}

/// An act has to say what it is meant for, and not twice.
pub fn all_or_some(all: bool, some: bool) -> Result<(), Unusable> {
    match (all, some) {
        (false, false) => Err(Unusable("say what is meant: --all, or which ones (see --help)".into())),
        (true, true) => Err(Unusable::new("--all", "it means everything, so nothing else can be chosen beside it")),
        _ => Ok(()),
    }
}
