//! The handlers of a transaction, and how one that fails is kept from taking the others along.
//!
//! ```text
//!   SAVEPOINT a b c d    d fails: ROLLBACK TO
//!             a b c      once more; d failed after just these, so it is not tried again
//!   SAVEPOINT e f g h    ...
//! ```
//!
//! A savepoint for each member would say as much, and cost two statements for each one that is well.

use super::{
    Consumer,
    batch::{Sentence, Written},
    work::{Fault, Trouble, Work},
};
use crate::{service::Handle, telemetry};
use malote_core::{Envelope, FullStore, Lane, LaneState, Store, ToPark, Transaction};
use std::collections::HashMap;
use tracing::Instrument;

/// So many members share a savepoint after one that failed, and twice as many each time it goes well.
const SHORTEST: usize = 8;
/// More than so many never do: all of them would run once more.
const LONGEST: usize = 64;

/// A message that this consumer has not handled yet.
#[derive(Clone, Copy)]
pub(super) struct Member<'m, S: Store> {
    pub(super) work: &'m Work<'m, S>,
    pub(super) envelope: &'m Envelope,
    pub(super) handler: &'m dyn Handle<S>,
}

/// What came of a member that did not fail.
pub(super) enum Came {
    /// It goes behind others of its lane.
    Behind(Box<ToPark>),
    /// What it has to say, and its lane where that one is to be passed.
    Handled(Vec<Envelope>, Option<Lane>),
}

/// Undoes what failed. Where the whole transaction has ended with that, it takes the others along.
pub(super) async fn undo(tx: &mut impl Transaction, fault: &Fault) -> Result<(), Trouble> {
    tx.undo_to_savepoint().await.map_err(|error| match Trouble::after_handler(error) {
        Trouble::Message(_) => Trouble::Message(fault.clone()),
        away => away,
    })
}

impl<S: FullStore> Consumer<S> {
    /// Runs all of these; those that fail are undone, and parked or given up.
    pub(super) async fn run_apart(
        &self,
        tx: &mut S::Tx,
        members: &[Member<'_, S>],
        written: &mut Written,
    ) -> Result<(), Trouble> {
        let (mut left, mut length) = (members, SHORTEST);
        // how the member after the stretch failed, with just this stretch before it
        let mut failed = None;
        while !left.is_empty() {
            if failed.is_none() {
                tx.set_savepoint().await.map_err(Trouble::after_handler)?;
            }
            let (stretch, mut rest) = left.split_at(length.min(left.len()));
            match self.run_stretch(tx, stretch, &written.lanes).await? {
                Err((_, fault)) if fault.is_conflict() => return Err(Trouble::Message(fault)),
                Err((n, fault)) => {
                    if !malote_core::planted::is("apart-not-undone") {
                        undo(tx, &fault).await?;
                    }
                    (length, failed) = (if malote_core::planted::is("apart-not-redone") { 0 } else { n }, Some(fault));
                    left = &left[n - length..];
                    continue;
                }
                Ok(came) => written.take(came),
            }
            length = (length * 2).clamp(SHORTEST, LONGEST);
            if let (Some(fault), Some((member, others))) = (failed.take(), rest.split_first()) {
                if malote_core::planted::is("retry-in-place") {
                    return Err(Trouble::Store(fault.class, fault.why));
                }
                self.judge(tx, member.work, &fault, written);
                (rest, length) = (others, SHORTEST);
            }
            left = rest;
        }
        Ok(())
    }

    /// Runs members one after the other, up to the first that fails: its place, and why.
    pub(super) async fn run_stretch(
        &self,
        tx: &mut S::Tx,
        members: &[Member<'_, S>],
        lanes: &HashMap<Lane, LaneState>,
    ) -> Result<Result<Vec<Came>, (usize, Fault)>, Trouble> {
        let mut came = Vec::with_capacity(members.len());
        for (n, Member { work, envelope, handler }) in members.iter().enumerate() {
            let state = lanes.get(&work.lane);
            if state == Some(&LaneState::Busy) {
                came.push(Came::Behind(Box::new(work.park(None))));
                continue;
            }
            let span = telemetry::process_span(envelope, &self.service.name, self.service.transport.system());
            match self.react(tx, envelope, *handler).instrument(span).await {
                Ok(out) => {
                    let passes = state == Some(&LaneState::Passing);
                    came.push(Came::Handled(out, passes.then(|| work.lane.clone())));
                }
                Err(fault) => return Ok(Err((n, fault))),
            }
        }
        Ok(Ok(came))
    }

    /// Notes what becomes of a member that failed, and of those of its lane that come after it.
    fn judge(&self, tx: &mut S::Tx, work: &Work<'_, S>, fault: &Fault, written: &mut Written) {
        let state = match self.sentence(work, fault) {
            Sentence::Park(failed) => {
                written.park.push(work.park(Some(failed)));
                LaneState::Busy
            }
            Sentence::Dead(dead) => {
                written.out.extend(self.tell_of(tx, work, &dead));
                written.dead.push(*dead);
                LaneState::Passing
            }
        };
        written.lanes.insert(work.lane.clone(), state);
    }
}
