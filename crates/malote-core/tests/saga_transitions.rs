//! The table of all transitions is made from the code, so that it cannot be wrong.
//!
//! `MALOTE_WRITE=1 cargo test -p malote-core --test saga_transitions` writes it anew.
#![allow(missing_docs)]

use malote_core::Event;
use malote_core::inspect::Act;
use malote_core::retry::Policy;
use malote_core::saga::{
    Command, Decision, Deed, Direction, Input, Instance, LegId, OperationId, Reply, Saga, Status, Timer, Verdict,
    compensation, step,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt, fmt::Write as _, time::Duration};
use uuid::Uuid;

macro_rules! messages {
    ($($name:ident = $type:literal),* $(,)?) => { $(
        #[derive(Serialize, Deserialize)]
        struct $name {}
        impl Event for $name {
            const TYPE: &'static str = $type;
            fn key(&self) -> String { "k".into() }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("no") }
        }
    )* };
}

messages!(
    Reserve = "reserve",
    Reserved = "reserved",
    NotReserved = "not reserved",
    Release = "release",
    Released = "released",
    NotReleased = "not released",
    Pay = "pay",
    Paid = "paid",
    NotPaid = "not paid",
    Refund = "refund",
    Refunded = "refunded",
    NotRefunded = "not refunded",
    Ship = "ship",
    Shipped = "shipped",
    NotShipped = "not shipped",
    Return = "return",
    Returned = "returned",
    NotReturned = "not returned",
);

macro_rules! commands {
    ($($command:ident => $done:ident | $refused:ident),*) => { $(
        impl Command for $command { type Done = $done; type Refused = $refused; }
    )* };
}

commands!(
    Reserve => Reserved | NotReserved, Release => Released | NotReleased,
    Pay => Paid | NotPaid, Refund => Refunded | NotRefunded,
    Ship => Shipped | NotShipped, Return => Returned | NotReturned
);

fn saga() -> Saga<()> {
    let twice = Policy::default().attempts(2).deadline(Duration::from_secs(30));
    Saga::named("example", 1)
        .step(
            step("reserve", |_: &()| Reserve {}).undone_by(compensation(|_: &()| Release {}).retry(twice)).retry(twice),
        )
        .step(
            step("pay", |_: &()| Pay {})
                .undone_by(compensation(|_: &()| Refund {}).on_request().retry(twice))
                .retry(twice)
                .pivot(),
        )
        .step(
            step("ship", |_: &()| Ship {})
                .undone_by(compensation(|_: &()| Return {}).on_request().retry(twice))
                .retry(twice),
        )
}

/// What can happen, as seen from the step at which the saga stands.
const HAPPENINGS: [&str; 18] = [
    "start",
    "done",
    "refused",
    "an answer that cannot be read",
    "an answer of another type",
    "an answer to an earlier step",
    "an answer to a step not asked",
    "an answer for another saga",
    "its timer",
    "a timer that is not set",
    "given up",
    "late: the step itself was done",
    "a person: retry",
    "a person: skip, with the answer",
    "a person: skip, without one",
    "a person: compensate",
    "a person: turn back",
    "a person: abandon",
];

/// Where a saga can stand, by what happened to it.
const SITUATIONS: [(&str, &[&str]); 16] = [
    ("Not begun", &[]),
    ("Running, a step before the pivot is asked", &["start"]),
    ("Running, a step before the pivot rests after silence", &["start", "its timer"]),
    ("Running, the pivot is asked", &["start", "done"]),
    ("Running, the pivot rests after silence", &["start", "done", "its timer"]),
    ("Stuck, the pivot is unknown", &["start", "done", "its timer", "its timer", "its timer"]),
    ("Running, a step after the pivot is asked", &["start", "done", "done"]),
    ("Stuck, a step after the pivot was refused", &["start", "done", "done", "refused"]),
    ("Stuck, a step after the pivot is unknown", &["start", "done", "done", "its timer", "its timer", "its timer"]),
    ("Completed", &["start", "done", "done", "done"]),
    ("Compensating, a compensation is asked", &["start", "done", "refused"]),
    ("Compensating, a compensation rests after a refusal", &["start", "done", "refused", "refused"]),
    ("Stuck, a compensation has failed", &["start", "done", "refused", "refused", "its timer", "refused"]),
    ("Compensating on request, after the pivot", &["start", "done", "done", "a person: compensate"]),
    ("Compensated", &["start", "done", "refused", "done"]),
    ("Abandoned", &["start", "done", "a person: abandon"]),
];

fn begun() -> Instance<()> {
    saga().begin(Uuid::from_u128(7), ())
}

/// The leg at which the saga stands: what waits or is open, else the last one.
fn at(it: &Instance<()>) -> (LegId, Direction) {
    let leg = it.pending().chain(it.open()).next().or(it.legs.last());
    leg.map_or((LegId::of("reserve"), Direction::Do), |leg| (leg.id.clone(), leg.direction()))
}

fn answers(leg: &LegId, direction: Direction) -> (&'static str, &'static str) {
    match (leg.step.as_str(), direction) {
        ("reserve", Direction::Do) => ("reserved", "not reserved"),
        ("reserve", Direction::Undo) => ("released", "not released"),
        ("pay", Direction::Do) => ("paid", "not paid"),
        ("pay", Direction::Undo) => ("refunded", "not refunded"),
        (_, Direction::Do) => ("shipped", "not shipped"),
        (_, Direction::Undo) => ("returned", "not returned"),
    }
}

fn input(it: &Instance<()>, what: &str) -> Input {
    let (leg, direction) = at(it);
    let attempt = it.leg(&leg).and_then(|leg| leg.asking(direction)).map_or(1, |asking| asking.attempt);
    let operation = OperationId { saga: it.id, leg: leg.clone(), direction, attempt };
    let (done, refused) = answers(&leg, direction);
    let reply = |operation: OperationId, kind: &str, payload: &'static str| {
        Input::Reply(Reply { operation, kind: kind.into(), payload: payload.into(), envelope: None })
    };
    let forward =
        |step: &str| OperationId { leg: LegId::of(step), direction: Direction::Do, attempt: 1, ..operation.clone() };
    let person = |deed| Input::Act(Act { actor: "ana".into(), reason: "asked by phone".into() }, deed);
    let timer = || it.leg(&leg)?.asking(direction)?.timer.clone();
    match what {
        "start" => Input::Started,
        "done" => reply(operation, done, "{}"),
        "refused" => reply(operation, refused, "{}"),
        "an answer that cannot be read" => reply(operation, done, "?"),
        "an answer of another type" => reply(operation, "weather", "{}"),
        "an answer to an earlier step" => reply(forward("reserve"), "reserved", "{}"),
        "an answer to a step not asked" => reply(OperationId { attempt: 9, ..operation }, done, "{}"),
        "an answer for another saga" => reply(OperationId { saga: Uuid::from_u128(8), ..operation }, done, "{}"),
        "its timer" => Input::Deadline(timer().unwrap_or_else(|| "none".into())),
        "a timer that is not set" => Input::Deadline("do:9:deadline:reserve".into()),
        "given up" => Input::GivenUp { operation, reason: "dead letter".into() },
        "late: the step itself was done" => reply(forward(&leg.step), answers(&leg, Direction::Do).0, "{}"),
        "a person: retry" => person(Deed::Retry { step: None }),
        "a person: skip, with the answer" => person(Deed::Skip { step: leg.to_string(), answer: Some("{}".into()) }),
        "a person: skip, without one" => person(Deed::Skip { step: leg.to_string(), answer: None }),
        "a person: compensate" => person(Deed::Compensate),
        "a person: turn back" => person(Deed::TurnBack),
        "a person: abandon" => person(Deed::Abandon),
        other => panic!("{other} cannot happen"),
    }
}

fn follows(it: &Instance<()>, decision: &Decision) -> [String; 4] {
    let verdict = match &decision.verdict {
        Verdict::Acted => "acts".into(),
        Verdict::Ignored(why) => format!("ignores: {why}"),
        Verdict::Denied(why) => format!("denies: {why}"),
    };
    let steps: Vec<_> = it.legs.iter().map(|leg| format!("{} {}", leg.id, leg.state.as_str())).collect();
    let says = decision.sends.iter().map(|send| {
        let attempt = send.address.operation.attempt;
        format!(
            "asks `{}`{}",
            send.message.kind,
            if attempt > 1 { format!(" (attempt {attempt})") } else { String::new() }
        )
    });
    let timers = decision.timers.iter().map(|timer| match timer {
        Timer::Set { name, .. } => format!("sets {}", short(name)),
        Timer::Cancel { name } => format!("cancels {}", short(name)),
    });
    [verdict, it.status.as_str().into(), steps.join(", "), says.chain(timers).collect::<Vec<_>>().join(", ")]
}

/// A timer's purpose.
fn short(name: &str) -> &str {
    name.split(':').nth(2).unwrap_or(name)
}

fn table() -> String {
    let saga = saga();
    let mut out = String::from(
        "# What a saga does\n\n\
         Made from the code by `saga_transitions`, a test of `malote-core`; not written by hand.\n\n\
         The saga of this table has three steps: *reserve* (undone by *release*), *pay* (the pivot, undone by\n\
         *refund* on request) and *ship* (after the pivot, undone by *return* on request). Each is asked at most\n\
         twice. Whatever is ignored is recorded; whatever is denied changes nothing.\n",
    );
    for (name, story) in SITUATIONS {
        let mut it = begun();
        for what in story {
            let next = input(&it, what);
            saga.advance(&mut it, next);
        }
        let steps: Vec<_> = it.legs.iter().map(|leg| format!("{} {}", leg.id, leg.state.as_str())).collect();
        let _ = write!(out, "\n## {name}\n\n");
        if !steps.is_empty() {
            let _ = write!(out, "{}.\n\n", steps.join(", "));
        }
        out.push_str("| when | it | then it is | with | and |\n|---|---|---|---|---|\n");
        for what in HAPPENINGS {
            let mut after = it.clone();
            let decision = saga.advance(&mut after, input(&it, what));
            let [verdict, status, steps, says] = follows(&after, &decision);
            let steps = if after.legs == it.legs { String::new() } else { steps };
            let _ = writeln!(out, "| {what} | {verdict} | {status} | {steps} | {says} |");
        }
    }
    out
}

#[test]
fn ac_062_every_status_and_input_has_a_stated_outcome() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/saga-transitions.md");
    let made = table();
    if std::env::var_os("MALOTE_WRITE").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let differs = made.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(made == kept, "docs/saga-transitions.md is not what the code does; first difference: {differs:#?}");
}

#[test]
fn the_situations_of_the_table_cover_every_status() {
    let reached: BTreeSet<Status> = SITUATIONS
        .iter()
        .map(|(_, story)| {
            let mut it = begun();
            for what in *story {
                let next = input(&it, what);
                saga().advance(&mut it, next);
            }
            it.status
        })
        .collect();
    assert_eq!(reached.into_iter().collect::<Vec<_>>(), Status::ALL);
}
