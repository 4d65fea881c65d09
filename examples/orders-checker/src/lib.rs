//! Judges what the order services and their payment provider left behind.
//!
//! It reads their databases with plain SQL and their topics record by record, and depends on nothing
//! that they are built with: a mistake of theirs cannot excuse itself here. What a saga may do is stated
//! here once more, in `path`; of the definition only its outline is taken, for the order of the steps.

mod books;
mod db;
mod judge;
mod outline;
mod path;

use std::collections::BTreeMap;

pub use books::{Books, Places};
pub use db::Db;
pub use judge::judge;
pub use outline::Outline;
pub use topics::{Topics, read_kafka, read_log};

/// What each line of an order, a reservation or a parcel holds: how many of which item.
pub type Lines = BTreeMap<String, i64>;

/// What clients asked for, and what there was.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The orders whose acceptance a client has seen, by the key they were sent under.
    pub accepted: BTreeMap<String, Placed>,
    /// How many there were of each item.
    pub stock: Lines,
}

/// An accepted order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its id.
    pub id: String,
    /// What was asked for.
    pub lines: Lines,
}

/// Collects what is wrong, in words.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub Vec<String>);

impl Faults {
    pub(crate) fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}
