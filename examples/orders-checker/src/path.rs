//! Which histories a saga may have, said once more and in another way than its code says it.
//!
//! A step is asked once those before it are done; it is asked again only after silence, or when a person
//! says so; it is answered once. The saga turns back when a step up to the pivot was refused or is given
//! up for unknown (the pivot only when it was refused), or when a person says so; then every step that
//! may have been done is undone, the last one first, and nothing is done any more.

use crate::{
    Outline,
    outline::{Exchange, Step},
};
use std::collections::BTreeMap;

/// A line of a history, as it is stored; empty where there is nothing.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub n: i64,
    pub what: String,
    pub leg: String,
    pub direction: String,
    pub attempt: String,
    pub envelope: String,
    pub reason: String,
    pub actor: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Refused,
}

/// What was asked in one direction, and what came of it.
#[derive(Debug, Default)]
struct Side {
    /// The attempt that is or was asked last; 0: never.
    attempt: i64,
    answer: Option<Answer>,
    /// Nothing was heard since it was asked last, and it may be asked again.
    silent: bool,
    /// It is not waited for.
    given_up: bool,
}

impl Side {
    fn is_done(&self) -> bool {
        self.answer == Some(Answer::Done)
    }

    fn was_refused(&self) -> bool {
        self.attempt > 0 && self.answer == Some(Answer::Refused)
    }
}

/// A saga as far as its history was followed.
struct Walk<'a> {
    outline: &'a Outline,
    sides: BTreeMap<(String, bool), Side>,
    /// Turned back; and whether a person wanted it.
    back: Option<bool>,
    stands: &'static str,
}

/// Where a history ends: the status it leads to; or the first line that must not be there, and why.
pub(crate) fn follow(outline: &Outline, history: &[Entry]) -> Result<&'static str, String> {
    let mut walk = Walk { outline, sides: BTreeMap::new(), back: None, stands: "" };
    for (at, entry) in history.iter().enumerate() {
        let numbered = if entry.n == at as i64 + 1 { Ok(()) } else { Err(format!("comes as the line {}", at + 1)) };
        numbered.and_then(|()| walk.step(entry)).map_err(|why| {
            let Entry { n, what, direction, leg, attempt, .. } = entry;
            format!("line {n} ({what} {direction} {leg} {attempt}) {why}")
        })?;
    }
    Ok(walk.stands)
}

const OK: Result<(), String> = Ok(());

fn only_if(holds: bool, why: &str) -> Result<(), String> {
    if holds { OK } else { Err(why.to_owned()) }
}

impl<'a> Walk<'a> {
    fn step(&mut self, entry: &Entry) -> Result<(), String> {
        let by_person = !entry.actor.is_empty();
        match (self.stands, entry.what.as_str()) {
            ("", "started") => self.stands = "running",
            ("", _) => return Err("comes before the start".into()),
            (_, "ignored") => {}
            ("completed", "turned_back") if by_person => {}
            ("completed" | "compensated" | "abandoned", _) => return Err("comes after the end".into()),
            _ => {}
        }
        match entry.what.as_str() {
            "started" => only_if(entry.n == 1, "is a second start"),
            "ignored" => OK,
            "turned_back" => self.turns_back(by_person),
            "completed" => self.completes(),
            "compensated" => self.compensates(),
            "stuck" => self.is_stuck(),
            "abandoned" => {
                self.stands = "abandoned";
                only_if(by_person, "is nobody's act")
            }
            what => self.of_a_step(what, entry, by_person),
        }
    }

    fn of_a_step(&mut self, what: &str, entry: &Entry, by_person: bool) -> Result<(), String> {
        let step = self.outline.find(&entry.leg).ok_or("is of no step of the definition")?;
        let undo = entry.direction == "undo";
        let attempt: i64 = entry.attempt.parse().map_err(|_| "has no attempt")?;
        if what == "asked" {
            self.may_be_asked(step, undo)?;
        }
        let back = self.back.is_some();
        let side = self.sides.entry((step.name.clone(), undo)).or_default();
        if what == "asked" {
            let next = match (side.attempt, side.answer) {
                (0, _) => 1,
                (now, None) => {
                    only_if(side.silent, "asks again without silence")?;
                    now
                }
                (now, Some(Answer::Refused)) => now + 1,
                (_, Some(Answer::Done)) => return Err("asks for what is done".into()),
            };
            only_if(attempt == next, "is of another attempt than the one that is due")?;
            *side = Side { attempt, ..Side::default() };
            self.stands = if back { "compensating" } else { "running" };
            return OK;
        }
        only_if(side.attempt > 0, "was never asked for")?;
        only_if(side.attempt == attempt, "is of another attempt than the one that was asked")?;
        let open = side.answer.is_none();
        match what {
            "done" | "refused" => {
                only_if(open, "is a second answer")?;
                side.answer = Some(if what == "done" { Answer::Done } else { Answer::Refused });
            }
            "skipped" => {
                only_if(by_person, "is nobody's act")?;
                side.answer = Some(Answer::Done);
            }
            "retried" => {
                only_if(by_person, "is nobody's act")?;
                side.silent = true;
            }
            "silent" => {
                only_if(open && !side.given_up, "is of something that is not waited for")?;
                side.silent = true;
            }
            "unknown" => {
                only_if(open && !undo, "is of something that is known")?;
                side.given_up = true;
            }
            "failed" => {
                only_if(undo && !side.is_done(), "is of something that did not fail")?;
                side.given_up = true;
            }
            _ => return Err("is nothing that may happen here".into()),
        }
        OK
    }

    fn may_be_asked(&self, step: &Step, undo: bool) -> Result<(), String> {
        if !undo {
            only_if(self.back.is_none(), "goes forward after the saga turned back")?;
            let before = self.outline.steps.iter().filter(|other| other.stage < step.stage);
            return only_if(before.into_iter().all(|other| self.done(other)), "comes before an earlier step is done");
        }
        let requested = self.back.ok_or("undoes before the saga turned back")?;
        only_if(self.is_to_be_undone(step, requested), "undoes what was not done, or has nothing that undoes it")?;
        let later = self.outline.steps.iter().filter(|other| other.stage > step.stage);
        only_if(later.into_iter().all(|other| self.is_settled(other, requested)), "comes before a later step is undone")
    }

    fn side(&self, step: &Step, undo: bool) -> Option<&Side> {
        self.sides.get(&(step.name.clone(), undo))
    }

    fn done(&self, step: &Step) -> bool {
        self.side(step, false).is_some_and(Side::is_done)
    }

    /// Whether a step may have been done, and something undoes it.
    fn is_to_be_undone(&self, step: &Step, requested: bool) -> bool {
        let may_be_done = self.side(step, false).is_some_and(|side| side.attempt > 0 && !side.was_refused());
        may_be_done && step.undone_by.iter().any(|undo| requested || !undo.on_request)
    }

    /// Whether nothing of a step is left to be undone, or it is not tried any more.
    fn is_settled(&self, step: &Step, requested: bool) -> bool {
        !self.is_to_be_undone(step, requested)
            || self.side(step, true).is_some_and(|side| side.is_done() || side.given_up)
    }

    fn turns_back(&mut self, by_person: bool) -> Result<(), String> {
        only_if(self.back.is_none(), "turns back twice")?;
        let pivot = self.outline.steps.iter().find(|step| step.pivot).ok_or("has no pivot")?;
        let past = self.side(pivot, false).is_some_and(|side| !side.was_refused());
        let failed = |step: &&Step| self.side(step, false).is_some_and(|side| side.was_refused() || side.given_up);
        if !by_person {
            only_if(!past, "turns back past the pivot by itself")?;
            let reached = self.outline.steps.iter().filter(|step| step.stage <= pivot.stage);
            only_if(reached.into_iter().any(|step| failed(&step)), "turns back without need")?;
        }
        self.back = Some(past);
        self.stands = "compensating";
        OK
    }

    fn completes(&mut self) -> Result<(), String> {
        self.stands = "completed";
        only_if(self.back.is_none(), "completes after it turned back")?;
        only_if(self.outline.steps.iter().all(|step| self.done(step)), "completes before every step is done")
    }

    fn compensates(&mut self) -> Result<(), String> {
        self.stands = "compensated";
        let requested = self.back.ok_or("is undone without having turned back")?;
        let left = self.outline.steps.iter().filter(|step| self.is_to_be_undone(step, requested));
        let undone = |step: &Step| self.side(step, true).is_some_and(Side::is_done);
        only_if(left.into_iter().all(undone), "ends before every step is undone")
    }

    fn is_stuck(&mut self) -> Result<(), String> {
        self.stands = "stuck";
        let undo = self.back.is_some();
        let open = |side: &Side| !side.is_done() && (side.given_up || (!undo && side.was_refused()));
        let some = self.sides.iter().any(|((_, its), side)| *its == undo && open(side));
        only_if(some, "is stuck without a step that keeps it from going on")
    }
}

/// What was said and heard by a line of the history, where that lies on a topic: the types of which its envelope may
/// be.
pub(crate) fn said<'a>(outline: &'a Outline, entry: &Entry) -> Option<Vec<&'a str>> {
    let step = outline.find(&entry.leg)?;
    let exchanges: Vec<&Exchange> = match entry.direction.as_str() {
        "undo" => step.undone_by.iter().map(|undo| &undo.asks).collect(),
        _ => vec![&step.asks],
    };
    let on_topics = exchanges.into_iter().filter(|exchange| !exchange.local);
    let types: Vec<&str> = on_topics
        .filter_map(|exchange| match entry.what.as_str() {
            "asked" => Some(exchange.command.as_str()),
            "done" => Some(exchange.done.as_str()),
            "refused" => Some(exchange.refused.as_str()),
            _ => None,
        })
        .collect();
    (!types.is_empty()).then_some(types)
}
