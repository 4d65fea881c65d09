//! Sagas of different states side by side: a coordinator holds several, and several versions of one.

use super::{Decision, Input, Instance, Outline, Saga, Stored, UnreadableState};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

/// A [`Saga`] with the type of its state forgotten, working on [`Stored`] instances.
pub trait Machine: Send + Sync + 'static {
    /// The definition as data: name, version, steps.
    fn outline(&self) -> Outline;
    /// See [`Saga::check`].
    fn check(&self) -> Result<(), super::BadDefinition>;
    /// See [`Saga::begin`]; `state` is JSON text.
    fn begin_stored(&self, id: Uuid, state: String) -> Result<Stored, UnreadableState>;
    /// See [`Saga::advance`]. An instance whose state cannot be read is left as it is.
    fn advance_stored(&self, instance: &mut Stored, input: Input) -> Result<Decision, UnreadableState>;
    /// Whether this definition could go on with a stored instance: what to ask of a database before a
    /// deploy.
    fn can_take(&self, instance: &Stored) -> Result<(), String>;
}

impl<S: Serialize + DeserializeOwned + 'static> Machine for Saga<S> {
    fn outline(&self) -> Outline {
        Saga::outline(self)
    }

    fn check(&self) -> Result<(), super::BadDefinition> {
        Saga::check(self)
    }

    fn begin_stored(&self, id: Uuid, state: String) -> Result<Stored, UnreadableState> {
        let read = serde_json::from_str(&state);
        match read {
            Ok(state) => self.begin(id, state).into_stored().map_err(|error| self.unreadable(id, &error)),
            Err(error) => Err(self.unreadable(id, &error)),
        }
    }

    fn advance_stored(&self, instance: &mut Stored, input: Input) -> Result<Decision, UnreadableState> {
        let mut open: Instance<S> = instance.clone().into_typed()?;
        let decision = self.advance(&mut open, input);
        let id = open.id;
        *instance = open.into_stored().map_err(|error| self.unreadable(id, &error))?;
        Ok(decision)
    }

    fn can_take(&self, instance: &Stored) -> Result<(), String> {
        self.fits(instance)?;
        let open: Result<Instance<S>, _> = instance.clone().into_typed();
        open.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl<S> Saga<S> {
    fn unreadable(&self, saga: Uuid, error: &serde_json::Error) -> UnreadableState {
        UnreadableState { saga, definition: self.name.clone(), version: self.version, why: crate::unread(error) }
    }
}
