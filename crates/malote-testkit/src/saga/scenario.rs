//! One story of a saga, told in order.

use super::world::{Kept, World, reply};
use malote_core::Message;
use malote_core::saga::{
    Answer, Command, Decision, Deed, Direction, Idle, Input, Instance, LegId, OperationId, Saga, Send, Status, Verdict,
};
use std::{collections::VecDeque, time::Duration};

/// A saga that has just been started, on a clock at zero.
#[track_caller]
pub fn given<S: Kept>(saga: &Saga<S>, state: S) -> Scenario<'_, S> {
    let mut story = Scenario { world: World::new(saga, state), unseen: VecDeque::new(), said: Vec::new(), last: None };
    story.when_input(Input::Started);
    story
}

/// A story under way: `when_…` lets something happen, `then_…` says what follows. What does not follow
/// fails the test, with the picture of the saga and its history.
pub struct Scenario<'s, S> {
    world: World<'s, S>,
    /// What was sent and not looked at.
    unseen: VecDeque<Send>,
    /// The answers that were given.
    said: Vec<Input>,
    last: Option<Decision>,
}

/// A timer whose time has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// When, from the start of the story.
    pub at: Duration,
    /// Its name.
    pub timer: String,
    /// What the saga decided.
    pub decision: Decision,
}

impl<S: Kept> Scenario<'_, S> {
    /// Whatever the saga takes.
    #[track_caller]
    pub fn when_input(&mut self, input: Input) -> &mut Self {
        let decision = self.world.feed(input);
        self.note(decision);
        self
    }

    /// The participant answers the last command of type `C` that is sent.
    #[track_caller]
    pub fn when<C: Command>(&mut self, answer: Answer<C>) -> &mut Self {
        let operation = self.operation::<C>(None);
        self.when_answer::<C>(operation, answer)
    }

    /// The participant answers the command of type `C` for one part of a step.
    #[track_caller]
    pub fn when_part<C: Command>(&mut self, part: &str, answer: Answer<C>) -> &mut Self {
        let operation = self.operation::<C>(Some(part));
        self.when_answer::<C>(operation, answer)
    }

    /// The participant answers an operation.
    #[track_caller]
    pub fn when_answer<C: Command>(&mut self, operation: OperationId, answer: Answer<C>) -> &mut Self {
        let message = match &answer {
            Ok(done) => Message::of(done),
            Err(refused) => Message::of(refused),
        };
        let message = message.unwrap_or_else(|unfit| panic!("the answer cannot be sent: {unfit}"));
        let input = reply(&operation, &message);
        self.said.push(input.clone());
        self.when_input(input)
    }

    /// The last answer comes once more.
    #[track_caller]
    pub fn when_it_comes_again(&mut self) -> &mut Self {
        let input = self.said.last().cloned().expect("no answer has been given yet");
        self.when_input(input)
    }

    /// A person acts.
    #[track_caller]
    pub fn when_person(&mut self, deed: Deed) -> &mut Self {
        let decision = self.world.act(deed);
        self.note(decision);
        self
    }

    /// Time passes, and every timer that comes due in it fires at its time.
    #[track_caller]
    pub fn when_time_passes(&mut self, time: Duration) -> &mut Self {
        self.pass(time);
        self
    }

    /// As [`when_time_passes`](Self::when_time_passes), and returns everything that came due.
    #[track_caller]
    pub fn pass(&mut self, time: Duration) -> Vec<Due> {
        let until = self.world.now + time;
        let mut due = Vec::new();
        while self.world.timers.values().any(|at| *at <= until) {
            let Some((timer, decision)) = self.world.fire_next() else { break };
            self.note(decision.clone());
            due.push(Due { at: self.world.now, timer, decision });
        }
        self.world.now = until;
        due
    }

    /// Time passes until the next timer comes due, and it fires.
    #[track_caller]
    pub fn when_the_next_timer_fires(&mut self) -> &mut Self {
        match self.world.fire_next() {
            Some((_, decision)) => self.note(decision),
            None => self.wrong("no timer is set"),
        }
        self
    }

    /// A command of type `C` was sent, of those not looked at yet.
    #[track_caller]
    pub fn then_asks<C: Command>(&mut self) -> &mut Self {
        self.then_asks_that::<C>(|_| true)
    }

    /// A command of type `C` was sent of which this holds.
    #[track_caller]
    pub fn then_asks_that<C: Command>(&mut self, holds: impl Fn(&C) -> bool) -> &mut Self {
        let found = self.unseen.iter().position(|send| {
            send.message.kind == C::TYPE && serde_json::from_slice(&send.message.payload).is_ok_and(|c| holds(&c))
        });
        match found {
            Some(at) => drop(self.unseen.remove(at)),
            None => self.wrong(&format!("{} was not asked as expected, but {:?}", C::TYPE, self.kinds())),
        }
        self
    }

    /// Nothing else was sent.
    #[track_caller]
    pub fn then_asks_nothing(&mut self) -> &mut Self {
        if !self.unseen.is_empty() {
            self.wrong(&format!("nothing more was to be asked, but {:?} was", self.kinds()));
        }
        self
    }

    /// The saga stands so, and nothing was sent that was not looked at.
    #[track_caller]
    pub fn then(&mut self, status: Status) -> &mut Self {
        if self.world.instance.status != status {
            self.wrong(&format!("the saga was to be {}", status.as_str()));
        }
        self.then_asks_nothing()
    }

    /// A step, or a part of one (`reserve stock#porto`), stands so: by the name of its
    /// [`StepState`](malote_core::saga::StepState).
    #[track_caller]
    pub fn then_step(&mut self, leg: &str, state: &str) -> &mut Self {
        let stands = self.world.instance.leg(&LegId::from(leg.to_owned())).map_or("waiting", |leg| leg.state.as_str());
        if stands != state {
            self.wrong(&format!("the step {leg:?} was to be {state}, and is {stands}"));
        }
        self
    }

    /// What happened last changed nothing, for this reason.
    #[track_caller]
    pub fn then_ignored(&mut self, why: Idle) -> &mut Self {
        let verdict = self.last.as_ref().map(|decision| decision.verdict.clone());
        if verdict != Some(Verdict::Ignored(why)) {
            self.wrong(&format!("the last input was to be ignored because {why}, but was {verdict:?}"));
        }
        self
    }

    /// The person's act was refused, with an explanation that holds this.
    #[track_caller]
    pub fn then_denied(&mut self, holds: &str) -> &mut Self {
        match self.last.as_ref().map(|decision| decision.verdict.clone()) {
            Some(Verdict::Denied(why)) if why.contains(holds) => {}
            verdict => self.wrong(&format!("the act was to be denied with {holds:?}, but was {verdict:?}")),
        }
        self
    }

    /// The instance as it stands.
    pub fn instance(&self) -> &Instance<S> {
        &self.world.instance
    }

    /// The operation of the last command of type `C`, of a part where one is given.
    #[track_caller]
    pub fn operation<C: Command>(&self, part: Option<&str>) -> OperationId {
        let mut sends = self.world.sends.iter().rev().filter(|send| send.message.kind == C::TYPE);
        let send = sends.find(|send| part.is_none_or(|part| send.address.operation.leg.part() == part));
        let Some(send) = send else { panic!("{} was never asked\n{}", C::TYPE, self.world.show()) };
        send.address.operation.clone()
    }

    /// The picture of the saga, and its history.
    pub fn show(&self) -> String {
        self.world.show()
    }

    /// How many commands were sent in a direction.
    pub fn asked(&self, direction: Direction) -> usize {
        self.world.sends.iter().filter(|send| send.address.operation.direction == direction).count()
    }

    /// The timers that are set, with the time at which they fire.
    pub fn timers(&self) -> Vec<(String, Duration)> {
        self.world.timers.iter().map(|(name, at)| (name.clone(), *at)).collect()
    }

    fn note(&mut self, decision: Decision) {
        self.unseen.extend(decision.sends.iter().cloned());
        self.last = Some(decision);
    }

    fn kinds(&self) -> Vec<&str> {
        self.unseen.iter().map(|send| send.message.kind.as_str()).collect()
    }

    #[track_caller]
    fn wrong(&self, what: &str) -> ! {
        panic!("{what}\n{}", self.world.show())
    }
}
