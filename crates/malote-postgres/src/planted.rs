//! Statements with one protection taken out, for the tests that prove it; see [`malote_core::planted`].
//! Without the feature this changes nothing and costs nothing.

use crate::store::Inner;
use malote_core::{
    Envelope, Read, Row, planted,
    relay::{Ranges, Window},
};
use sqlx::{PgConnection, Row as _};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// A statement's text, with a protection out where a switch says so.
pub(crate) fn text(text: String) -> String {
    let without =
        |is: bool, text: String, protection: &str, hole: &str| if is { text.replace(protection, hole) } else { text };
    let held = " AND incarnation = $2 AND epoch = $3";
    let text = without(planted::is("old-epoch-saves"), text, held, " AND $2 IS NOT NULL AND $3 IS NOT NULL");
    let owned = "(incarnation = $2 OR expires_at <= malote.clock())";
    let text = without(planted::is("lease-by-name"), text, owned, "($2 IS NOT NULL)");
    let claimed = "'1 microsecond')\n    ON CONFLICT DO NOTHING";
    let overwritten = "'1 microsecond')\n    ON CONFLICT (request) DO UPDATE SET owner = excluded.owner";
    let text = without(planted::is("claim-overwrites"), text, claimed, overwritten);
    let finished = "sha256($1) AND owner = $2 AND status IS NULL";
    let text = without(planted::is("foreign-owner-finishes"), text, finished, "sha256($1) AND $2 IS NOT NULL");
    let text = without(planted::is("session-lock"), text, "pg_try_advisory_xact_lock", "pg_try_advisory_lock");
    let text = without(planted::is("read-unbounded"), text, "o.seq > $1 ORDER", "o.seq + 0 > $1 ORDER");
    let text = sagas(waiting(text));
    let seq = "    seq            bigint      NOT NULL GENERATED ALWAYS AS IDENTITY (CACHE 1),\n";
    let tx = "    tx             xid8        NOT NULL DEFAULT pg_current_xact_id(),\n";
    let last = "    created_at     timestamptz NOT NULL DEFAULT malote.clock(),\n";
    let late = planted::is("tx-after-seq") && text.contains(seq);
    let text = without(late, text, tx, "");
    without(late, text, last, &format!("{last}{tx}"))
}

/// The same for statements about what waits: a switch, the protection, and the hole.
fn waiting(text: String) -> String {
    let holes = [
        (planted::is("claim-any-order"), " ORDER BY l.due_at\n LIMIT $2", " ORDER BY l.due_at DESC\n LIMIT $2"),
        (planted::is("budget-unchecked"), "attempts = 0 OR retries <= $4", "attempts = 0 OR $4::int8 IS NOT NULL"),
        (planted::is("budget-unchecked"), "($3 OR coalesce(head.attempts, 0) = 0)", "($3 IS NOT NULL)"),
        (
            planted::is("lane-goes-with-head"),
            "NOT EXISTS (SELECT FROM malote.parked p\n                                        WHERE p.consumer = $1 AND p.topic = l.topic AND p.key = l.key) AS empty",
            "true AS empty",
        ),
        (planted::is("park-touches-all"), "AND there.key = l.key)", "AND there.key = l.key AND false)"),
        (planted::is("lane-end-waits"), "$1\n   FOR UPDATE OF l SKIP LOCKED", "$1\n   FOR UPDATE OF l"),
        (planted::is("attempt-uncounted"), "attempts = p.attempts + 1 FROM taken", "attempts = p.attempts FROM taken"),
        (planted::is("old-claim-settles"), "AND epoch = $4", "AND $4::int8 IS NOT NULL"),
        (planted::is("deaths-unnoticed"), "WHERE incarnation <> $2", "WHERE incarnation <> $2 AND false"),
        (
            planted::is("fire-early"),
            "WHERE due_at <= (SELECT malote.clock()) ORDER BY due_at, id",
            "ORDER BY due_at, id",
        ),
        (
            planted::is("fire-again"),
            "DELETE FROM malote.scheduled s USING due",
            "SELECT s.* FROM malote.scheduled s, due",
        ),
        (planted::is("fire-again"), "s, due WHERE s.id = due.id RETURNING s.*", "s, due WHERE s.id = due.id"),
        (planted::is("handled-when-admitted"), ", at = malote.clock()", ""),
        (planted::is("prune-what-is-open"), "AND state IN ('done', 'discarded')\n", "\n"),
        (planted::is("begun-acts-go"), "a.outcome = 'begun' AND EXISTS", "a.outcome = 'never' AND EXISTS"),
        (
            planted::is("any-conflict-is-known"),
            "ON CONFLICT (consumer, event_id, day) DO NOTHING",
            "ON CONFLICT DO NOTHING",
        ),
        (planted::is("redrive-new-id"), "d.what, d.event_id,", "gen_random_uuid()::text, gen_random_uuid(),"),
    ];
    let open = holes.into_iter().filter(|(is, ..)| *is);
    let text = open.fold(text, |text, (_, protection, hole)| text.replace(protection, hole));
    // the function itself is made by a migration
    let asks = planted::is("timer-by-own-clock") && !text.contains("CREATE ");
    if asks { text.replace("malote.clock()", "clock_timestamp()") } else { text }
}

/// The same for statements about sagas.
fn sagas(text: String) -> String {
    let holes = [
        (planted::is("saga-revision-unchecked"), " AND revision = $2", " AND $2::int8 IS NOT NULL"),
        (
            planted::is("saga-tombstone-removed"),
            "UPDATE malote.saga s SET removed = true, state = '', legs = '[]', steps = '[]', reason = NULL\n  FROM old",
            "DELETE FROM malote.saga s USING old",
        ),
        (
            planted::is("call-off-overwrites-answer"),
            "(consumer, id) VALUES ($1, $2)\nON CONFLICT (consumer, id) DO NOTHING",
            "(consumer, id) VALUES ($1, $2)\nON CONFLICT (consumer, id) DO UPDATE SET type = NULL",
        ),
        (planted::is("saga-load-unlocked"), "WHERE id = $1 FOR NO KEY UPDATE", "WHERE id = $1"),
        (planted::is("act-taken-twice"), " AND done_at IS NULL FOR UPDATE SKIP LOCKED", ""),
    ];
    let open = holes.into_iter().filter(|(is, ..)| *is);
    open.fold(text, |text, (_, protection, hole)| text.replace(protection, hole))
}

/// The highest id a reading snapshot knew of, and the id of the last save: neither is a bound.
static XMAX: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

/// What stands in for a bound.
pub(crate) fn bound(honest: u64) -> u64 {
    let earlier = LAST.swap(honest, Ordering::SeqCst);
    if planted::is("bound-older-than-read") && earlier != 0 {
        return earlier;
    }
    if planted::is("bound-xmax") { XMAX.load(Ordering::SeqCst) } else { honest }
}

impl Inner {
    /// Reads a window in a wrong way, if a switch says so.
    pub(crate) async fn misread(&self, window: &Window) -> Result<Option<Read>, sqlx::Error> {
        if planted::is("read-in-two") {
            let mut connection = self.pool.acquire().await?;
            let gaps = Window { high: i64::MAX, ..window.clone() };
            let mut first = self.show(&mut connection, &gaps).await?;
            sqlx::query("SELECT pg_sleep(0.5)").execute(&mut *connection).await?;
            let second = self.show(&mut connection, &Window { gaps: Ranges::new(), ..window.clone() }).await?;
            first.rows.extend(second.rows);
            return Ok(Some(Read { ended_below: second.ended_below, rows: first.rows }));
        }
        if planted::is("bound-xmax") {
            let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
            let read = self.show(&mut tx, window).await?;
            let query = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8";
            let xmax: i64 = sqlx::query_scalar(query).fetch_one(&mut *tx).await?;
            XMAX.store(xmax.cast_unsigned(), Ordering::SeqCst);
            return Ok(Some(read));
        }
        if planted::is("read-by-transaction") {
            let mut connection = self.pool.acquire().await?;
            let mut read = self.show(&mut connection, window).await?;
            by_transaction(&mut connection, &mut read.rows).await?;
            return Ok(Some(read));
        }
        Ok(None)
    }
}

/// Notifies within the transaction, and says what was written.
pub(crate) async fn tell(connection: &mut PgConnection, envelopes: &[Envelope]) -> Result<(), sqlx::Error> {
    if planted::is("notify-with-payload") {
        for envelope in envelopes {
            let payload = String::from_utf8_lossy(&envelope.payload).replace('\0', "");
            sqlx::query("SELECT pg_notify('malote.outbox', $1)").bind(payload).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

async fn by_transaction(connection: &mut PgConnection, rows: &mut [Row]) -> Result<(), sqlx::Error> {
    let ids = sqlx::query("SELECT seq, tx::text::int8 FROM malote.outbox").fetch_all(connection).await?;
    let tx: Result<HashMap<i64, i64>, _> =
        ids.iter().map(|row| Ok::<_, sqlx::Error>((row.try_get(0)?, row.try_get(1)?))).collect();
    let tx = tx?;
    rows.sort_by_key(|row| (tx.get(&row.seq).copied(), row.seq));
    Ok(())
}
