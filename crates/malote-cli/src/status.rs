//! `malote status`: how everything stands, one line for each service.

use crate::{
    End, Unusable,
    out::{self, Cell, Of, age, bad, count, say},
    place::Place,
    store::Store,
    when,
};
use malote::{inspect::Status, planted, saga};
use serde_json::{Value, json};
use std::time::Duration;

/// A transaction that is open for longer is worth a line.
const LONG_SECONDS: f64 = 60.0;
/// Processes say about once a minute which versions of sagas they have code for.
pub const SILENT_SECONDS: f64 = 180.0;
/// So is a write-ahead log that is larger.
const LARGE_WAL: u64 = 256 << 20;

/// Show how everything stands: outbox, relay, parked messages, dead letters, schedule, sagas
#[derive(clap::Args)]
pub struct Args {
    /// End with 1 when something is late or too many: see --max-age, --max-dead and --max-stuck
    #[arg(long)]
    check: bool,
    /// How old the oldest unpublished row, and how late a scheduled envelope, may be
    #[arg(long, value_name = "AGE", default_value = "60s", value_parser = when::age, requires = "check")]
    max_age: Duration,
    /// How many dead letters a service may have [any number]
    #[arg(long, value_name = "N", requires = "check")]
    max_dead: Option<u64>,
    /// How many stuck sagas a service may have [any number]
    #[arg(long, value_name = "N", requires = "check")]
    max_stuck: Option<u64>,
    /// For scripts: an array of objects, one for each service
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    let looked = args.place.look(async |store: &Store| store.inspect().status().await).await?;
    if args.json {
        out::json(&looked.answers.iter().map(document).collect::<Result<Vec<_>, _>>()?)?;
    } else if !looked.answers.is_empty() {
        out::print(&shown(&looked.answers))?;
    }
    let late: Vec<_> = looked.answers.iter().flat_map(|of| args.too_much(of)).collect();
    late.iter().for_each(|late| say(&format!("malote: {late}")));
    Ok(match (looked.failed.is_empty(), late.is_empty()) {
        (false, _) => End::Unusable,
        (true, false) => End::Wrong,
        (true, true) => End::Fine,
    })
}

impl Args {
    /// What is more than it may be, in words; nothing without `--check`.
    fn too_much(&self, Of { service, row: status }: &Of<Status>) -> Vec<String> {
        if !self.check {
            return Vec::new();
        }
        let most = self.max_age.as_secs_f64();
        let late = |seconds: Option<f64>, what: &str| {
            let seconds = seconds.filter(|seconds| *seconds > most)?;
            Some(format!("{service}: {what} for {}, more than {}", age(seconds), age(most)))
        };
        let (dead, stuck) = (dead(status), stuck(status));
        [
            late(status.outbox.oldest_seconds, "the oldest unpublished row waits"),
            late(status.scheduled_late_seconds, "a scheduled envelope has been due"),
            self.max_dead
                .filter(|most| dead > *most)
                .map(|most| format!("{service}: {}, more than {most}", count(dead, "dead letter"))),
            self.max_stuck
                .filter(|most| stuck > *most)
                .map(|most| format!("{service}: {}, more than {most}", count(stuck, "stuck saga"))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn dead(status: &Status) -> u64 {
    status.relay_dead + status.consumers.iter().map(|consumer| consumer.dead).sum::<u64>()
}

fn stuck(status: &Status) -> u64 {
    status.sagas.iter().filter(|of| of.status == saga::Status::Stuck).map(|of| of.count).sum()
}

fn shown(answers: &[Of<Status>]) -> String {
    let head = ["service", "pending", "oldest", "relay", "parked", "keys", "held", "dead", "scheduled", "late"];
    let mut table = out::table(&head, answers.iter().map(cells));
    if answers.iter().any(|of| !of.row.sagas.is_empty()) {
        let head = ["service", "saga", "version", "status", "sagas", "unchanged for"];
        table += &format!("\n{}", out::table(&head, answers.iter().flat_map(sagas)));
    }
    answers.iter().flat_map(notes).fold(table, |text, note| format!("{text}\n{note}\n"))
}

fn cells(Of { service, row: status }: &Of<Status>) -> Vec<Cell> {
    let sum = |of: fn(&malote::inspect::ConsumerStatus) -> u64| status.consumers.iter().map(of).sum::<u64>();
    let seconds = |seconds: Option<f64>| Cell::new(seconds.map_or_else(|| "-".into(), age));
    vec![
        out::text(service),
        Cell::new(status.outbox.pending),
        seconds(status.outbox.oldest_seconds),
        Cell::new(relay(status)),
        Cell::new(sum(|consumer| consumer.parked_messages)),
        Cell::new(sum(|consumer| consumer.parked_keys)),
        bad(sum(|consumer| consumer.held_keys)),
        bad(dead(status)),
        Cell::new(status.scheduled),
        seconds(status.scheduled_late_seconds),
    ]
}

/// Sagas by definition, version and status.
fn sagas(Of { service, row: status }: &Of<Status>) -> impl Iterator<Item = Vec<Cell>> {
    status.sagas.iter().map(move |of| {
        vec![
            out::text(service),
            out::text(&of.definition),
            Cell::new(of.version),
            Cell::new(of.status.as_str()),
            if of.status == saga::Status::Stuck { bad(of.count) } else { Cell::new(of.count) },
            Cell::new(if of.status.is_final() { "-".into() } else { age(of.oldest_seconds) }),
        ]
    })
}

/// Whether somebody moves the outbox; a service that has never said anything needs nobody.
fn relay(status: &Status) -> &'static str {
    // the janitor's leases lie beside the relay's
    let relays = || status.relays.iter().filter(|relay| !relay.name.starts_with("janitor "));
    match relays().any(|relay| relay.lease_seconds.is_some_and(|left| left > 0.0)) {
        true => "leads",
        false if relays().next().is_none() && status.outbox.last == 0 => "-",
        false => "nobody",
    }
}

/// What is out of the ordinary.
fn notes(Of { service, row: status }: &Of<Status>) -> Vec<String> {
    let service = out::plain(service);
    let (has, knows) = status.tables;
    let open = status.oldest_transaction.as_ref().filter(|open| open.seconds > LONG_SECONDS);
    let open = open.map(|open| {
        let who = out::plain(&open.who);
        format!(
            "{service}: a transaction has been open for {} ({who}); old rows cannot go meanwhile",
            age(open.seconds)
        )
    });
    let wal = status.wal_bytes.filter(|bytes| *bytes > LARGE_WAL);
    let wal = wal.map(|bytes| format!("{service}: the write-ahead log has {} MiB; is a reader stuck?", bytes >> 20));
    let new = (has > knows).then(|| format!("{service}: its tables are of version {has}; this malote knows {knows}"));
    let mut notes: Vec<_> = [open, wal, new].into_iter().flatten().collect();
    notes.extend(about_sagas(&service, status));
    notes
}

/// Which sagas wait for a person, and which for a process.
fn about_sagas(service: &str, status: &Status) -> Vec<String> {
    let stuck = match stuck(status) {
        0 => None,
        n => Some(format!(
            "{service}: {} for a person to decide; `malote saga list --stuck` shows them",
            count(n, "stuck saga")
        )),
    };
    let acts = (status.open_acts > 0).then(|| {
        let acts = count(status.open_acts, "act");
        format!("{service}: {acts} on sagas that people asked for, and no process has dealt with; is one running?")
    });
    let mut under_way: Vec<(&str, u32, u64)> = Vec::new();
    for of in status.sagas.iter().filter(|of| !of.status.is_final()) {
        match under_way.iter_mut().find(|(name, version, _)| (*name, *version) == (&of.definition, of.version)) {
            Some((.., all)) => *all += of.count,
            None => under_way.push((&of.definition, of.version, of.count)),
        }
    }
    let lacking = under_way.into_iter().filter_map(|(name, version, n)| {
        let seen = status.saga_versions.iter().find(|of| of.definition == name && of.version == version);
        let since = match seen {
            Some(of) if of.seen_seconds <= SILENT_SECONDS => return None,
            Some(of) => format!("said for {}", age(of.seen_seconds)),
            None if planted::is("cli-code-unseen") => return None,
            None => "ever said".to_owned(),
        };
        let (name, is) = (out::plain(name), if n == 1 { "is" } else { "are" });
        Some(format!(
            "{service}: no process has {since} that it has code for {name} version {version}, of which {n} {is} under \
             way; start one that has"
        ))
    });
    stuck.into_iter().chain(acts).chain(lacking).collect()
}

/// The status with named parts where the port has pairs.
fn document(of: &Of<Status>) -> Result<Value, Unusable> {
    let mut value = serde_json::to_value(of).map_err(|error| Unusable::new("the output", error))?;
    let (has, knows) = of.row.tables;
    value["tables"] = json!({"version": has, "known": knows});
    value["outbox"]["oldest"] = match &of.row.outbox.oldest {
        Some((kind, key)) => json!({"type": kind, "key": key}),
        None => Value::Null,
    };
    Ok(value)
}
