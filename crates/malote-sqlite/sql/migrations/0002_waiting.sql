-- Messages that wait: for another attempt, behind one that does, for their time, or for a person.
--
--   malote_lane       a (topic, key) of a consumer that is not free: something of it is parked, held, or
--                     dead. Exists only that long. Locked by the write lock like everything else.
--   malote_parked     the messages in it, in order of n; the first one is the head, the only one that is
--                     tried. Its count of attempts grows before each attempt.
--   malote_dead       as before, now with a number for people, and with what a redrive needs.
--   malote_scheduled  envelopes that are not due yet; they move to the outbox, never before due_at.
--   malote_custody    which start of which process has which partition. A row that is left behind tells
--                     of a process that died.
--   malote_run        runs of a message that have begun and not ended: the same.
--   malote_budget     how many second and later attempts a consumer may make now.
--   malote_audit      what people did, written in the transaction that did it.
--
-- What the version before writes stays right: its statements name the columns they know, and each new
-- column has a default.

CREATE TABLE malote_lane (
    consumer TEXT NOT NULL,
    topic    TEXT NOT NULL,
    key      TEXT NOT NULL,
    -- when the head may be tried; while it is claimed, when the claim ends; NULL: nothing waits, or held
    due_at   INTEGER,
    -- grows with each claim, and fences the one before
    epoch    INTEGER NOT NULL DEFAULT 0,
    -- waits for a person
    held     INTEGER NOT NULL DEFAULT 0,
    -- how many dead letters of it there are
    dead     INTEGER NOT NULL DEFAULT 0,
    -- how many messages were handled while there were any
    passed   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, topic, key)
) WITHOUT ROWID;
CREATE INDEX malote_lane_due ON malote_lane (consumer, due_at) WHERE due_at IS NOT NULL;

CREATE TABLE malote_parked (
    -- AUTOINCREMENT: a number is never used again, so an old claim is never taken for a new one. What a
    -- person puts in front of a lane has a negative one
    n              INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer       TEXT NOT NULL,
    topic          TEXT NOT NULL,
    key            TEXT NOT NULL,
    -- an envelope id, or a place
    what           TEXT NOT NULL,
    -- the inbox row, where there is one
    event_id       TEXT,
    day            TEXT,
    type           TEXT,
    attempts       INTEGER NOT NULL DEFAULT 0,
    -- the first failure
    first_at       INTEGER,
    parked_at      INTEGER NOT NULL,
    class          TEXT,
    error          TEXT,
    history        TEXT NOT NULL DEFAULT '[]',
    -- the record as it came, as in malote_dead
    record_key     BLOB,
    record_headers TEXT NOT NULL,
    record_payload BLOB,
    UNIQUE (consumer, what),
    FOREIGN KEY (consumer, topic, key) REFERENCES malote_lane (consumer, topic, key)
);
CREATE INDEX malote_parked_lane ON malote_parked (consumer, topic, key, n);

-- SQLite cannot change a primary key in place.
ALTER TABLE malote_dead RENAME TO malote_dead_1;
CREATE TABLE malote_dead (
    -- for people to name it by; AUTOINCREMENT: never used again
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    -- who gave up (`consumer ledger`), and what (an event id, or a place in a topic)
    by             TEXT NOT NULL,
    what           TEXT NOT NULL,
    event_id       TEXT,
    day            TEXT,
    type           TEXT,
    topic          TEXT NOT NULL,
    key            TEXT,
    "partition"    INTEGER,
    "offset"       INTEGER,
    class          TEXT NOT NULL DEFAULT 'final',
    reason         TEXT NOT NULL,
    attempts       INTEGER NOT NULL,
    history        TEXT NOT NULL DEFAULT '[]',
    correlation_id TEXT,
    trace          TEXT,
    -- malote_lane.passed when it was given up: what was handled since is newer
    passed_before  INTEGER NOT NULL DEFAULT 0,
    -- the lane is held because of it
    holds_key      INTEGER NOT NULL DEFAULT 0,
    first_at       INTEGER NOT NULL,
    last_at        INTEGER NOT NULL,
    -- the record as it came, or would have gone; a header's value need not be text: [[name, hex], …].
    -- Nothing at all is left of one that was erased
    record_key     BLOB,
    record_headers TEXT NOT NULL,
    record_payload BLOB,
    UNIQUE (by, what)
);
-- The first version kept neither key nor day. The day is the inbox row's; the key is the envelope's own
-- header, which was read as text when the envelope was.
INSERT INTO malote_dead (by, what, event_id, day, type, topic, key, "partition", "offset", reason, attempts,
                         first_at, last_at, record_key, record_headers, record_payload)
SELECT by, what, event_id,
       (SELECT i.day FROM malote_inbox AS i WHERE i.consumer = substr(d.by, 10) AND i.event_id = d.event_id),
       type, topic,
       CASE WHEN event_id IS NOT NULL THEN
           (SELECT CAST(unhex(h.value ->> 1) AS TEXT) FROM json_each(d.record_headers) AS h
             WHERE lower(h.value ->> 0) = 'ce_partitionkey' ORDER BY h.key DESC LIMIT 1) END,
       "partition", "offset",
       reason, attempts, first_at, last_at, record_key, record_headers, record_payload
  FROM malote_dead_1 AS d ORDER BY first_at, by, what;
DROP TABLE malote_dead_1;
CREATE INDEX malote_dead_age ON malote_dead (last_at);
CREATE INDEX malote_dead_key ON malote_dead (key) WHERE key IS NOT NULL;

INSERT INTO malote_lane (consumer, topic, key, dead)
SELECT substr(by, 10), topic, key, count(*) FROM malote_dead
 WHERE by LIKE 'consumer %' AND key IS NOT NULL GROUP BY 1, 2, 3;
UPDATE malote_inbox AS i SET state = 'dead' FROM malote_dead AS d
 WHERE d.by LIKE 'consumer %' AND i.consumer = substr(d.by, 10) AND i.event_id = d.event_id AND i.day = d.day;

-- What has ended may go, in the order in which it did.
CREATE INDEX malote_inbox_ended ON malote_inbox (at) WHERE state IN ('done', 'discarded');

CREATE TABLE malote_scheduled (
    id         TEXT NOT NULL PRIMARY KEY,
    due_at     INTEGER NOT NULL,
    type       TEXT NOT NULL,
    topic      TEXT NOT NULL,
    key        TEXT NOT NULL,
    -- as in malote_outbox, without the time: an envelope's time is when it moves there
    headers    TEXT NOT NULL,
    payload    BLOB NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX malote_scheduled_due ON malote_scheduled (due_at);

CREATE TABLE malote_custody (
    consumer    TEXT NOT NULL,
    topic       TEXT NOT NULL,
    "partition" INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    PRIMARY KEY (consumer, topic, "partition")
) WITHOUT ROWID;

CREATE TABLE malote_run (
    consumer TEXT NOT NULL,
    what     TEXT NOT NULL,
    begun    INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (consumer, what)
) WITHOUT ROWID;

CREATE TABLE malote_budget (
    consumer TEXT NOT NULL PRIMARY KEY,
    tokens   REAL NOT NULL,
    at       INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE malote_audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    act     TEXT NOT NULL,
    target  TEXT NOT NULL,
    reason  TEXT NOT NULL,
    outcome TEXT NOT NULL
);
CREATE INDEX malote_audit_age ON malote_audit (at);
