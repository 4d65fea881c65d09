//! A saga run to its end against participants that behave as they are told.

use super::{
    Answers,
    world::{Kept, World},
};
use malote_core::Message;
use malote_core::saga::{Direction, Input, LegId, OperationId, Saga, Send, Status};
use std::collections::VecDeque;

/// What a participant does with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Done,
    Refuse,
    Silent,
}

/// No story is longer.
const STEPS: usize = 10_000;

pub(super) struct Run<'s, 'a, S> {
    pub world: World<'s, S>,
    answers: &'a Answers,
    /// Sent, and not looked at by its participant.
    queue: VecDeque<Send>,
    /// Each answer comes so many times.
    pub copies: usize,
    /// When this leg is about to be answered, this answer comes before it.
    pub overtakes: Option<(LegId, OperationId, Message)>,
    /// Every answer that was given.
    pub said: Vec<(OperationId, Message)>,
}

impl<'s, 'a, S: Kept> Run<'s, 'a, S> {
    #[track_caller]
    pub fn start(saga: &'s Saga<S>, state: S, answers: &'a Answers) -> Self {
        let (world, queue, said) = (World::new(saga, state), VecDeque::new(), Vec::new());
        let mut run = Self { world, answers, queue, copies: 1, overtakes: None, said };
        run.feed(Input::Started);
        run
    }

    /// As [`World::feed`]; participants hear what it sends.
    #[track_caller]
    pub fn feed(&mut self, input: Input) {
        let decision = self.world.feed(input);
        self.queue.extend(decision.sends);
    }

    #[track_caller]
    pub fn act(&mut self, deed: malote_core::saga::Deed) {
        let decision = self.world.act(deed);
        self.queue.extend(decision.sends);
    }

    /// The answer of a kind to an operation; none where it cannot be refused.
    pub fn answer(&self, operation: &OperationId, does: Does) -> Option<Message> {
        let send = self.world.sends.iter().find(|send| send.address.operation == *operation)?;
        match does {
            Does::Done => Some(self.answers.done(send)),
            Does::Refuse => self.answers.refused(send),
            Does::Silent => None,
        }
    }

    #[track_caller]
    pub fn say(&mut self, operation: &OperationId, answer: &Message) {
        let decision = self.world.reply(operation, answer);
        self.queue.extend(decision.sends);
        self.said.push((operation.clone(), answer.clone()));
    }

    /// Lets everything happen that happens by itself; time passes when nobody has anything to say.
    /// A participant that was told to refuse what cannot be refused does it.
    #[track_caller]
    pub fn finish(&mut self, does: &dyn Fn(&OperationId) -> Does) -> Status {
        for _ in 0..STEPS {
            if let Some(send) = self.queue.pop_front() {
                let operation = send.address.operation;
                if let Some((_, early, answer)) = self.overtakes.take_if(|(leg, ..)| *leg == operation.leg) {
                    self.say(&early, &answer);
                }
                let answer = match self.answer(&operation, does(&operation)) {
                    None if does(&operation) == Does::Refuse => self.answer(&operation, Does::Done),
                    answer => answer,
                };
                for _ in 0..self.copies {
                    if let Some(answer) = &answer {
                        self.say(&operation, answer);
                    }
                }
            } else {
                let Some((_, decision)) = self.world.fire_next() else { return self.world.instance.status };
                self.queue.extend(decision.sends);
            }
        }
        panic!("law broken: a saga ends, or is visibly stuck\n{}", self.world.show());
    }

    /// The legs that were asked in a direction, in the order in which they were asked first.
    pub fn asked(&self, direction: Direction) -> Vec<LegId> {
        let mut legs = Vec::new();
        for send in &self.world.sends {
            let operation = &send.address.operation;
            if operation.direction == direction && !legs.contains(&operation.leg) {
                legs.push(operation.leg.clone());
            }
        }
        legs
    }
}
