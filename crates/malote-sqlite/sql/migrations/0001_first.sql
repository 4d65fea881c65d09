-- The tables of malote in a service's own SQLite file.
--
-- A service changes its own tables and says what happened in ONE transaction:
--
--   malote_outbox       what the service says. An append-only log: written by the service, read by the
--                       relay in order of `seq`, never updated, removed in small batches behind the relay.
--                       Any program may write to it: INSERT INTO malote_outbox (type, key, payload) …
--   malote_relay        how far the relay has come, and which of its replicas is at work. `high` is the
--                       highest position that is dealt with, `gaps` are positions below it that are not.
--   malote_inbox        which events a consumer has handled, written in the transaction that handles them.
--   malote_dead         what could not be handled or sent, with the reason.
--   malote_idempotency  requests at the HTTP edge, by caller and key, with the answer once there is one.
--   malote_migration    which of these files have been run.
--
-- malote_x stands where PostgreSQL has malote.x: SQLite has no schemas, and a service may have an
-- `outbox` of its own. SQLite has one writer, so the order of positions is the order of commits.
--
-- Time that processes compare is whole milliseconds since 1970, read from the view malote_clock only;
-- a test may replace the view.

CREATE VIEW malote_clock AS SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now;

CREATE TABLE malote_outbox (
    -- AUTOINCREMENT: a position is never handed out twice, not even after the last row was removed
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    -- names the event for ever
    id             TEXT NOT NULL DEFAULT (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' ||
                       substr(hex(randomblob(2)), 2) || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    -- such as payment.settled.v1
    type           TEXT NOT NULL,
    -- where it is published; the type, when NULL
    topic          TEXT,
    -- events of one topic and key keep their order; aggregate_id, or else id, when NULL
    key            TEXT,
    -- for those who write to the table themselves and look for their rows later
    aggregate_type TEXT,
    aggregate_id   TEXT,
    -- further CloudEvents attributes, each a string: source, time, datacontenttype, correlationid, …
    headers        TEXT NOT NULL DEFAULT '{}',
    -- the bytes as they were written
    payload        BLOB NOT NULL,
    created_at     INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
);

CREATE TABLE malote_relay (
    name        TEXT PRIMARY KEY,
    -- which start of which process holds the lease; NULL: nobody
    incarnation TEXT,
    -- grows whenever the lease changes hands
    epoch       INTEGER NOT NULL DEFAULT 0,
    expires_at  INTEGER NOT NULL DEFAULT 0,
    high        INTEGER NOT NULL DEFAULT 0,
    -- [[from, to], …], ascending, both ends included
    gaps        TEXT NOT NULL DEFAULT '[]'
) WITHOUT ROWID;

-- For people: which rows are published (as of the last cursor that was stored).
CREATE VIEW malote_outbox_status AS
    SELECT o.seq, o.id, o.type, coalesce(o.topic, o.type) AS topic, coalesce(o.key, o.aggregate_id, o.id) AS key,
           o.created_at, length(o.payload) AS payload_bytes,
           EXISTS (SELECT 1 FROM malote_relay AS r WHERE o.seq <= r.high AND NOT EXISTS (
               SELECT 1 FROM json_each(r.gaps) AS gap
                WHERE o.seq BETWEEN gap.value ->> 0 AND gap.value ->> 1)) AS published
      FROM malote_outbox AS o;

CREATE TABLE malote_inbox (
    consumer TEXT NOT NULL,
    event_id TEXT NOT NULL,
    -- the day of the event's own time, which never changes for an event
    day      TEXT NOT NULL,
    state    TEXT NOT NULL DEFAULT 'done',
    at       INTEGER NOT NULL,
    PRIMARY KEY (consumer, event_id, day)
) WITHOUT ROWID;

CREATE TABLE malote_dead (
    -- who gave up (`consumer ledger`), and what (an event id, or a place in a topic)
    by             TEXT NOT NULL,
    what           TEXT NOT NULL,
    event_id       TEXT,
    type           TEXT,
    topic          TEXT NOT NULL,
    "partition"    INTEGER,
    "offset"       INTEGER,
    reason         TEXT NOT NULL,
    attempts       INTEGER NOT NULL,
    -- the record as it came, or would have gone; a header's value need not be text: [[name, hex], …]
    record_key     BLOB,
    record_headers TEXT NOT NULL,
    record_payload BLOB,
    first_at       INTEGER NOT NULL,
    last_at        INTEGER NOT NULL,
    PRIMARY KEY (by, what)
);

CREATE TABLE malote_idempotency (
    caller      TEXT NOT NULL,
    scope       TEXT NOT NULL,
    key         TEXT NOT NULL,
    -- SHA-256 of what was asked for
    fingerprint BLOB NOT NULL,
    -- who is at it, and until when nobody else may
    owner       TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    -- the answer, once there is one
    status      INTEGER,
    headers     TEXT,
    body        BLOB,
    done_at     INTEGER,
    PRIMARY KEY (caller, scope, key)
);
CREATE INDEX malote_idempotency_age ON malote_idempotency (coalesce(done_at, lease_until));
