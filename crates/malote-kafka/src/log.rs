//! The client's own words, rationed.
//!
//! While a broker is away librdkafka reports each failed attempt to reach it, several times a second
//! and once per client. One line per kind in a while says the same.

use rdkafka::{ClientContext, config::RDKafkaLogLevel, error::KafkaError};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const EVERY: Duration = Duration::from_secs(10);

/// Counts what was kept back, by kind.
#[derive(Default)]
pub(crate) struct Ration {
    said: Mutex<HashMap<String, (Instant, u64)>>,
}

impl Ration {
    /// How many of this kind were kept back since the last time, or `None` to keep this one back too.
    pub(crate) fn take(&self, kind: &str) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match said.get_mut(kind) {
            Some((last, kept)) if now.duration_since(*last) < EVERY => {
                *kept += 1;
                None
            }
            Some(known) => Some(std::mem::replace(known, (now, 0)).1),
            None => {
                said.insert(kind.to_owned(), (now, 0));
                Some(0)
            }
        }
    }

    pub(crate) fn warn(&self, kind: &str, what: std::fmt::Arguments<'_>) {
        if let Some(kept) = self.take(kind) {
            tracing::warn!(target: "malote::kafka", kept_back = kept, "{kind}: {what}");
        }
    }

    /// For `ClientContext::log`.
    pub(crate) fn client_says(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        match level {
            RDKafkaLogLevel::Debug => tracing::debug!(target: "malote::kafka", "{facility}: {text}"),
            RDKafkaLogLevel::Info | RDKafkaLogLevel::Notice => {
                tracing::info!(target: "malote::kafka", "{facility}: {text}");
            }
            _ => self.warn(facility, format_args!("{text}")),
        }
    }

    /// For `ClientContext::error`.
    pub(crate) fn client_errs(&self, error: &KafkaError, why: &str) {
        let code = error.rdkafka_error_code().map_or_else(String::new, |code| format!("{code:?}"));
        self.warn(&code, format_args!("{why}"));
    }
}

/// The context of a client that needs no other.
#[derive(Default)]
pub(crate) struct Quiet(Ration);

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.0.client_says(level, facility, text);
    }
    fn error(&self, error: KafkaError, why: &str) {
        self.0.client_errs(&error, why);
    }
}
