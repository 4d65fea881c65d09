//! What every saga keeps.

use super::{
    Answers, random,
    run::{Does, Run},
    watch,
    world::{Kept, World},
};
use malote_core::saga::{Deed, Direction, Idle, Input, LegId, OperationId, Saga, Status, StepKind, StepState, Verdict};

/// Checks that a saga keeps the laws of all sagas, for each of these states to begin with; panics with the
/// law that is broken, the picture of the instance and its history.
///
/// - All done: it ends completed, each command asked once.
/// - Each step refused: what came before is undone, and nothing else; after the pivot it is stuck.
/// - Each step silent: it is undone, too; from the pivot on it is asked again, then stuck, and a late
///   answer still counts.
/// - Each answer, and the start, repeated, at once and after the end: nothing changes.
/// - Each compensation repeated, refused once, silent once, and refused for ever: the others are made, and
///   the saga says over which one it is stuck.
/// - Each pair of answers swapped: an answer to what was not asked is nothing.
/// - An instance of another version is left alone.
/// - Five hundred random stories, with people acting in them: the machine is never left, and each ends in a
///   final state or visibly stuck.
///
/// After each single input of all of these: every wait has its timer and every timer its wait, the status
/// tells the truth, nothing is undone that was not asked, what was done last is undone first, the attempt
/// grows only after a definite answer, and the history is a path.
///
/// Choose states that take every branch.
#[track_caller]
pub fn laws<S: Kept + Clone>(saga: &Saga<S>, states: impl IntoIterator<Item = S>, answers: &Answers) {
    for state in states {
        let laws = Laws { saga, state, answers };
        let steps = laws.all_done();
        laws.another_version_is_left_alone();
        laws.repeated(&|_| Does::Done);
        laws.swapped(&steps);
        for step in &steps {
            laws.refused(step);
            laws.silent(step);
            laws.repeated(&|operation| does(operation, step, Does::Refuse));
            laws.compensations(step);
        }
        random::stories(saga, &laws.state, answers);
    }
}

struct Laws<'s, 'a, S> {
    saga: &'s Saga<S>,
    state: S,
    answers: &'a Answers,
}

/// One step does this, everything else is done.
fn does(operation: &OperationId, step: &LegId, does: Does) -> Does {
    match operation.direction == Direction::Do && operation.leg == *step {
        true => does,
        false => Does::Done,
    }
}

impl<'s, 'a, S: Kept + Clone> Laws<'s, 'a, S> {
    #[track_caller]
    fn start(&self) -> Run<'s, 'a, S> {
        Run::start(self.saga, self.state.clone(), self.answers)
    }

    #[track_caller]
    fn require(&self, run: &Run<'_, '_, S>, law: &str, holds: bool) {
        if !holds {
            panic!("law broken: {law}\n{}", run.world.show());
        }
    }

    /// Returns the steps that this state takes.
    #[track_caller]
    fn all_done(&self) -> Vec<LegId> {
        let mut run = self.start();
        let status = run.finish(&|_| Does::Done);
        self.require(&run, "a saga of which every step is done is completed", status == Status::Completed);
        let steps = run.asked(Direction::Do);
        self.require(&run, "each step is asked once", run.world.sends.len() == steps.len());
        steps
    }

    fn kind(&self, run: &Run<'_, '_, S>, leg: &LegId) -> StepKind {
        watch::step(&run.world, leg).map_or(StepKind::Compensatable, |step| step.kind)
    }

    #[track_caller]
    fn refused(&self, step: &LegId) {
        let mut run = self.start();
        let status = run.finish(&|operation| does(operation, step, Does::Refuse));
        if status == Status::Completed {
            return; // a step that cannot be refused
        }
        self.require(&run, "what is refused is not undone", !run.asked(Direction::Undo).contains(step));
        match self.kind(&run, step) {
            StepKind::Retriable => {
                self.require(&run, "a refusal after the pivot makes it stuck", status == Status::Stuck);
                self.require(&run, "after the pivot nothing is undone", run.asked(Direction::Undo).is_empty());
            }
            _ => self.require(&run, "a refusal undoes what came before", status == Status::Compensated),
        }
    }

    #[track_caller]
    fn silent(&self, step: &LegId) {
        let mut run = self.start();
        if run.world.sends.iter().any(|send| send.address.operation.leg == *step && send.local) {
            return;
        }
        let status = run.finish(&|operation| does(operation, step, Does::Silent));
        let Some(operation) = self.operation(&run, step) else { return };
        if run.world.sends.iter().any(|send| send.address.operation == operation && send.local) {
            return;
        }
        let Some(late) = run.answer(&operation, Does::Done) else { return };
        let undoable = watch::step(&run.world, step).is_some_and(|step| !step.undone_by.is_empty());
        if self.kind(&run, step) == StepKind::Compensatable {
            self.require(&run, "silence before the pivot turns the saga back", status == Status::Compensated);
            let undone = run.asked(Direction::Undo).contains(step);
            self.require(&run, "a step that may have been done is undone", undone == undoable);
            let sent = run.world.sends.len();
            run.say(&operation, &late);
            self.require(&run, "late success is compensated once", run.world.sends.len() == sent);
            return self.late_while_compensating(step);
        }
        self.require(&run, "silence from the pivot on makes it stuck", status == Status::Stuck);
        self.require(&run, "from the pivot on nothing is undone", run.asked(Direction::Undo).is_empty());
        run.say(&operation, &late);
        let status = run.finish(&|_| Does::Done);
        self.require(&run, "a late answer still counts", status == Status::Completed);
    }

    /// The answer comes while everything is being undone.
    #[track_caller]
    fn late_while_compensating(&self, step: &LegId) {
        let mut run = self.start();
        run.finish(&|operation| match operation.direction {
            Direction::Undo => Does::Silent,
            Direction::Do => does(operation, step, Does::Silent),
        });
        let mut run = match run.world.instance.status {
            Status::Stuck => run,
            _ => return, // nothing to undo
        };
        let Some(operation) = self.operation(&run, step) else { return };
        let Some(late) = run.answer(&operation, Does::Done) else { return };
        run.say(&operation, &late);
        self.require(&run, "a late success alone undoes nothing", run.world.instance.status == Status::Stuck);
        run.act(Deed::Retry { step: None });
        let status = run.finish(&|_| Does::Done);
        self.require(&run, "what is stuck ends when a person has it tried again", status == Status::Compensated);
    }

    /// The operation that asked for a step.
    fn operation(&self, run: &Run<'_, '_, S>, step: &LegId) -> Option<OperationId> {
        let mut operations = run.world.sends.iter().map(|send| &send.address.operation);
        operations.find(|operation| operation.leg == *step && operation.direction == Direction::Do).cloned()
    }

    #[track_caller]
    fn repeated(&self, does: &dyn Fn(&OperationId) -> Does) {
        let mut once = self.start();
        once.finish(does);
        let mut twice = self.start();
        twice.copies = 2;
        twice.finish(does);
        let same = once.world.state() == twice.world.state() && once.world.sends == twice.world.sends;
        self.require(&twice, "an answer that comes twice counts once", same);
        let before = (twice.world.state(), twice.world.instance.status);
        for (operation, answer) in twice.said.clone() {
            twice.say(&operation, &answer);
        }
        for timer in twice.world.timers_ever.clone() {
            twice.feed(Input::Deadline(timer));
        }
        twice.feed(Input::Started);
        let same =
            once.world.sends == twice.world.sends && before == (twice.world.state(), twice.world.instance.status);
        self.require(&twice, "whatever comes again after the end changes nothing", same);
    }

    /// Undoing what comes before `step`: each compensation repeated, refused, silent.
    #[track_caller]
    fn compensations(&self, step: &LegId) {
        let mut run = self.start();
        run.finish(&|operation| does(operation, step, Does::Refuse));
        for undo in run.asked(Direction::Undo) {
            let is = |operation: &OperationId| operation.direction == Direction::Undo && operation.leg == undo;
            let local = run.world.sends.iter().any(|send| is(&send.address.operation) && send.local);
            if !local {
                self.refused_once(step, &is);
                self.silent_once(step, &is);
            }
            self.refused_for_ever(step, &undo, &is);
        }
    }

    #[track_caller]
    fn refused_once(&self, step: &LegId, is: &dyn Fn(&OperationId) -> bool) {
        let mut run = self.start();
        let status = run.finish(&|operation| match is(operation) && operation.attempt == 1 {
            true => Does::Refuse,
            false => does(operation, step, Does::Refuse),
        });
        self.require(&run, "a compensation that is refused is tried again", status == Status::Compensated);
    }

    #[track_caller]
    fn silent_once(&self, step: &LegId, is: &dyn Fn(&OperationId) -> bool) {
        let mut run = self.start();
        let asked = std::cell::Cell::new(0);
        let status = run.finish(&|operation| {
            if is(operation) {
                asked.set(asked.get() + 1);
            }
            match is(operation) && asked.get() == 1 {
                true => Does::Silent,
                false => does(operation, step, Does::Refuse),
            }
        });
        let attempts = run.world.sends.iter().filter(|send| is(&send.address.operation));
        let same = attempts.clone().all(|send| send.address.operation.attempt == 1) && attempts.count() == 2;
        self.require(&run, "a silent compensation is asked again, as the same operation", same);
        self.require(&run, "and then the saga goes on", status == Status::Compensated);
    }

    #[track_caller]
    fn refused_for_ever(&self, step: &LegId, undo: &LegId, is: &dyn Fn(&OperationId) -> bool) {
        let mut run = self.start();
        let status = run.finish(&|operation| match is(operation) {
            true => Does::Refuse,
            false => does(operation, step, Does::Refuse),
        });
        if status == Status::Compensated {
            return; // a compensation that cannot be refused
        }
        let open: Vec<_> = run.world.instance.open().map(|leg| leg.id.clone()).collect();
        self.require(&run, "a compensation that fails for good makes it stuck", status == Status::Stuck);
        self.require(&run, "what is not undone is shown", open == [undo.clone()]);
        let others = run.world.instance.legs.iter().filter(|leg| leg.id != *undo);
        let left = others.into_iter().any(|leg| {
            let undos = watch::step(&run.world, &leg.id).is_some_and(|step| !step.undone_by.is_empty());
            undos && matches!(leg.state, StepState::Done | StepState::Skipped | StepState::Unknown { .. })
        });
        self.require(&run, "a compensation that fails does not stop the earlier ones", !left);
        run.act(Deed::Retry { step: Some(undo.to_string()) });
        let status = run.finish(&|_| Does::Done);
        self.require(&run, "what is stuck ends when a person has it tried again", status == Status::Compensated);
    }

    /// Each answer comes before each one that it has to follow.
    #[track_caller]
    fn swapped(&self, steps: &[LegId]) {
        let mut straight = self.start();
        straight.finish(&|_| Does::Done);
        for (at, first) in steps.iter().enumerate() {
            for second in &steps[at + 1..] {
                let mut run = self.start();
                let early = self.operation(&straight, second);
                let answer = early.and_then(|early| Some((straight.answer(&early, Does::Done)?, early)));
                run.overtakes = answer.map(|(answer, early)| (first.clone(), early, answer));
                let status = run.finish(&|_| Does::Done);
                self.require(&run, "answers may overtake each other", status == Status::Completed);
                let stage = |leg| watch::step(&run.world, leg).map(|step| step.stage);
                let same = stage(first) == stage(second) || run.world.state() == straight.world.state();
                self.require(&run, "an answer to what was not asked is nothing", same);
            }
        }
    }

    #[track_caller]
    fn another_version_is_left_alone(&self) {
        let mut world = World::new(self.saga, self.state.clone());
        world.instance.version += 1;
        let decision = self.saga.advance(&mut world.instance, Input::Started);
        if decision.verdict != Verdict::Ignored(Idle::NotOurs) {
            panic!("law broken: an instance of another version is left alone\n{}", world.show());
        }
    }
}
