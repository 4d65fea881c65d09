//! How long things are kept, and how long they must be.
//!
//! The inbox tells a second delivery from a first. If its rows go before the last copy of a message
//! can come back, that copy takes effect again. So the inbox keeps its rows longer than anything can
//! bring a message back: the topic's own retention, the retries of a parked one, the outbox that can
//! be replayed.
//!
//! What participants of sagas were asked is the same memory in another place: it gives a repeated command the
//! answer that it had, and keeps one that was called off from being done. So it is kept as long, and as long as sagas
//! (a person may have an old step asked again), and removed under the same condition. Of a saga that has ended, what it was goes first; that it was stays longer than
//! anything can start it again.

use malote_core::{Keeps, Prune};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long a service keeps what it no longer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Inbox rows (14 days). Must be longer than a message can come back after; see the module.
    pub inbox: Duration,
    /// Answers at the edge: how long a key is remembered (1 day).
    pub answers: Duration,
    /// Dead letters; none (the default) keeps them until a person decides.
    pub dead: Option<Duration>,
    /// What people did (400 days).
    pub audit: Duration,
    /// Sagas that have ended: state, steps and history; and what participants were asked (90 days).
    pub sagas: Duration,
    /// That a saga has been there and how it ended, counted from its end (400 days). Longer than anything may start
    /// it a second time.
    pub tombstones: Duration,
    /// How old the oldest unpublished row may be before the service is not ready (1 minute).
    pub lag: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            inbox: 14 * DAY,
            answers: DAY,
            dead: None,
            audit: 400 * DAY,
            sagas: 90 * DAY,
            tombstones: 400 * DAY,
            lag: Duration::from_secs(60),
        }
    }
}

impl Retention {
    /// What is to be pruned; what tells a repeat from a first only where that is safe. A saga whose tombstone would
    /// be let go before the inbox forgets its start has it kept as long as the inbox.
    pub(crate) fn prunes(&self, inbox_is_safe: bool) -> Vec<Prune> {
        let tombstones = Prune::Tombstones(self.tombstones.max(self.inbox));
        let memory = [Prune::Inbox(self.inbox), Prune::Operations(self.inbox.max(self.sagas)), tombstones];
        let memory = memory.into_iter().filter(|_| inbox_is_safe);
        let rest = [Prune::Answers(self.answers), Prune::Audit(self.audit), Prune::Sagas(self.sagas)];
        memory.chain(rest).chain(self.dead.map(Prune::Dead)).collect()
    }

    /// Says why the inbox may not be pruned as it is set, if so. `retries` is the longest time from the
    /// first to the last attempt of any handler.
    pub(crate) fn check(&self, keeps: Keeps, retries: Duration) -> Result<(), String> {
        if malote_core::planted::is("retention-unchecked") {
            return Ok(());
        }
        let records = match keeps {
            Keeps::For(records) => records,
            // what nobody can say is taken for what brokers do by default
            Keeps::Unknown => 7 * DAY,
            Keeps::Always => return Ok(()),
        };
        // rows are kept by whole days of the event's own time
        let longest = records + retries + DAY;
        if self.inbox > longest {
            return Ok(());
        }
        Err(format!(
            "the inbox is kept for {}, but a message may come back for {}: its topics keep records for {}, it may be \
             tried again for {}, and a day for the rounding to days. A repeat that comes after its inbox row is gone \
             would take effect twice, so nothing is removed. Keep the inbox longer, or the records shorter",
            days(self.inbox),
            days(longest),
            days(records),
            days(retries)
        ))
    }
}

fn days(duration: Duration) -> String {
    let hours = duration.as_secs() / 3600;
    if hours >= 48 { format!("{} days", hours / 24) } else { format!("{duration:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_that_forgets_too_early_is_refused_with_the_reason() {
        let retention = Retention::default();
        assert_eq!(retention.check(Keeps::For(7 * DAY), DAY), Ok(()));
        assert_eq!(retention.check(Keeps::Unknown, DAY), Ok(()));
        let short = Retention { inbox: 3 * DAY, ..retention };
        let why = short.check(Keeps::For(7 * DAY), DAY).expect_err("too short");
        assert!(why.contains("3 days") && why.contains("9 days") && why.contains("7 days"), "{why}");
        assert!(short.check(Keeps::For(DAY), Duration::from_secs(60)).is_ok());
        let memory = |p: &Prune| matches!(p, Prune::Inbox(_) | Prune::Operations(_) | Prune::Tombstones(_));
        assert!(!short.prunes(false).iter().any(memory));
        assert_eq!(short.prunes(true).iter().filter(|p| memory(p)).count(), 3);
    }

    #[test]
    fn what_was_asked_is_known_as_long_as_the_inbox_and_sagas_and_tombstones_no_shorter_than_the_inbox() {
        for (sagas, operations) in [(90 * DAY, 90 * DAY), (DAY, 30 * DAY)] {
            let retention = Retention { inbox: 30 * DAY, tombstones: DAY, sagas, ..Retention::default() };
            let prunes = retention.prunes(true);
            assert!(prunes.contains(&Prune::Operations(operations)) && prunes.contains(&Prune::Sagas(sagas)));
            assert!(prunes.contains(&Prune::Tombstones(30 * DAY)));
        }
    }
}
