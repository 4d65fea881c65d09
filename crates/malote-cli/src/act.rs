//! Acts: what a person does to a service, and why.
//!
//! ```text
//!   which ones ─▶ dry run: how many, what is refused ─▶ asked on a terminal, or --yes ─▶ done, and in `audit`
//! ```
//!
//! The act and its row in `audit` are one transaction, in the service's own database.

use crate::{
    End, Unusable,
    chosen::{Chosen, Failing, all_or_some},
    out::{self, Of, count, plain, say},
    place::{Place, Service},
};
use malote::{
    StoreError, chain,
    inspect::{Act, Acted, Filter, Refused},
    planted,
};
use serde::Serialize;
use std::io::{self, BufRead, IsTerminal as _, Write};

/// Who acts, why, and how sure they are.
#[derive(clap::Args)]
#[command(next_help_heading = "The act")]
pub struct Acting {
    /// Why, in your own words; it is written down with the act
    #[arg(long, value_name = "TEXT", value_parser = words, required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Who acts [the login name]
    #[arg(long, value_name = "NAME", value_parser = words)]
    actor: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do it without asking; needed where nobody can be asked
    #[arg(long, short = 'y')]
    yes: bool,
    /// For scripts: an object that says what came of it
    #[arg(long)]
    json: bool,
}

/// Not nothing.
pub fn words(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it may not be empty".into()),
        text => Ok(text.to_owned()),
    }
}

/// What an act is called.
#[derive(Clone, Copy)]
pub struct Deed {
    /// As a verb.
    pub verb: &'static str,
    /// When it has been done.
    pub done: &'static str,
    /// What it is done to, one of it.
    pub what: &'static str,
}

/// A service, and which of its rows are meant.
pub struct Target {
    /// The service.
    pub service: Service,
    /// Its rows.
    pub filter: Filter,
}

/// What came of an act, as scripts read it.
#[derive(Serialize)]
struct Outcome {
    act: &'static str,
    dry_run: bool,
    done: u64,
    refused: Vec<Of<Refused>>,
    #[serde(skip)]
    of_each: Vec<(String, u64)>,
}

impl Acting {
    /// Carries an act out on each target in turn. What is `missing` counts as refused.
    pub async fn carry_out(
        &self,
        deed: Deed,
        targets: &[Target],
        missing: &[Refused],
        act: impl AsyncFn(&Target, &Act, bool) -> Result<Acted, StoreError>,
    ) -> Result<End, Unusable> {
        let who = self.act()?;
        let done = async |dry: bool| {
            let mut outcome =
                Outcome { act: deed.verb, dry_run: dry, done: 0, refused: Vec::new(), of_each: Vec::new() };
            outcome.refused.extend(missing.iter().map(|row| Of { service: "-".into(), row: row.clone() }));
            for target in targets {
                let name = &target.service.name;
                match act(target, &who, dry).await {
                    Ok(acted) => outcome.add(name, acted),
                    Err(error) => return Err((outcome, Unusable::new(name, chain(&error)))),
                }
            }
            Ok(outcome)
        };
        if !self.dry_run && self.has_to_ask() {
            if !can_ask() {
                return Ok(unasked());
            }
            let planned = done(true).await.map_err(|(_, why)| why)?;
            if !planned.confirmed(deed, targets.len() > 1)? {
                return Ok(not_confirmed());
            }
        }
        let outcome = match done(self.dry_run).await {
            Ok(outcome) => outcome,
            Err((before, why)) => {
                // what was done before it failed has been done, and is to be known
                if !self.dry_run && before.done > 0 {
                    before.print(deed, true, self.json)?;
                }
                return Err(why);
            }
        };
        outcome.print(deed, targets.len() > 1, self.json)?;
        Ok(if outcome.refused.is_empty() { End::Fine } else { End::Refused })
    }

    /// Whether somebody has to be asked first.
    fn has_to_ask(&self) -> bool {
        !self.yes && !planted::is("cli-unasked")
    }

    /// Whether one act is to be done, by --yes, or as the person at the terminal says; how the command ends if not.
    pub fn sure(&self, stands: &str, what: &str) -> Result<Option<End>, Unusable> {
        if !self.has_to_ask() {
            return Ok(None);
        }
        if !can_ask() {
            return Ok(Some(unasked()));
        }
        say(stands);
        let question = format!("{}? [y/N] ", plain(what));
        let yes = asked(&question, &mut io::stdin().lock(), &mut io::stderr());
        let yes = yes.map_err(|error| Unusable::new("the terminal", error))?;
        Ok((!yes).then(not_confirmed))
    }

    /// Who acts, and why.
    pub fn act(&self) -> Result<Act, Unusable> {
        Ok(Act {
            actor: actor(self.actor.as_deref())?,
            reason: self.reason.clone().unwrap_or_else(|| "dry run".into()),
        })
    }

    /// Whether it only says what would be done.
    pub fn is_dry(&self) -> bool {
        self.dry_run
    }

    /// Whether it prints for scripts.
    pub fn is_json(&self) -> bool {
        self.json
    }
}

/// The login name of the operating system's user, unless another name is given.
pub fn actor(given: Option<&str>) -> Result<String, Unusable> {
    match given {
        Some(actor) => Ok(actor.to_owned()),
        None => whoami::username().map_err(|_| Unusable::new("--actor", "the login name is not known: say who acts")),
    }
}

impl Outcome {
    fn add(&mut self, service: &str, Acted { done, refused }: Acted) {
        self.done += done;
        self.of_each.push((service.to_owned(), done));
        self.refused.extend(refused.into_iter().map(|row| Of { service: service.to_owned(), row }));
    }

    /// Asks on the terminal, after saying how many. Nothing to do needs no asking.
    fn confirmed(&self, deed: Deed, several: bool) -> Result<bool, Unusable> {
        if self.done == 0 {
            return Ok(true);
        }
        say(self.text(deed, several).trim_end());
        let (mut answer, stdin) = (io::stderr(), io::stdin());
        asked(&format!("{} {}? [y/N] ", deed.verb, count(self.done, deed.what)), &mut stdin.lock(), &mut answer)
            .map_err(|error| Unusable::new("the terminal", error))
    }

    fn print(&self, deed: Deed, several: bool, as_json: bool) -> Result<(), Unusable> {
        if as_json { out::json(self) } else { out::print(&self.text(deed, several)) }
    }

    fn text(&self, deed: Deed, several: bool) -> String {
        let is = if self.dry_run { "would be " } else { "" };
        let mut lines = String::new();
        for (service, done) in self.of_each.iter().filter(|(_, done)| *done > 0) {
            let of = if several { format!("{}: ", plain(service)) } else { String::new() };
            lines += &format!("{of}{} {is}{}\n", count(*done, deed.what), deed.done);
        }
        if self.done == 0 {
            lines += &format!("no {}s {is}{}\n", deed.what, deed.done);
        }
        if !self.refused.is_empty() {
            lines += &out::table_of(&self.refused, several);
        }
        if self.refused.iter().any(|of| of.row.stale) {
            lines += "where something newer was handled since, --although-newer does it all the same\n";
        }
        lines
    }
}

fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Nobody said yes, because nobody could be asked.
fn unasked() -> End {
    say("malote: --yes: there is no terminal to ask at: say --yes, or --dry-run");
    not_confirmed()
}

fn not_confirmed() -> End {
    say("malote: nothing was done");
    End::Refused
}

/// Whether the answer is yes.
fn asked(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<bool> {
    write!(output, "{question}")?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Every service, with the same rows of each.
async fn everywhere(place: &Place, filter: &Filter) -> Result<Vec<Target>, Unusable> {
    let services = place.open().await?;
    Ok(services.into_iter().map(|service| Target { service, filter: filter.clone() }).collect())
}

/// Try parked messages again now, instead of when their time comes
#[derive(clap::Args)]
pub struct Retry {
    /// All that are parked
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    failing: Failing,
    #[command(flatten)]
    acting: Acting,
    #[command(flatten)]
    place: Place,
}

impl Retry {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        all_or_some(self.all, !(self.chosen.is_empty() && self.failing.is_empty()))?;
        let targets = everywhere(&self.place, &self.failing.of_parked(self.chosen.filter())?).await?;
        let deed = Deed { verb: "retry", done: "made due now", what: "parked key" };
        let act = async |target: &Target, act: &Act, dry| {
            target.service.store.inspect().retry_now(act, &target.filter, dry).await
        };
        self.acting.carry_out(deed, &targets, &[], act).await
    }
}

/// Send rows again that the outbox still keeps; consumers that had them before pass over them
///
/// For a consumer that was away longer than its topics keep their records, or that is new.
#[derive(clap::Args)]
pub struct Replay {
    /// All that is kept
    #[arg(long)]
    all: bool,
    /// To this topic instead of their own
    #[arg(long, value_name = "TOPIC")]
    topic_to: Option<String>,
    /// For this consumer only; the others pass over them
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// At most so many rows of each service
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    acting: Acting,
    #[command(flatten)]
    place: Place,
}

impl Replay {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        all_or_some(self.all, !self.chosen.is_empty())?;
        let targets = everywhere(&self.place, &self.chosen.filter()).await?;
        let deed = Deed { verb: "replay", done: "sent again", what: "row" };
        let act = async |target: &Target, act: &Act, dry| {
            let how = malote::inspect::Replay {
                dry,
                topic: self.topic_to.clone(),
                consumer: self.consumer.clone(),
                most: self.most,
            };
            target.service.store.inspect().replay(act, &target.filter, how).await
        };
        self.acting.carry_out(deed, &targets, &[], act).await
    }
}

/// Remove what is kept of a key in dead letters and parked messages: payloads, headers, the key, errors
///
/// For a person's data that has to go. What is erased can be neither handled nor redriven any more; a saga that waits
/// for it goes on as for any command that was given up. What sagas know themselves stays until they are removed.
#[derive(clap::Args)]
pub struct Erase {
    /// The ordering key
    key: String,
    #[command(flatten)]
    acting: Acting,
    #[command(flatten)]
    place: Place,
}

impl Erase {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        let targets = everywhere(&self.place, &Filter::default()).await?;
        let deed = Deed { verb: "erase", done: "erased", what: "message" };
        let act =
            async |target: &Target, act: &Act, dry| target.service.store.inspect().erase(act, &self.key, dry).await;
        self.acting.carry_out(deed, &targets, &[], act).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let answer = |text: &str| {
            let mut output = Vec::new();
            let yes = asked("erase 1 message? [y/N] ", &mut text.as_bytes(), &mut output).expect("asked");
            assert_eq!(output, b"erase 1 message? [y/N] ");
            yes
        };
        assert!(["y\n", "Y\n", " yes \n", "YES"].into_iter().all(answer));
        assert!(!["", "\n", "n\n", "yep\n", "j\n", "\u{0}y\n"].into_iter().any(answer));
    }
}
