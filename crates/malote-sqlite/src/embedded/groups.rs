//! Consumer groups: who is a member, who has which partition, and how far the group has come.
//!
//! ```text
//!   join ──▶ targets decided anew ──▶ free partitions go to their target at once
//!                                └──▶ an owner that is not the target hands over when its records
//!                                     are acknowledged ──▶ the target goes on from the group's position
//!   no sign of life for a lease ──▶ its partitions are free
//! ```
//!
//! Everything here runs in the writer's transaction, so it sees and leaves whole states only.

use super::{
    append,
    assign::{self, Share},
    writer::Open,
};
use malote_core::planted;
use rusqlite::OptionalExtension;
use std::time::Duration;

/// A member as it is known in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) group: i64,
    pub(super) member: i64,
}

/// A partition that a member has, under an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) partition: i64,
    pub(super) epoch: i64,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// Adds a member to a group, and gives it what nobody has; says its number and those of its topics.
pub(super) fn join(
    log: &mut Open<'_>,
    name: &str,
    topics: &[String],
    partitions: u32,
    lease: Duration,
) -> rusqlite::Result<(Membership, Vec<i64>)> {
    let group = match find(log, name)? {
        Some(group) => group,
        None => {
            log.run(include_str!("../../sql/embedded/create_group.sql"), [name])?;
            log.connection.last_insert_rowid()
        }
    };
    log.run(include_str!("../../sql/embedded/join.sql"), (group, millis(lease)))?;
    let member = log.connection.last_insert_rowid();
    let mut numbers = Vec::with_capacity(topics.len());
    for name in topics {
        let topic = append::ensure_topic(log, name, partitions)?;
        if !numbers.contains(&topic.id) {
            log.run(include_str!("../../sql/embedded/join_topic.sql"), (member, topic.id))?;
            log.run(include_str!("../../sql/embedded/assign_topic.sql"), (group, topic.id))?;
            if malote_core::planted::is("embedded-starts-at-the-end") {
                let end = "UPDATE assignment SET next = (SELECT p.next FROM partition AS p WHERE p.id = partition)";
                log.run(end, ())?;
            }
            numbers.push(topic.id);
        }
    }
    rebalance(log, group)?;
    Ok((Membership { group, member }, numbers))
}

fn find(log: &Open<'_>, name: &str) -> rusqlite::Result<Option<i64>> {
    let mut statement = log.connection.prepare_cached(include_str!("../../sql/embedded/group.sql"))?;
    statement.query_row([name], |row| row.get(0)).optional()
}

/// Renews a membership, and buries those of the group that are over. False when it was buried itself.
pub(super) fn renew(log: &mut Open<'_>, who: Membership, lease: Duration) -> rusqlite::Result<bool> {
    let alive = log.run(include_str!("../../sql/embedded/renew.sql"), (who.member, millis(lease)))? == 1;
    if !planted::is("dead-stay-members") && log.run(include_str!("../../sql/embedded/bury.sql"), [who.group])? > 0 {
        rebalance(log, who.group)?;
    }
    Ok(alive)
}

/// Takes a member out; what it had goes to the others at once.
pub(super) fn leave(log: &mut Open<'_>, who: Membership) -> rusqlite::Result<()> {
    log.run(include_str!("../../sql/embedded/leave.sql"), [who.member])?;
    rebalance(log, who.group)
}

/// Decides who should have what, and gives what nobody has to those who should.
fn rebalance(log: &mut Open<'_>, group: i64) -> rusqlite::Result<()> {
    log.run(include_str!("../../sql/embedded/bury.sql"), [group])?;
    let mut statement = log.connection.prepare_cached(include_str!("../../sql/embedded/members.sql"))?;
    let readers = statement.query_map([group], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let readers = readers.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut statement = log.connection.prepare_cached(include_str!("../../sql/embedded/targets.sql"))?;
    let shares = statement
        .query_map([group], |row| Ok(Share { partition: row.get(0)?, topic: row.get(1)?, target: row.get(2)? }))?;
    let shares = shares.collect::<rusqlite::Result<Vec<_>>>()?;
    for share in assign::assign(&readers, &shares).iter().filter(|share| !shares.contains(share)) {
        log.run(include_str!("../../sql/embedded/set_target.sql"), (group, share.partition, share.target))?;
    }
    log.run(include_str!("../../sql/embedded/hand_out.sql"), [group])?;
    changed(log, group)
}

/// Gives partitions to those who should have them. Ones that are lost already are passed over.
pub(super) fn hand_over(log: &mut Open<'_>, who: Membership, held: &[Held]) -> rusqlite::Result<()> {
    for Held { partition, epoch } in held {
        log.run(include_str!("../../sql/embedded/hand_over.sql"), (who.group, partition, who.member, epoch))?;
    }
    changed(log, who.group)
}

fn changed(log: &mut Open<'_>, group: i64) -> rusqlite::Result<()> {
    log.run(include_str!("../../sql/embedded/changed.sql"), [group])?;
    log.changed.groups.insert(group);
    Ok(())
}

/// Moves the group's position to the offset given with each partition, where the member still has it.
pub(super) fn acknowledge(log: &Open<'_>, who: Membership, handled: &[(Held, i64)]) -> rusqlite::Result<()> {
    for (Held { partition, epoch }, next) in handled {
        let statement = include_str!("../../sql/embedded/acknowledge.sql");
        let values = (who.group, partition, who.member, epoch, next);
        if planted::is("foreign-acknowledgement") {
            let unfenced = statement.replace("AND owner = ?3 AND epoch = ?4", "AND ?3 IS NOT NULL AND ?4 IS NOT NULL");
            log.run(&unfenced, values)?;
        } else {
            log.run(statement, values)?;
        }
    }
    Ok(())
}

/// Removes a group with its positions.
pub(super) fn forget(log: &Open<'_>, name: &str) -> rusqlite::Result<bool> {
    Ok(log.run(include_str!("../../sql/embedded/forget_group.sql"), [name])? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::{Builder, writer};
    use rusqlite::Connection;

    const LONG: Duration = Duration::from_secs(600);

    fn positions(log: &Open<'_>) -> Vec<(i64, i64, i64, i64)> {
        let sql = "SELECT partition, owner, epoch, next FROM assignment ORDER BY partition";
        let mut statement = log.connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    }

    /// Does it in the writer's transaction.
    fn within<T: Send + 'static>(
        queue: &writer::Queue,
        work: impl FnMut(&mut Open<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> T {
        queue.ask_blocking(work).unwrap()
    }

    #[test]
    fn a_former_owner_moves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let queue = writer::start(&path, &Builder::default()).unwrap();
        let topics = vec!["t".to_owned()];
        let join = move |log: &mut Open<'_>| join(log, "g", &topics, 2, LONG).map(|joined| joined.0);
        let first = within(&queue, join.clone());
        let own: Vec<_> = within(&queue, |log| Ok(positions(log)))
            .into_iter()
            .map(|(partition, owner, epoch, _)| {
                assert_eq!(owner, first.member);
                (Held { partition, epoch }, 5)
            })
            .collect();
        let expire = "UPDATE member SET expires_at = 0";
        Connection::open(&path).unwrap().execute(expire, []).unwrap();
        let second = within(&queue, join);
        let all_of =
            move |who: Membership, log: &Open<'_>| positions(log).iter().all(|p| p.1 == who.member && p.3 == 0);
        assert!(within(&queue, move |log| Ok(all_of(second, log))), "the second member took over");
        let late = own.clone();
        within(&queue, move |log| acknowledge(log, first, &late));
        assert!(within(&queue, move |log| Ok(all_of(second, log))), "a former owner moved a position");
        // not under the new owner's name either: the epoch is over
        within(&queue, move |log| acknowledge(log, second, &own));
        assert!(within(&queue, move |log| Ok(all_of(second, log))), "a former epoch moved a position");
        assert!(!within(&queue, move |log| renew(log, first, LONG)), "the first one learns of it");
        assert!(within(&queue, move |log| renew(log, second, LONG)));
    }

    #[test]
    fn a_position_never_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        let queue = writer::start(&folder.path().join("log.db"), &Builder::default()).unwrap();
        let who = within(&queue, |log| join(log, "g", &["t".to_owned()], 1, LONG)).0;
        for (said, stands) in [(7, 7), (3, 7), (9, 9)] {
            within(&queue, move |log| {
                let (partition, _, epoch, _) = positions(log)[0];
                acknowledge(log, who, &[(Held { partition, epoch }, said)])
            });
            assert_eq!(within(&queue, |log| Ok(positions(log)[0].3)), stands);
        }
    }
}
