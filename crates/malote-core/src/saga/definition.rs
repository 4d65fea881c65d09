//! A saga's definition: its steps, in order.

use super::step::{Step, StepDef};
use super::{Command, Direction, Instance, LegId, Status};
use crate::retry::Policy;
use std::fmt;
use uuid::Uuid;

/// The definition of a saga over a state `S`: what is asked of whom, in which order, and what undoes it.
///
/// ```
/// # use malote_core::{Event, saga::{Command, Saga, step}};
/// # use serde::{Deserialize, Serialize};
/// # use std::time::Duration;
/// # macro_rules! message { ($($name:ident = $type:literal),+) => { $(
/// #     #[derive(Serialize, Deserialize)] struct $name { order: String }
/// #     impl Event for $name { const TYPE: &'static str = $type; fn key(&self) -> String { self.order.clone() } }
/// #     impl std::fmt::Display for $name { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str($type) } }
/// # )+ } }
/// # message!(Reserve = "stock.reserve.v1", Reserved = "stock.reserved.v1", NoStock = "stock.refused.v1",
/// #     Release = "stock.release.v1", Released = "stock.released.v1", NotReleased = "stock.not-released.v1",
/// #     Charge = "card.charge.v1", Charged = "card.charged.v1", Declined = "card.declined.v1");
/// # impl Command for Reserve { type Done = Reserved; type Refused = NoStock; }
/// # impl Command for Release { type Done = Released; type Refused = NotReleased; }
/// # impl Command for Charge { type Done = Charged; type Refused = Declined; }
/// # #[derive(Serialize, Deserialize)] struct Order { id: String, paid: bool }
/// fn place_order() -> Saga<Order> {
///     Saga::named("place-order", 1)
///         .step(
///             step("reserve stock", |o: &Order| Reserve { order: o.id.clone() })
///                 .compensate(|o| Release { order: o.id.clone() })
///                 .within(Duration::from_secs(30)),
///         )
///         .step(
///             step("charge card", |o: &Order| Charge { order: o.id.clone() })
///                 .done(|o, _| o.paid = true)
///                 .pivot(),
///         )
/// }
/// place_order().check().unwrap();
/// ```
pub struct Saga<S> {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) stages: Vec<Vec<StepDef<S>>>,
}

/// Steps that are done at the same time; see [`Saga::parallel`].
pub struct Group<S>(Vec<StepDef<S>>);

impl<S: 'static> Group<S> {
    /// One more of them.
    pub fn step<C: Command, K>(mut self, step: Step<S, C, K>) -> Self {
        self.0.push(step.erase());
        self
    }
}

impl<S: 'static> Saga<S> {
    /// A saga of this name and version, without steps yet. An instance ends under the version under
    /// which it began: a changed definition gets a new version, and the old one stays until its last
    /// instance has ended. See [`Outline::differences`](super::Outline::differences).
    pub fn named(name: &str, version: u32) -> Self {
        Self { name: name.into(), version, stages: Vec::new() }
    }

    /// The next step.
    pub fn step<C: Command, K>(mut self, step: Step<S, C, K>) -> Self {
        self.stages.push(vec![step.erase()]);
        self
    }

    /// Steps that are done at the same time: the next one comes when all of them are done. When one is
    /// refused, the others are undone, those that have not answered yet included.
    pub fn parallel(mut self, group: impl FnOnce(Group<S>) -> Group<S>) -> Self {
        self.stages.push(group(Group(Vec::new())).0);
        self
    }

    /// A new instance, on which [`advance`](Self::advance) with [`Input::Started`](super::Input::Started)
    /// asks for the first step.
    pub fn begin(&self, id: Uuid, state: S) -> Instance<S> {
        Instance {
            id,
            definition: self.name.clone(),
            version: self.version,
            state,
            status: Status::Running,
            heading: Direction::Do,
            on_request: false,
            reason: None,
            legs: Vec::new(),
            entries: 0,
            revision: 0,
        }
    }
}

impl<S> Saga<S> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What a state calls for of a step when it is reached: the step or its parts; nothing where it would
    /// be left out, or is not a step.
    pub fn called_for(&self, step: &str, state: &S) -> Vec<LegId> {
        self.find(step).map_or_else(Vec::new, |(_, step)| step.called_for(state))
    }

    /// Every step with its place in the order.
    pub(super) fn steps(&self) -> impl DoubleEndedIterator<Item = (usize, &StepDef<S>)> {
        self.stages.iter().enumerate().flat_map(|(at, stage)| stage.iter().map(move |step| (at, step)))
    }

    /// A step by name, with its place in the order.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &StepDef<S>)> {
        self.steps().find(|(_, step)| step.name == name)
    }

    /// Where the pivot is.
    pub(super) fn pivot(&self) -> Option<usize> {
        self.steps().find(|(_, step)| step.pivot).map(|(at, _)| at)
    }

    /// How silence is met where a step says nothing: before the pivot one question is enough, as the
    /// saga can turn back; from there on it can only ask again.
    pub(super) fn usual_policy(&self, stage: usize) -> Policy {
        match self.pivot() {
            Some(pivot) if stage >= pivot => Policy::default(),
            _ => Policy::default().attempts(1),
        }
    }
}

impl<S> fmt::Debug for Saga<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.steps().map(|(_, step)| &step.name).collect();
        f.debug_struct("Saga").field("name", &self.name).field("version", &self.version).field("steps", &steps).finish()
    }
}
