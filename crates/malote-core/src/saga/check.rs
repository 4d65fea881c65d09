//! Definitions that cannot be meant are refused at start, and by `malote map`.

use super::Saga;
use std::{collections::BTreeSet, fmt};

/// Something about a definition that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// Nothing to do.
    #[error("it has no steps")]
    Empty,
    /// A name that would not survive in an operation id.
    #[error("{0:?} is no name for a step or saga: use 1 to 60 of the characters a-z A-Z 0-9 space . _ -")]
    Name(String),
    /// One name, two steps.
    #[error("two steps are named {0:?}: the name tells their operations and answers apart")]
    TwoSteps(String),
    /// Two points of no return.
    #[error("{0:?} and {1:?} are both the pivot: there is one point of no return, what follows it is retried")]
    TwoPivots(String, String),
    /// Would have to be undone, and nothing says how.
    #[error(
        "{0:?} comes before the pivot and nothing undoes it: add .compensate(…), or say .nothing_to_undo(); \
         if it is the point of no return, say .pivot()"
    )]
    NoCompensation(String),
    /// Undone by hand only, where the saga itself may have to.
    #[error("{0:?} comes before the pivot and is undone on request only: the saga itself may have to undo it")]
    OnRequestOnly(String),
    /// Is never undone by the saga itself.
    #[error(
        "{0:?} is the pivot or comes after it, and from there on the saga goes forward only: a compensation can \
         be made when a person asks for it, say .undone_by(compensation(…).on_request())"
    )]
    CompensationAfterPivot(String),
    /// The state may call for none.
    #[error("all compensations of {0:?} have a condition: give it a last one that always applies")]
    NoOtherwise(String),
    /// Says both.
    #[error("{0:?} says that there is nothing to undo, and how to undo it")]
    Contradiction(String),
    /// A pivot that is several, or none.
    #[error("{0:?} is the pivot, and {1}: the point of no return has to be one step that is always done")]
    PivotNotOne(String, &'static str),
    /// Two compensations that answers could not tell apart.
    #[error("two compensations of {0:?} send {1}: their answers could not be told apart")]
    TwoUndos(String, String),
    /// A refusal would be taken for its contrary.
    #[error("{0:?} is answered by {1} both when it is done and when it is refused: give the refusal a type of its own")]
    OneAnswer(String, String),
    /// The deadline leaves no time.
    #[error("{0:?} waits no time for its answer: .within(…) has to be longer than nothing")]
    NoTime(String),
}

/// A definition that is refused, with all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDefinition {
    /// The saga's name.
    pub saga: String,
    /// What is wrong.
    pub mistakes: Vec<Mistake>,
}

impl fmt::Display for BadDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the definition of saga {:?} cannot be meant", self.saga)?;
        self.mistakes.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl std::error::Error for BadDefinition {}

impl<S> Saga<S> {
    /// Says what is wrong with the definition, all of it at once.
    pub fn check(&self) -> Result<(), BadDefinition> {
        let mut mistakes = Vec::new();
        if self.steps().next().is_none() {
            mistakes.push(Mistake::Empty);
        }
        self.check_names(&mut mistakes);
        self.check_pivot(&mut mistakes);
        self.check_compensations(&mut mistakes);
        self.check_answers(&mut mistakes);
        self.check_waits(&mut mistakes);
        match mistakes.is_empty() {
            true => Ok(()),
            false => Err(BadDefinition { saga: self.name.clone(), mistakes }),
        }
    }

    fn check_names(&self, mistakes: &mut Vec<Mistake>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-');
        let names = std::iter::once(&self.name).chain(self.steps().map(|(_, step)| &step.name));
        mistakes.extend(
            names
                .filter(|name| name.is_empty() || name.len() > 60 || !name.chars().all(plain))
                .map(|name| Mistake::Name(name.clone())),
        );
        let mut seen = BTreeSet::new();
        mistakes.extend(
            self.steps().filter(|(_, step)| !seen.insert(&step.name)).map(|(_, s)| Mistake::TwoSteps(s.name.clone())),
        );
    }

    fn check_pivot(&self, mistakes: &mut Vec<Mistake>) {
        let mut pivots = self.steps().filter(|(_, step)| step.pivot);
        let Some((at, pivot)) = pivots.next() else { return };
        mistakes.extend(pivots.map(|(_, other)| Mistake::TwoPivots(pivot.name.clone(), other.name.clone())));
        let reasons = [
            (pivot.parts.is_some(), "has parts, of which some may be done and others refused"),
            (self.stages[at].len() > 1, "is done at the same time as other steps"),
            (pivot.when.is_some(), "may be left out"),
        ];
        let wrong = reasons.into_iter().filter(|(wrong, _)| *wrong);
        mistakes.extend(wrong.map(|(_, why)| Mistake::PivotNotOne(pivot.name.clone(), why)));
    }

    fn check_compensations(&self, mistakes: &mut Vec<Mistake>) {
        let pivot = self.pivot().unwrap_or(usize::MAX);
        for (at, step) in self.steps() {
            let name = || step.name.clone();
            let found = match (at < pivot, step.undos.is_empty(), step.undoes_itself()) {
                (_, false, _) if step.nothing_to_undo => Some(Mistake::Contradiction(name())),
                (true, true, _) if !step.nothing_to_undo => Some(Mistake::NoCompensation(name())),
                (true, false, false) => Some(Mistake::OnRequestOnly(name())),
                (false, _, true) => Some(Mistake::CompensationAfterPivot(name())),
                _ => None,
            };
            mistakes.extend(found);
            let same = step.undos.iter().filter(|undo| undo.on_request != (at < pivot));
            if same.clone().next().is_some() && same.clone().all(|undo| undo.when.is_some()) {
                mistakes.push(Mistake::NoOtherwise(name()));
            }
            let mut kinds = BTreeSet::new();
            let twice =
                step.undos.iter().map(|undo| &undo.exchange.types.command.name).find(|kind| !kinds.insert(*kind));
            mistakes.extend(twice.map(|kind| Mistake::TwoUndos(name(), kind.clone())));
        }
    }

    fn check_answers(&self, mistakes: &mut Vec<Mistake>) {
        for (_, step) in self.steps() {
            let types = step.exchanges().map(|exchange| &exchange.types);
            let alike = types.filter(|types| types.refused.as_ref().is_some_and(|no| no.name == types.done.name));
            mistakes.extend(alike.map(|types| Mistake::OneAnswer(step.name.clone(), types.done.name.clone())));
        }
    }

    fn check_waits(&self, mistakes: &mut Vec<Mistake>) {
        for (_, step) in self.steps() {
            let mut waits = step.exchanges().filter_map(|exchange| exchange.patience.deadline);
            if waits.any(|deadline| deadline.is_zero()) {
                mistakes.push(Mistake::NoTime(step.name.clone()));
            }
        }
    }
}
