//! What the relay may publish, and what it may forget.
//!
//! The outbox is a log. Its positions are handed out when a row is written, but rows become visible
//! when their transaction commits, in another order; a cursor that only remembers the highest
//! position loses the row of a transaction that commits late. So the cursor is a high position *and
//! the gaps below it*:
//!
//! ```text
//!    position   1   2   3   4   5   6   7
//!    visible    x   x       x       x          read: publish 1 2 4 6, high = 6, gaps = {3 5}
//!    later      x   x   x   x       x   x      read: publish 3 7,     high = 7, gaps = {5}
//!    5 was rolled back: closed once every transaction that could have filled it has ended
//! ```
//!
//! A gap may be closed when two facts are known. Its *bound* is the id of a transaction that began
//! after the read which first saw the gap; whoever took the missing position had an id by then, a
//! smaller one (the outbox's column order sees to it). And a later reading snapshot in which
//! everything below the bound has ended still does not show the row. [`Plan`] keeps this account.
//! [`Traffic`] says beside it which of the rows may go out now: each topic has a share of its own.

mod pace;
mod plan;
mod ranges;
mod traffic;

pub use pace::Budget;
pub use plan::{Observation, Plan, Ticket, Window};
pub use ranges::Ranges;
pub use traffic::{Sorted, Traffic};

/// How far a relay has come: everything up to `high` is published, except the gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The highest position that was published or may be forgotten.
    pub high: i64,
    /// Positions up to `high` that are still to come, or may be.
    pub gaps: Ranges,
}

impl Cursor {
    /// Rows at or below this position are no longer needed by the relay.
    pub fn floor(&self) -> i64 {
        self.gaps.first().map_or(self.high, |gap| gap - 1)
    }
}
