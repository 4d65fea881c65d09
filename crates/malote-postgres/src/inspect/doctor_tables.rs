//! What is wrong with malote's tables, and what their neighbours do to them.

use super::doctor::{fault, fine, warning};
use crate::{migrate, store::Inner};
use malote_core::{BoxFuture, inspect::Finding, planted};
use sqlx::Row;

/// A look at one thing.
pub(super) type Looked<'a> = BoxFuture<'a, Result<Vec<Finding>, sqlx::Error>>;

/// An older transaction than this keeps vacuum from its work.
const OLD_SECONDS: f64 = 300.0;
/// More log than this kept for a slot is worth a look.
const MUCH_LOG: i64 = 1 << 30;

const TABLES: [&str; 18] = [
    "migration",
    "outbox",
    "relay",
    "inbox",
    "dead",
    "idempotency",
    "lane",
    "parked",
    "budget",
    "custody",
    "run",
    "scheduled",
    "audit",
    "saga",
    "saga_log",
    "saga_definition",
    "saga_act",
    "operation",
];

impl Inner {
    pub(super) async fn look_at_tables(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut session = self.session().await?;
        let query = self.sql.doctor_tables.query().bind(&TABLES[..]).bind(self.schema.as_str());
        let rows = query.fetch_all(&mut *session).await?;
        let lacking = |name: &str| {
            let lacks = rows.iter().filter(|row| row.try_get(name).is_ok_and(|is: bool| !is));
            lacks.filter_map(|row| row.try_get("name").ok()).collect::<Vec<String>>().join(", ")
        };
        let (there, usable, owned) = (lacking("there"), lacking("usable"), lacking("owned"));
        if !there.is_empty() {
            session.done().await?;
            return Ok(vec![fault("tables", format!("these are not there: {there}; run `malote migrate`"))]);
        }
        if !usable.is_empty() {
            session.done().await?;
            let says = format!("this role may not read and write {usable}: grant it, or connect as the owner");
            return Ok(vec![fault("rights", says)]);
        }
        let version: i64 = self.sql.doctor_version.query().fetch_one(&mut *session).await?.try_get("version")?;
        session.done().await?;
        let known = migrate::KNOWN;
        let mut found = vec![match version.cmp(&known) {
            std::cmp::Ordering::Less => fault(
                "tables",
                format!("they are of version {version}, this library needs {known}: run `malote migrate`"),
            ),
            std::cmp::Ordering::Equal => fine("tables", format!("version {version}")),
            std::cmp::Ordering::Greater => warning(
                "tables",
                format!("they are of version {version}, this library knows {known}: something newer runs here, too"),
            ),
        }];
        found.push(if owned.is_empty() {
            fine("rights", "this role may read, write and keep the tables")
        } else {
            warning(
                "rights",
                format!("this role does not own {owned}: partitions can be neither made nor dropped by it"),
            )
        });
        Ok(found)
    }

    pub(super) async fn look_at_partitions(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut session = self.session().await?;
        let rest = self.sql.doctor_rest.query().fetch_one(&mut *session).await?;
        let last: i64 = self.sql.last_position.query().fetch_one(&mut *session).await?.try_get("last")?;
        let outbox = self.partitions(&mut session, "outbox").await?;
        let inbox = self.partitions(&mut session, "inbox").await?;
        let days = self.days(&mut session, 0, 1).await?;
        session.done().await?;
        let end = outbox.iter().filter_map(|p| p.beyond.parse::<i64>().ok()).max().unwrap_or(1);
        let lacking: Vec<&str> = days
            .iter()
            .filter(|day| !inbox.iter().any(|p| p.first.replace('-', "") == day.0))
            .map(|day| day.0.as_str())
            .collect();
        let says = "does a relay run, and does its role own the tables? Until then rows go to the DEFAULT partition, which costs more to clean";
        let mut found = Vec::new();
        if end <= last.saturating_add(1) {
            found.push(warning("partitions", format!("the outbox has none ahead of position {last}: {says}")));
        }
        if !lacking.is_empty() {
            found.push(warning("partitions", format!("the inbox has none for {}: {says}", lacking.join(" and "))));
        }
        for table in ["outbox", "inbox"] {
            if rest.try_get(table)? {
                found.push(fine("partitions", format!("rows of the {table} lie in its DEFAULT partition")));
            }
        }
        if found.is_empty() {
            let ahead = end - last - 1;
            found.push(fine("partitions", format!("{ahead} positions and the next days have theirs")));
        }
        Ok(found)
    }

    pub(super) async fn look_for_old_transactions(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut session = self.session().await?;
        let oldest = self.oldest_transaction(&mut session).await?;
        session.done().await?;
        Ok(vec![match oldest {
            Some(holder) if holder.seconds > OLD_SECONDS => warning(
                "transactions",
                format!(
                    "{} has been open for {:.0} s: nothing that died since can be cleaned up, in any table",
                    holder.who, holder.seconds
                ),
            ),
            Some(holder) => fine("transactions", format!("the oldest: {} ({:.0} s)", holder.who, holder.seconds)),
            None => fine("transactions", "none is open"),
        }])
    }

    pub(super) async fn look_at_slots(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut session = self.session().await?;
        let rows = self.sql.doctor_slots.query().fetch_all(&mut *session).await?;
        session.done().await?;
        if rows.is_empty() || planted::is("slots-unseen") {
            return Ok(vec![fine("slots", "no replication slot keeps the log on the disk; malote needs none")]);
        }
        let slot = |row: &sqlx::postgres::PgRow| -> Result<Finding, sqlx::Error> {
            let (name, state): (String, String) = (row.try_get("name")?, row.try_get("state")?);
            let (active, kept): (bool, i64) = (row.try_get("active")?, row.try_get("kept")?);
            let says = format!(
                "replication slot {name:?} (not malote's) is {}, keeps {} MiB of the log, state {state}",
                if active { "read" } else { "read by nobody" },
                kept >> 20
            );
            Ok(match state.as_str() {
                "lost" | "unreserved" => fault(
                    "slots",
                    format!(
                        "{says}: its reader has lost rows or is about to. Make it anew with a fresh copy, or drop it"
                    ),
                ),
                _ if !active || kept > MUCH_LOG => warning(
                    "slots",
                    format!(
                        "{says}: what it keeps grows until the disk is full. Start its reader, drop it, or set max_slot_wal_keep_size"
                    ),
                ),
                _ => fine("slots", says),
            })
        };
        rows.iter().map(slot).collect()
    }

    pub(super) async fn look_at_gaps(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut session = self.session().await?;
        let holders = self.sql.gap_holders.query().fetch_all(&mut *session).await?;
        let relays = self.sql.status_relays.query().fetch_all(&mut *session).await?;
        session.done().await?;
        let holders = holders.iter().map(|row| row.try_get("holder")).collect::<Result<Vec<String>, _>>()?;
        let gaps = relays.iter().map(|row| row.try_get::<i64, _>("gaps")).sum::<Result<i64, sqlx::Error>>()?;
        Ok(vec![match (gaps, holders.as_slice()) {
            (0, _) => fine("gaps", "every position below the cursor is dealt with"),
            (_, []) => fine(
                "gaps",
                format!("{gaps} positions are open, and nobody holds them: the relay closes them when it saves next"),
            ),
            (_, holders) => {
                warning("gaps", format!("{gaps} positions are open; these may still fill them: {}", holders.join("; ")))
            }
        }])
    }
}
