//! One door per partition, shut until the first record behind it is stored.
//!
//! A broker that has not met a producer on a partition takes whatever request of it comes first. If
//! it refuses or defers the very first one and takes the second, which was already on its way, then
//! later records lie before earlier ones, and the idempotent producer does not notice. Once one
//! record is stored the broker knows the sequence and holds to it. So the first record goes alone,
//! and those behind it wait here, partition by partition: a partition that is ill holds up no other.

use super::account::Entry;
use malote_core::{Envelope, planted};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// So many records may wait behind one door.
const BEHIND: usize = 10_000;

/// A partition of a topic.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) topic: String,
    pub(super) partition: i32,
}

/// A record on its way to the client.
pub(super) struct Parcel {
    pub(super) at: At,
    pub(super) envelope: Envelope,
    pub(super) entry: Box<Entry>,
}

/// What the client said to a parcel.
pub(super) enum Handed {
    Taken,
    /// No room; the parcel comes back.
    Full(Box<Parcel>),
    /// It will never take this one, and has said so.
    Refused,
    /// The publisher has ended, perhaps by this very parcel.
    Ended,
}

#[derive(Default)]
pub(super) struct Doors(Mutex<HashMap<String, HashMap<i32, Door>>>);

enum Door {
    Open,
    Shut(VecDeque<Parcel>),
}

impl Doors {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<i32, Door>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a parcel to the client by `give`, or lets it wait behind its door.
    pub(super) fn hand(&self, mut parcel: Parcel, give: impl Fn(Parcel) -> Handed) -> Handed {
        let mut doors = self.lock();
        let partitions = match doors.get_mut(&parcel.at.topic) {
            Some(partitions) => partitions,
            None => doors.entry(parcel.at.topic.clone()).or_default(),
        };
        match partitions.get_mut(&parcel.at.partition) {
            Some(Door::Open) => give(parcel),
            Some(Door::Shut(behind)) if behind.len() >= BEHIND => Handed::Full(Box::new(parcel)),
            Some(Door::Shut(behind)) => {
                behind.push_back(parcel);
                Handed::Taken
            }
            None => {
                let partition = parcel.at.partition;
                let open = planted::is("kafka-doors");
                if !open {
                    parcel.entry.opens = Some(parcel.at.clone());
                }
                let handed = give(parcel);
                if matches!(handed, Handed::Taken) {
                    partitions.insert(partition, if open { Door::Open } else { Door::Shut(VecDeque::new()) });
                }
                handed
            }
        }
    }

    /// The first record of this partition is stored: lets out what waits, and opens the door once
    /// nothing does. False if the client had no room for all of it.
    pub(super) fn open(&self, at: &At, give: impl Fn(Parcel) -> Handed) -> bool {
        let mut doors = self.lock();
        let Some(door) = doors.get_mut(&at.topic).and_then(|partitions| partitions.get_mut(&at.partition)) else {
            return true;
        };
        if let Door::Shut(behind) = door {
            while let Some(parcel) = behind.pop_front() {
                if let Handed::Full(parcel) = give(parcel) {
                    behind.push_front(*parcel);
                    return false;
                }
            }
        }
        *door = Door::Open;
        true
    }

    /// The publisher has ended: nothing waits any more.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}
