//! One instance, its timers on a virtual clock, and everything that was said so far.

use super::{history::History, watch};
use malote_core::Message;
use malote_core::inspect::Act;
use malote_core::saga::{Decision, Deed, Entry, Input, Instance, OperationId, Outline, Reply, Saga, Send, Timer};
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

/// A state that can be kept.
pub trait Kept: Serialize + DeserializeOwned + 'static {}
impl<S: Serialize + DeserializeOwned + 'static> Kept for S {}

pub(super) struct World<'s, S> {
    pub saga: &'s Saga<S>,
    pub outline: Outline,
    pub instance: Instance<S>,
    /// The instance as a store would keep it.
    kept: String,
    pub now: Duration,
    /// What is set, with the time at which it fires.
    pub timers: BTreeMap<String, Duration>,
    /// Every timer that was ever set.
    pub timers_ever: Vec<String>,
    /// Everything that was ever sent.
    pub sends: Vec<Send>,
    pub log: Vec<Entry>,
    pub history: History,
}

impl<'s, S: Kept> World<'s, S> {
    /// With an instance that has not begun.
    pub fn new(saga: &'s Saga<S>, state: S) -> Self {
        if let Err(bad) = saga.check() {
            panic!("{bad}");
        }
        Self {
            saga,
            outline: saga.outline(),
            instance: saga.begin(Uuid::from_u128(0x5a6a), state),
            kept: String::new(),
            now: Duration::ZERO,
            timers: BTreeMap::new(),
            timers_ever: Vec::new(),
            sends: Vec::new(),
            log: Vec::new(),
            history: History::default(),
        }
    }

    /// Gives the instance an input, as a coordinator would: written to a store afterwards, and read back.
    #[track_caller]
    pub fn feed(&mut self, input: Input) -> Decision {
        let said = input.clone();
        let possible = self.outline.possible(&self.instance);
        let decision = self.saga.advance(&mut self.instance, input);
        let kept = serde_json::to_string(&self.instance).expect("an instance can be written");
        self.instance = serde_json::from_str(&kept).expect("an instance is read as it was written");
        let unchanged = kept == self.kept;
        self.kept = kept;
        for timer in &decision.timers {
            match timer {
                Timer::Set { name, after } => {
                    self.timers.insert(name.clone(), self.now + *after);
                    self.timers_ever.push(name.clone());
                }
                Timer::Cancel { name } => drop(self.timers.remove(name)),
            }
        }
        let known = self.sends.len();
        self.sends.extend(decision.sends.iter().cloned());
        self.log.extend(decision.log.iter().cloned());
        let path = self.history.read(self.instance.id, &decision.log, &decision.sends);
        let law = path.and_then(|()| watch::after(self, known, &decision, unchanged));
        if let Err(broken) = law.and_then(|()| watch::what_may_be_done(&possible, &said, &decision)) {
            panic!("{broken}\nafter {said:?}\n{}", self.show());
        }
        decision
    }

    #[track_caller]
    pub fn reply(&mut self, to: &OperationId, answer: &Message) -> Decision {
        self.feed(reply(to, answer))
    }

    #[track_caller]
    pub fn act(&mut self, deed: Deed) -> Decision {
        let act = Act { actor: "tester".into(), reason: "the test says so".into() };
        self.feed(Input::Act(act, deed))
    }

    /// Fires the timer that is due first; its time has come by then.
    #[track_caller]
    pub fn fire_next(&mut self) -> Option<(String, Decision)> {
        let (name, at) = self.timers.iter().min_by_key(|(_, at)| **at).map(|(name, at)| (name.clone(), *at))?;
        self.now = self.now.max(at);
        self.timers.remove(&name);
        let decision = self.feed(Input::Deadline(name.clone()));
        Some((name, decision))
    }

    pub fn state(&self) -> String {
        serde_json::to_string(&self.instance.state).expect("a state can be written")
    }

    /// The picture of the instance, and its history.
    pub fn show(&self) -> String {
        let log = self.log.iter().map(|entry| {
            let leg = entry.leg.as_ref().map(ToString::to_string).unwrap_or_default();
            let direction = entry.direction.map_or("", |direction| direction.as_str());
            let attempt = entry.attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
            let reason = entry.reason.as_deref().unwrap_or_default();
            format!("  {:>3} {:11} {direction:4} {leg} {attempt} {reason}\n", entry.n, entry.what.as_str())
        });
        format!("{}{}", self.outline.text_of(&self.instance), log.collect::<String>())
    }
}

pub(super) fn reply(to: &OperationId, answer: &Message) -> Input {
    Input::Reply(Reply {
        operation: to.clone(),
        kind: answer.kind.clone(),
        payload: answer.payload.clone(),
        envelope: None,
    })
}
