//! What is wrong with the server, its settings, and the way to it.

use super::doctor_tables::Looked;
use crate::{connect::shares_backend, store::Inner};
use malote_core::inspect::{Finding, Grade};
use sqlx::{ConnectOptions, Connection, Row, postgres::PgRow};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that is off by more than this makes what people read misleading; nothing is decided by it.
const CLOCK_SECONDS: f64 = 5.0;
/// Connections of one process beside its pool: the relay's two, and the one that listens.
const BESIDE: u32 = 3;

pub(super) fn fine(what: &str, says: impl Into<String>) -> Finding {
    Finding { grade: Grade::Fine, what: what.into(), says: says.into() }
}

pub(super) fn warning(what: &str, says: impl Into<String>) -> Finding {
    Finding { grade: Grade::Warning, what: what.into(), says: says.into() }
}

pub(super) fn fault(what: &str, says: impl Into<String>) -> Finding {
    Finding { grade: Grade::Fault, what: what.into(), says: says.into() }
}

impl Inner {
    /// Never fails: what cannot be looked at is a finding.
    pub(super) async fn doctor(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        match self.look_at_server().await {
            Ok(server) => found.extend(server),
            Err(error) => {
                found
                    .push(fault("connection", format!("the server cannot be asked: {}", self.failed("asking", error))));
                return found;
            }
        }
        let looks: [(&str, Looked<'_>); 6] = [
            ("pooler", Box::pin(self.look_for_pooler())),
            ("tables", Box::pin(self.look_at_tables())),
            ("partitions", Box::pin(self.look_at_partitions())),
            ("transactions", Box::pin(self.look_for_old_transactions())),
            ("slots", Box::pin(self.look_at_slots())),
            ("gaps", Box::pin(self.look_at_gaps())),
        ];
        for (what, look) in looks {
            let looked = look.await.unwrap_or_else(|error| {
                vec![warning(what, format!("could not be looked at: {}", self.failed("looking", error)))]
            });
            found.extend(looked);
        }
        found.push(self.wake.finding());
        found
    }

    async fn look_at_server(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut session = self.session().await?;
        let before = now();
        let row = self.sql.doctor_server.query().fetch_one(&mut *session).await?;
        let after = now();
        session.done().await?;
        let version: i32 = row.try_get("version")?;
        let version = format!("PostgreSQL {}.{}", version / 10_000, version % 10_000);
        let mut found = vec![fine("connection", format!("connected to {version}"))];
        if row.try_get("standby")? {
            found.push(fault("server", "it is a standby, which takes no writes: was it demoted? Connect to the primary (with several hosts in the URL: target_session_attrs=read-write)"));
        } else if row.try_get("read_only")? {
            found.push(fault("server", "transactions are read-only (default_transaction_read_only)"));
        }
        found.push(clock(row.try_get("now")?, before, after));
        found.extend(durability(&row)?);
        found.push(self.connections(&row)?);
        if !row.try_get::<bool, _>("sees_others")? {
            found.push(warning("rights", "transactions of other roles cannot be seen here, so an old one is not told; GRANT pg_read_all_stats to see them"));
        }
        Ok(found)
    }

    fn connections(&self, row: &PgRow) -> Result<Finding, sqlx::Error> {
        let (most, reserved, used): (i64, i64, i64) =
            (row.try_get("most")?, row.try_get("reserved")?, row.try_get("used")?);
        let ours = i64::from(self.pool.options().get_max_connections() + BESIDE);
        let says = format!("{used} of {} connections are in use; this process may take {ours}", most - reserved);
        Ok(if self.behind_pooler {
            fine("connections", format!("{says} of the pooler's"))
        } else if ours > most - reserved {
            fault("connections", format!("{says}: raise max_connections, or lower Builder::connections"))
        } else if ours * 3 > most - reserved {
            warning(
                "connections",
                format!(
                    "{says}: three processes like it are too many. Raise max_connections, or lower Builder::connections"
                ),
            )
        } else {
            fine("connections", says)
        })
    }

    async fn look_for_pooler(&self) -> Result<Vec<Finding>, sqlx::Error> {
        if self.behind_pooler {
            return Ok(vec![fine("pooler", "a pooler in transaction mode stands between, and the setting says so")]);
        }
        let mut first = self.options.connect().await?;
        let shared = shares_backend(&mut first, &self.options).await?;
        first.close().await?;
        Ok(vec![if shared {
            fault(
                "pooler",
                "a pooler in transaction mode stands between: set behind_pooler, or connect to the server directly",
            )
        } else {
            fine("pooler", "each session has a server process of its own")
        }])
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The database's clock lay between the two moments at which it was asked.
fn clock(theirs: f64, before: f64, after: f64) -> Finding {
    let off = if theirs < before { theirs - before } else { (theirs - after).max(0.0) };
    let says = format!(
        "the database's clock is {:.1} s {} this process's",
        off.abs(),
        if off < 0.0 { "behind" } else { "ahead of" }
    );
    if off.abs() > CLOCK_SECONDS {
        warning(
            "clock",
            format!("{says}. No lease or due time depends on it, but the times in events do: set both by NTP"),
        )
    } else {
        fine("clock", says)
    }
}

fn durability(row: &PgRow) -> Result<Vec<Finding>, sqlx::Error> {
    let mut found = Vec::new();
    let commit: String = row.try_get("synchronous_commit")?;
    let standbys: String = row.try_get("standbys")?;
    if !row.try_get::<bool, _>("fsync")? || !row.try_get::<bool, _>("full_page_writes")? {
        found.push(fault("durability", "fsync or full_page_writes is off: a power cut can destroy the database"));
    } else if commit == "off" {
        found.push(fault(
            "durability",
            "synchronous_commit is off: commits that were answered can be lost at a crash, and events with them",
        ));
    } else if standbys.is_empty() {
        found.push(fine("durability", format!("synchronous_commit is {commit}; a failover to a copy may lack the last commits (synchronous_standby_names is empty)")));
    } else {
        found.push(fine("durability", format!("synchronous_commit is {commit}, to {standbys}")));
    }
    let isolation: String = row.try_get("isolation")?;
    if isolation != "read committed" {
        found.push(fine(
            "isolation",
            format!("transactions are {isolation} by default; malote's own are read committed all the same"),
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_judged_by_both_ends() {
        assert_eq!(clock(100.0, 99.0, 101.0).grade, Grade::Fine);
        assert_eq!(clock(90.0, 99.0, 101.0).grade, Grade::Warning);
        assert!(clock(90.0, 99.0, 101.0).says.contains("9.0 s behind"));
        assert!(clock(701.0, 99.0, 101.0).says.contains("600.0 s ahead of"));
    }
}
