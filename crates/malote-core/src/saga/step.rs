//! How a step is written down.

use super::{
    Command, LegId,
    exchange::{Exchange, Patience, Typed},
};
use crate::retry::Policy;
use std::{collections::BTreeSet, marker::PhantomData, time::Duration};

type Condition<S> = Box<dyn Fn(&S) -> bool + Send + Sync>;
type Parts<S> = Box<dyn Fn(&S) -> Vec<String> + Send + Sync>;

/// Marks a step that is done as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Whole;
/// Marks a step that is done for each of several parts.
#[derive(Clone, Copy, Debug)]
pub struct PerPart;

/// A step of a saga over `S`: one command, and what follows from its answers.
#[must_use = "a step does nothing until it is given to a saga"]
pub struct Step<S, C: Command, K = Whole> {
    name: String,
    typed: Typed<S, C>,
    parts: Option<Parts<S>>,
    when: Option<Condition<S>>,
    undos: Vec<Undo<S>>,
    nothing_to_undo: bool,
    pivot: bool,
    kind: PhantomData<K>,
}

/// How a step is undone: a business act of its own, with its own answers, waits and possible failure.
#[must_use = "a compensation does nothing until it is given to a step by `undone_by`"]
pub struct Compensation<S, C: Command, K = Whole> {
    typed: Typed<S, C>,
    when: Option<Condition<S>>,
    on_request: bool,
    kind: PhantomData<K>,
}

/// A step of which the types are forgotten.
pub(super) struct StepDef<S> {
    pub name: String,
    pub forward: Exchange<S>,
    pub parts: Option<Parts<S>>,
    pub when: Option<Condition<S>>,
    pub undos: Vec<Undo<S>>,
    pub nothing_to_undo: bool,
    pub pivot: bool,
}

/// A compensation of which the types are forgotten.
pub(super) struct Undo<S> {
    pub exchange: Exchange<S>,
    pub when: Option<Condition<S>>,
    pub on_request: bool,
}

/// A step that asks for what `command` makes of the saga's state.
pub fn step<S: 'static, C: Command>(name: &str, command: impl Fn(&S) -> C + Send + Sync + 'static) -> Step<S, C> {
    Step::new(name, None, Typed::new(Box::new(move |state, _| command(state))))
}

/// A step that asks once for each of `parts`, all at the same time, and is done when all are. What the
/// parts are is taken from the state when the step is reached, and stays so; each only once, and with
/// none the step is left out.
pub fn each<S: 'static, C: Command>(
    name: &str,
    parts: impl Fn(&S) -> Vec<String> + Send + Sync + 'static,
    command: impl Fn(&S, &str) -> C + Send + Sync + 'static,
) -> Step<S, C, PerPart> {
    Step::new(name, Some(Box::new(parts)), Typed::new(Box::new(command)))
}

/// A compensation that asks for what `command` makes of the saga's state.
pub fn compensation<S: 'static, C: Command>(command: impl Fn(&S) -> C + Send + Sync + 'static) -> Compensation<S, C> {
    Compensation::new(Typed::new(Box::new(move |state, _| command(state))))
}

/// A compensation of one part of a step.
pub fn compensation_each<S: 'static, C: Command>(
    command: impl Fn(&S, &str) -> C + Send + Sync + 'static,
) -> Compensation<S, C, PerPart> {
    Compensation::new(Typed::new(Box::new(command)))
}

impl<S: 'static, C: Command, K> Step<S, C, K> {
    fn new(name: &str, parts: Option<Parts<S>>, typed: Typed<S, C>) -> Self {
        let kind = PhantomData;
        Self { name: name.into(), typed, parts, when: None, undos: vec![], nothing_to_undo: false, pivot: false, kind }
    }

    /// How long to wait for an answer. Before the pivot the saga then turns back, and undoes this step,
    /// too; from the pivot on it asks again, and in the end it is stuck. 30 s where nothing is said.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.typed.patience.deadline = Some(deadline);
        self
    }

    /// How often to ask when no answer comes, and how long to wait before asking again. Where nothing is
    /// said: once before the pivot, from the pivot on as [`Policy::default`] says.
    pub fn retry(mut self, policy: Policy) -> Self {
        self.typed.patience.policy = Some(policy);
        self
    }

    /// Done by the saga's own service, in the transaction that advances the saga; so there is no wait.
    pub fn local(mut self) -> Self {
        self.typed.local = true;
        self
    }

    /// Only when this holds once the step is reached; otherwise it is left out.
    pub fn when(mut self, condition: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Box::new(condition));
        self
    }

    /// The point of no return: once it is done, the saga goes forward only.
    pub fn pivot(mut self) -> Self {
        self.pivot = true;
        self
    }

    /// Says that this step leaves nothing that would have to be undone.
    pub fn nothing_to_undo(mut self) -> Self {
        self.nothing_to_undo = true;
        self
    }

    /// How it is undone. Of several, the first one whose condition holds is taken, again at each attempt.
    pub fn undone_by<U: Command>(mut self, compensation: Compensation<S, U, K>) -> Self {
        let Compensation { typed, when, on_request, .. } = compensation;
        self.undos.push(Undo { exchange: typed.erase(), when, on_request });
        self
    }

    pub(super) fn erase(self) -> StepDef<S> {
        let Self { name, typed, parts, when, undos, nothing_to_undo, pivot, .. } = self;
        StepDef { name, forward: typed.erase(), parts, when, undos, nothing_to_undo, pivot }
    }
}

impl<S: 'static, C: Command> Step<S, C, Whole> {
    /// What the saga keeps of the answer.
    pub fn done(mut self, keep: impl Fn(&mut S, C::Done) + Send + Sync + 'static) -> Self {
        self.typed.done = Box::new(move |state, _, answer| keep(state, answer));
        self
    }

    /// What the saga keeps of a refusal.
    pub fn refused(mut self, keep: impl Fn(&mut S, C::Refused) + Send + Sync + 'static) -> Self {
        self.typed.refused = Box::new(move |state, _, answer| keep(state, answer));
        self
    }

    /// The command that undoes it; short for [`undone_by`](Self::undone_by)`(compensation(command))`.
    pub fn compensate<U: Command>(self, command: impl Fn(&S) -> U + Send + Sync + 'static) -> Self {
        self.undone_by(compensation(command))
    }
}

impl<S: 'static, C: Command> Step<S, C, PerPart> {
    /// What the saga keeps of the answer for a part.
    pub fn done(mut self, keep: impl Fn(&mut S, &str, C::Done) + Send + Sync + 'static) -> Self {
        self.typed.done = Box::new(keep);
        self
    }

    /// What the saga keeps of a refusal.
    pub fn refused(mut self, keep: impl Fn(&mut S, &str, C::Refused) + Send + Sync + 'static) -> Self {
        self.typed.refused = Box::new(keep);
        self
    }

    /// The command that undoes a part; short for
    /// [`undone_by`](Self::undone_by)`(compensation_each(command))`.
    pub fn compensate<U: Command>(self, command: impl Fn(&S, &str) -> U + Send + Sync + 'static) -> Self {
        self.undone_by(compensation_each(command))
    }
}

impl<S: 'static, C: Command, K> Compensation<S, C, K> {
    fn new(typed: Typed<S, C>) -> Self {
        Self { typed, when: None, on_request: false, kind: PhantomData }
    }

    /// How long to wait for an answer before asking again. 30 s where nothing is said.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.typed.patience.deadline = Some(deadline);
        self
    }

    /// How often to ask when it is refused or no answer comes. As [`Policy::default`] says where nothing
    /// is said; after the last attempt it has failed, and the saga ends stuck.
    pub fn retry(mut self, policy: Policy) -> Self {
        self.typed.patience.policy = Some(policy);
        self
    }

    /// Done by the saga's own service, in the transaction that advances the saga.
    pub fn local(mut self) -> Self {
        self.typed.local = true;
        self
    }

    /// Only when this holds; looked at again before each attempt.
    pub fn when(mut self, condition: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Box::new(condition));
        self
    }

    /// Only when a person asks for the saga to be compensated: what the pivot and later steps have.
    pub fn on_request(mut self) -> Self {
        self.on_request = true;
        self
    }
}

impl<S: 'static, C: Command> Compensation<S, C, Whole> {
    /// What the saga keeps of the answer.
    pub fn done(mut self, keep: impl Fn(&mut S, C::Done) + Send + Sync + 'static) -> Self {
        self.typed.done = Box::new(move |state, _, answer| keep(state, answer));
        self
    }

    /// What the saga keeps of a refusal.
    pub fn refused(mut self, keep: impl Fn(&mut S, C::Refused) + Send + Sync + 'static) -> Self {
        self.typed.refused = Box::new(move |state, _, answer| keep(state, answer));
        self
    }
}

impl<S: 'static, C: Command> Compensation<S, C, PerPart> {
    /// What the saga keeps of the answer for a part.
    pub fn done(mut self, keep: impl Fn(&mut S, &str, C::Done) + Send + Sync + 'static) -> Self {
        self.typed.done = Box::new(keep);
        self
    }

    /// What the saga keeps of a refusal.
    pub fn refused(mut self, keep: impl Fn(&mut S, &str, C::Refused) + Send + Sync + 'static) -> Self {
        self.typed.refused = Box::new(keep);
        self
    }
}

impl<S> StepDef<S> {
    /// What the state calls for: the step, its parts, or nothing.
    pub fn called_for(&self, state: &S) -> Vec<LegId> {
        let leg = |part| LegId { step: self.name.clone(), part };
        match (&self.when, &self.parts) {
            (Some(holds), _) if !holds(state) => vec![],
            (_, None) => vec![leg(None)],
            (_, Some(parts)) => {
                let mut seen = BTreeSet::new();
                let once = parts(state).into_iter().filter(|part| seen.insert(part.clone()));
                once.map(|part| leg(Some(part))).collect()
            }
        }
    }

    /// Everything that is asked for it, and to undo it.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange<S>> {
        std::iter::once(&self.forward).chain(self.undos.iter().map(|undo| &undo.exchange))
    }

    /// Whether it can be undone without a person's asking.
    pub fn undoes_itself(&self) -> bool {
        self.undos.iter().any(|undo| !undo.on_request)
    }

    /// The compensation that the state calls for.
    pub fn undo(&self, state: &S, on_request: bool) -> Option<&Undo<S>> {
        self.undos
            .iter()
            .filter(|undo| on_request || !undo.on_request)
            .find(|undo| undo.when.as_ref().is_none_or(|holds| holds(state)))
    }

    /// The compensation that sends commands of this type.
    pub fn undo_by_kind(&self, kind: &str) -> Option<&Undo<S>> {
        self.undos.iter().find(|undo| undo.exchange.types.command.name == kind)
    }
}

impl<S> Exchange<S> {
    /// How long an answer is awaited; none for what is done in the saga's own transaction.
    pub(super) fn policy(&self, otherwise: Policy) -> Option<Policy> {
        (!self.local).then(|| Patience::or(self.patience, otherwise))
    }
}
