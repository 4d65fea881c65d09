//! `malote dead`: what was given up, and what a person does about it.

use crate::{
    End, Unusable,
    act::{Acting, Deed, Target},
    chosen::{Chosen, Failing, all_or_some},
    list::Listing,
    out::{self, Cell, count, plain, time},
    place::{Place, Service},
    store::Store,
};
use clap::Subcommand;
use malote::{
    chain,
    inspect::{Act, DeadRow, Filter, Redrive, Refused, Shown},
    planted,
};
use malote_core::{
    Dead,
    saga::{DEFINITION, INSTANCE, OPERATION, OperationId},
    wire,
};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;

/// Dead letters: messages that were given up
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List them, in the order in which they were given up
    List {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        failing: Failing,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one, with its history
    Show {
        /// Its number; with several services, one that several have needs --service
        #[arg(value_parser = number)]
        id: i64,
        /// Also headers and payload, which may be private
        #[arg(long)]
        payload: bool,
        /// For scripts: the object that `list` has, with `record` beside when --payload is given
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Put them back to where they failed, to be tried again, in the order in which they were given up
    Redrive {
        /// At most so many become due each second [all at once]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        rate: Option<u32>,
        /// Also those of whose key something newer has been handled since
        #[arg(long)]
        although_newer: bool,
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        acting: Acting,
        #[command(flatten)]
        place: Place,
    },
    /// Give them up for good
    Discard {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        acting: Acting,
        #[command(flatten)]
        place: Place,
    },
}

/// The number of a dead letter.
fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "a number is expected; `malote dead list` shows them".to_owned())
}

/// Which dead letters an act is meant for.
#[derive(clap::Args)]
pub struct Which {
    /// Their numbers; with several services, one that several have needs --service
    #[arg(value_name = "ID", value_parser = number)]
    ids: Vec<i64>,
    /// All of them
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    failing: Failing,
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    match &args.command {
        Command::List { chosen, failing, listing } => {
            let filter = failing.of_dead(chosen.filter());
            listing.run(async |store: &Store, most| store.inspect().dead(&filter, most).await).await
        }
        Command::Show { id, payload, place, json } => show(*id, *payload, place, *json).await,
        Command::Redrive { which, rate, although_newer, acting, place } => {
            let (targets, missing) = which.targets(place).await?;
            let deed = Deed { verb: "redrive", done: "redriven", what: "dead letter" };
            let act = async |target: &Target, act: &Act, dry| {
                let how = Redrive { dry, per_second: rate.unwrap_or(0), although_newer: *although_newer };
                target.service.store.inspect().redrive(act, &target.filter, how).await
            };
            acting.carry_out(deed, &targets, &missing, act).await
        }
        Command::Discard { which, acting, place } => {
            let (targets, missing) = which.targets(place).await?;
            let deed = Deed { verb: "discard", done: "discarded", what: "dead letter" };
            let act = async |target: &Target, act: &Act, dry| {
                target.service.store.inspect().discard(act, &target.filter, dry).await
            };
            acting.carry_out(deed, &targets, &missing, act).await
        }
    }
}

impl Which {
    /// The services with what is meant of each, and the numbers that none has.
    async fn targets(&self, place: &Place) -> Result<(Vec<Target>, Vec<Refused>), Unusable> {
        let some = !(self.ids.is_empty() && self.chosen.is_empty() && self.failing.is_empty());
        all_or_some(self.all, some)?;
        let filter = self.failing.of_dead(self.chosen.filter());
        let services = place.open().await?;
        if self.ids.is_empty() {
            let targets = services.into_iter().map(|service| Target { service, filter: filter.clone() });
            return Ok((targets.collect(), Vec::new()));
        }
        let ids: Vec<_> = self.ids.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let found = by_number(services, &ids).await?;
        let missing = ids.iter().filter(|id| !found.iter().any(|(_, rows)| rows.iter().any(|row| row.id == **id)));
        let missing = missing.map(|id| Refused { id: *id, why: "there is no such dead letter".into(), stale: false });
        let missing = missing.collect();
        let targets = found.into_iter().map(|(service, rows)| {
            let ids = Some(rows.iter().map(|row| row.id).collect());
            Target { service, filter: Filter { ids, ..filter.clone() } }
        });
        Ok((targets.collect(), missing))
    }
}

/// Which service has dead letters of which number. Numbers are each service's own: one that several have says
/// nothing.
async fn by_number(services: Vec<Service>, ids: &[i64]) -> Result<Vec<(Service, Vec<DeadRow>)>, Unusable> {
    let filter = Filter { ids: Some(ids.to_vec()), ..Filter::default() };
    let most = ids.len().try_into().unwrap_or(u32::MAX);
    let mut found: Vec<(Service, Vec<DeadRow>)> = Vec::new();
    for service in services {
        let rows = service.store.inspect().dead(&filter, most).await;
        let rows = rows.map_err(|error| Unusable::new(&service.name, chain(&error)))?;
        for row in &rows {
            if planted::is("cli-first-number") {
                continue;
            }
            if let Some((other, _)) = found.iter().find(|(_, rows)| rows.iter().any(|other| other.id == row.id)) {
                let why = format!(
                    "{} and {} both have a dead letter of this number: say --service",
                    other.name, service.name
                );
                return Err(Unusable::new(row.id, why));
            }
        }
        if !rows.is_empty() {
            found.push((service, rows));
        }
    }
    Ok(found)
}

async fn show(id: i64, payload: bool, place: &Place, as_json: bool) -> Result<End, Unusable> {
    let missing = || Unusable::new(id, "there is no such dead letter");
    let found = by_number(place.open().await?, &[id]).await?.into_iter().next();
    let (Service { name, store }, _) = found.ok_or_else(missing)?;
    let letter = store.inspect().dead_letter(id).await;
    store.close().await;
    let (row, dead) = letter.map_err(|error| Unusable::new(&name, chain(&error)))?.ok_or_else(missing)?;
    let record = payload.then(|| Shown::of(&dead.record));
    let saga = OfSaga::of(&dead);
    if !as_json {
        out::print(&text(&name, &row, saga.as_ref(), record.as_ref()))?;
        return Ok(End::Fine);
    }
    let mut value = json!(out::Of { service: name, row });
    value["saga"] = json!(saga);
    if let Some(record) = record {
        value["record"] = json!({"headers": record.headers, "payload": record.payload});
    }
    out::json(&value)?;
    Ok(End::Fine)
}

/// The saga whose command, answer or timer it is. As it says itself, so that one which cannot be understood tells as much
/// as it can.
#[derive(Serialize)]
struct OfSaga {
    definition: String,
    id: String,
    /// For a command or an answer: the step, and whether it was to be done or undone.
    step: Option<String>,
    direction: Option<&'static str>,
}

impl OfSaga {
    fn of(dead: &Dead) -> Option<Self> {
        if planted::is("cli-dead-without-saga") {
            return None;
        }
        let headers = wire::decode(&dead.topic, &dead.record).ok()?.headers;
        let find = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        let operation = find(OPERATION).and_then(|operation| operation.parse::<OperationId>().ok());
        Some(Self {
            definition: find(DEFINITION)?,
            id: find(INSTANCE)?,
            step: operation.as_ref().map(|of| of.leg.to_string()),
            direction: operation.map(|of| of.direction.as_str()),
        })
    }

    fn text(&self) -> String {
        let undo = if self.direction == Some("undo") { " (undo)" } else { "" };
        let step = self.step.as_ref().map(|step| format!(", {step}{undo}")).unwrap_or_default();
        format!("{} {}{step}", self.definition, self.id)
    }
}

/// A dead letter for people: what it is, what happened, what may be done.
fn text(service: &str, row: &DeadRow, saga: Option<&OfSaga>, record: Option<&Shown>) -> String {
    let place = [row.partition.map(|n| format!(", partition {n}")), row.offset.map(|n| format!(", offset {n}"))];
    let place: String = place.into_iter().flatten().collect();
    let held = if row.holds_key { "held until you redrive or discard this" } else { "goes on" };
    let newer = match row.newer {
        0 => "nothing of its key has been handled since".to_owned(),
        newer => format!("{} of its key handled since", count(newer, "message")),
    };
    let payload = row.payload_bytes.map_or("erased".to_owned(), |bytes| match record {
        Some(_) => count(bytes.cast_unsigned(), "byte"),
        None => format!("{} (--payload shows headers and payload)", count(bytes.cast_unsigned(), "byte")),
    });
    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let lines = [
        ("dead letter", format!("{} of {service}", row.id)),
        ("given up by", row.by.clone()),
        ("message", row.what.clone()),
        ("type", or(&row.kind)),
        ("from", format!("{}{place}", row.topic)),
        ("key", or(&row.key)),
        ("the key", held.into()),
        ("newer", newer),
        ("class", row.class.clone()),
        ("reason", row.reason.clone()),
        ("attempts", row.attempts.to_string()),
        ("first failed", time(row.first_at)),
        ("given up", time(row.last_at)),
        ("saga", saga.map_or_else(|| "-".into(), OfSaga::text)),
        ("correlation", or(&row.correlation_id)),
        ("trace", or(&row.trace)),
        ("payload", payload),
    ];
    let mut text: String = lines.iter().map(|(name, value)| format!("{name:<13} {}\n", plain(value))).collect();
    text += &format!("\n{}", history(row));
    if let Some(record) = record {
        text += &format!("\n{}", shown(record));
    }
    let look = saga.map(|of| format!("\nIts saga:\n  malote saga show {}\n", plain(&of.id))).unwrap_or_default();
    text + &look
        + &format!(
            "\nWhat you may do:\n  malote dead redrive {id} --service {service} --reason TEXT\n  \
         malote dead discard {id} --service {service} --reason TEXT\n",
            id = row.id,
            service = plain(service),
        )
}

fn history(row: &DeadRow) -> String {
    let entries = row.history.entries().iter().map(|entry| {
        vec![
            Cell::new(time(entry.at)),
            out::maybe(entry.attempt.map(|attempt| attempt.to_string())),
            out::text(&entry.what),
            Cell::new(plain(&entry.why)),
        ]
    });
    out::table(&["at", "attempt", "what", "why"], entries)
}

fn shown(record: &Shown) -> String {
    let headers = record.headers.iter().map(|(name, value)| format!("{}: {}\n", plain(name), plain(value)));
    let payload: Vec<_> = record.payload.as_deref().unwrap_or("").lines().map(plain).collect();
    format!("{}\n{}\n", headers.collect::<String>(), payload.join("\n"))
}
