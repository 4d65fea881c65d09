//! Stories that nobody would write.

use super::{
    Answers,
    run::{Does, Run},
    world::Kept,
};
use malote_core::Message;
use malote_core::saga::{Deed, Input, OperationId, Saga, Status};
use uuid::Uuid;

const STORIES: u64 = 500;
const EVENTS: usize = 25;

/// Plays random stories, each by its own seed, to an end where nobody is silent any more.
#[track_caller]
pub(super) fn stories<S: Kept + Clone>(saga: &Saga<S>, state: &S, answers: &Answers) {
    for seed in 0..STORIES {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut run = Run::start(saga, state.clone(), answers);
        for _ in 0..EVENTS {
            something(&mut run, &mut dice);
        }
        for operation in operations(&run) {
            if run.world.instance.pending().any(|leg| leg.id == operation.leg) {
                answer(&mut run, &operation, Does::Done);
            }
        }
        let status = run.finish(&|_| Does::Done);
        if !status.is_final() && status != Status::Stuck {
            panic!("law broken: a saga ends, or is visibly stuck (seed {seed})\n{}", run.world.show());
        }
    }
}

fn something<S: Kept>(run: &mut Run<'_, '_, S>, dice: &mut fastrand::Rng) {
    let operations = operations(run);
    let Some(operation) = dice.choice(&operations).cloned() else { return };
    match dice.u8(0..100) {
        0..50 => answer(run, &operation, Does::Done),
        50..62 => answer(run, &operation, Does::Refuse),
        62..78 => drop(run.world.fire_next()),
        78..82 => {
            let timer = dice.choice(&run.world.timers_ever).cloned();
            let timer = timer.filter(|timer| !run.world.timers.contains_key(timer));
            run.feed(Input::Deadline(timer.unwrap_or_else(|| "no such timer".into())));
        }
        82..84 => run.feed(Input::Started),
        84..86 => run.feed(Input::GivenUp { operation, reason: "the message is a dead letter".into() }),
        86..88 => garbage(run, &operation),
        88..92 => {
            if let Some(answer) = run.answer(&operation, Does::Done) {
                run.say(&strange(operation, dice), &answer);
            }
        }
        _ => person(run, dice),
    }
}

/// Every operation that was ever asked.
fn operations<S: Kept>(run: &Run<'_, '_, S>) -> Vec<OperationId> {
    run.world.sends.iter().map(|send| send.address.operation.clone()).collect()
}

fn answer<S: Kept>(run: &mut Run<'_, '_, S>, operation: &OperationId, does: Does) {
    if let Some(answer) = run.answer(operation, does).or_else(|| run.answer(operation, Does::Done)) {
        run.say(operation, &answer);
    }
}

/// An answer of the right type that says nothing.
fn garbage<S: Kept>(run: &mut Run<'_, '_, S>, operation: &OperationId) {
    if let Some(answer) = run.answer(operation, Does::Done) {
        run.say(operation, &Message { payload: "\u{fffd}".into(), ..answer });
    }
}

/// An operation that is not, or no longer, or not here.
fn strange(operation: OperationId, dice: &mut fastrand::Rng) -> OperationId {
    match dice.u8(0..3) {
        0 => OperationId { attempt: operation.attempt + 1, ..operation },
        1 => OperationId { attempt: operation.attempt.saturating_sub(1), ..operation },
        _ => OperationId { saga: Uuid::from_u128(1), ..operation },
    }
}

fn person<S: Kept>(run: &mut Run<'_, '_, S>, dice: &mut fastrand::Rng) {
    let legs: Vec<_> = run.world.instance.legs.iter().map(|leg| (leg.id.clone(), leg.direction())).collect();
    let Some((leg, direction)) = dice.choice(&legs).cloned() else { return };
    let deed = match dice.u8(0..11) {
        0..3 => Deed::Retry { step: None },
        3..6 => Deed::Retry { step: Some(leg.to_string()) },
        6..8 => {
            let operation = operations(run).into_iter().rev().find(|o| o.leg == leg && o.direction == direction);
            let answer = operation.and_then(|operation| run.answer(&operation, Does::Done));
            Deed::Skip {
                step: leg.to_string(),
                answer: answer.map(|answer| String::from_utf8_lossy(&answer.payload).into_owned()),
            }
        }
        8 => Deed::Compensate,
        9 => Deed::TurnBack,
        _ => Deed::Abandon,
    };
    run.act(deed);
}
