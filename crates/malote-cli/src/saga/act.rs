//! Acts on a saga: written down, and dealt with by a process that has its definition.

use super::find::{Beginning, Found};
use crate::{
    End, Unusable,
    act::Acting,
    out::{self, plain},
    place::Place,
};
use malote::{
    StoreError, chain, planted,
    saga::{Deed, DeedOutcome},
};
use serde::Serialize;
use std::{fs, time::Duration};
use tokio::time::{Instant, sleep};

/// Between two looks whether somebody has dealt with it.
const LOOK: Duration = Duration::from_millis(100);

/// Asking for an act.
#[derive(clap::Args)]
pub struct Asking {
    /// How long to wait for a process that deals with it; it stays written down all the same
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=3_600))]
    wait: u64,
    #[command(flatten)]
    acting: Acting,
    #[command(flatten)]
    place: Place,
}

/// What came of it, as scripts read it.
#[derive(Serialize)]
struct Outcome<'a> {
    service: &'a str,
    saga: String,
    act: &'static str,
    step: Option<&'a str>,
    dry_run: bool,
    /// The act's number in the store; none where nothing was asked.
    number: Option<i64>,
    /// `done`, `denied`, or `open` as long as no process has dealt with it.
    outcome: &'static str,
    /// How the saga stands, or why it was denied.
    says: String,
}

/// What a skipped step would have answered: JSON, or a file with it.
pub fn answer(text: &str) -> Result<String, Unusable> {
    let text = match text.strip_prefix('@') {
        Some(path) => fs::read_to_string(path).map_err(|error| Unusable::new(format!("--answer {path}"), error))?,
        None => text.to_owned(),
    };
    // the error of the parser quotes nothing of what may be private
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(Unusable::new("--answer", format!("JSON is expected, or @FILE with it: {error}"))),
    }
}

impl Asking {
    /// Runs the command.
    pub async fn run(&self, id: &Beginning, deed: Deed) -> Result<End, Unusable> {
        let found = id.find(&self.place).await?;
        let end = self.carry_out(&found, &deed).await;
        found.service.store.close().await;
        end
    }

    async fn carry_out(&self, found: &Found, deed: &Deed) -> Result<End, Unusable> {
        let Found { service, saga, .. } = found;
        let what = format!("{} {}", deed.as_str(), target(found, deed));
        if self.acting.is_dry() {
            let (may, says) = foreseen(found, deed);
            let outcome = if may { "would be asked" } else { "would be denied" };
            self.print(
                found,
                deed,
                None,
                if may { "open" } else { "denied" },
                says.clone(),
                &format!("{outcome}: {says}"),
            )?;
            return Ok(if may { End::Fine } else { End::Refused });
        }
        let act = self.acting.act()?;
        let stands = format!("{} version {} is {}", saga.definition, saga.version, saga.status.as_str());
        if let Some(end) = self.acting.sure(&stands, &what)? {
            return Ok(end);
        }
        let failed = |error: StoreError| Unusable::new(&service.name, chain(&error));
        let number = service.store.inspect().ask_deed(&act, saga.id, deed).await.map_err(failed)?;
        match self.outcome(found, number).await.map_err(failed)? {
            Some(DeedOutcome { denied: false, says }) => {
                let text = format!("done: it is {says}");
                self.print(found, deed, Some(number), "done", says, &text)?;
                Ok(End::Fine)
            }
            Some(DeedOutcome { denied: true, says }) => {
                let text = format!("denied: {says}");
                self.print(found, deed, Some(number), "denied", says, &text)?;
                Ok(End::Refused)
            }
            None => {
                let says = format!(
                    "it is written down as act {number}, and no process has dealt with it within {} s; it is done as \
                     soon as one runs that has code for {} version {}. Do not ask again: `malote audit` tells what \
                     came of it",
                    self.wait, saga.definition, saga.version
                );
                self.print(found, deed, Some(number), "open", says.clone(), &says)?;
                Ok(if planted::is("cli-open-is-done") { End::Fine } else { End::Open })
            }
        }
    }

    /// Waits for whoever deals with it, for a bounded time.
    async fn outcome(&self, found: &Found, number: i64) -> Result<Option<DeedOutcome>, StoreError> {
        let end = Instant::now() + Duration::from_secs(self.wait);
        loop {
            let outcome = found.service.store.inspect().deed_outcome(number).await?;
            if outcome.is_some() || Instant::now() >= end {
                return Ok(outcome);
            }
            sleep(LOOK).await;
        }
    }

    fn print(
        &self,
        found: &Found,
        deed: &Deed,
        number: Option<i64>,
        outcome: &'static str,
        says: String,
        text: &str,
    ) -> Result<(), Unusable> {
        if !self.acting.is_json() {
            return out::print(&format!("{} {}: {}\n", deed.as_str(), plain(&target(found, deed)), plain(text)));
        }
        out::json(&Outcome {
            service: &found.service.name,
            saga: found.saga.id.to_string(),
            act: deed.as_str(),
            step: deed.step(),
            dry_run: self.acting.is_dry(),
            number,
            outcome,
            says,
        })
    }
}

fn target(found: &Found, deed: &Deed) -> String {
    let step = deed.step().map(|step| format!(", step {step}")).unwrap_or_default();
    format!("saga {}{step}", found.saga.id)
}

/// What the process that deals with it would most likely say, as far as the stored definition tells.
fn foreseen(found: &Found, deed: &Deed) -> (bool, String) {
    let stands = format!("it is {}", found.saga.status.as_str());
    let Some(outline) = &found.outline else {
        return (true, format!("{stands}, and no process has told how it is defined"));
    };
    let possible = outline.possible(&found.saga);
    let may = possible.iter().any(|may| match (may, deed) {
        (Deed::Retry { .. }, Deed::Retry { step: None }) => true,
        (Deed::Skip { step, .. }, Deed::Skip { step: other, answer }) => {
            step == other && (answer.is_some() || outline.answer_of(&found.saga, step).is_none())
        }
        (may, deed) => may == deed,
    });
    let why = format!("{stands}; `malote saga show {}` says what may be done", found.saga.id);
    (may, if may { stands } else { why })
}
