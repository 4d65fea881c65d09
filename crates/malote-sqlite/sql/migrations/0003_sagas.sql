-- Sagas: pieces of business over several services, and what their participants were asked.
--
--   malote_saga             one row for each instance. Of one that has ended long ago a tombstone stays,
--                           so that a late second start meets it.
--   malote_saga_log         its history: intents and outcomes, each once.
--   malote_saga_definition  definitions that processes of the service said they have code for.
--   malote_saga_act         what people asked to be done to an instance, and what came of it.
--   malote_operation        what this service, as a participant of others' sagas, was asked, with the answer
--                           it gave; or that it was called off before it came.
--
-- The version before knows none of these tables, and none of its own is changed.

CREATE TABLE malote_saga (
    id         TEXT NOT NULL PRIMARY KEY,
    -- under which it began, and ends
    definition TEXT NOT NULL,
    version    INTEGER NOT NULL,
    status     TEXT NOT NULL,
    -- forward (do), until it has turned back (undo)
    heading    TEXT NOT NULL,
    -- a person asked for it to be undone
    on_request INTEGER NOT NULL,
    reason     TEXT,
    -- JSON as the saga wrote it
    state      TEXT NOT NULL,
    -- JSON: the steps that were reached
    legs       TEXT NOT NULL,
    -- how many entries its history has
    entries    INTEGER NOT NULL,
    -- grows with each change: whoever read an older one changes nothing
    revision   INTEGER NOT NULL,
    -- JSON: the names of the steps that wait, or keep it from going on
    steps      TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    -- when a final status was reached; NULL again when it is left
    ended_at   INTEGER,
    -- only the tombstone is left: state, legs and steps are empty, and the history is gone
    removed    INTEGER NOT NULL DEFAULT 0
);
-- Lists, counts and alarms: the different beginnings are few, and each is gone into by itself.
CREATE INDEX malote_saga_standing ON malote_saga (definition, version, status, changed_at) WHERE NOT removed;
-- What may be let go: first what is whole, later the tombstones.
CREATE INDEX malote_saga_ended ON malote_saga (ended_at) WHERE NOT removed AND ended_at IS NOT NULL;
CREATE INDEX malote_saga_tombstone ON malote_saga (ended_at) WHERE removed;

CREATE TABLE malote_saga_log (
    saga      TEXT NOT NULL,
    -- from 1, without gaps: two coordinators cannot write the same transition
    n         INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    what      TEXT NOT NULL,
    -- the step, the direction in which it went, and the attempt
    leg       TEXT,
    direction TEXT,
    attempt   INTEGER,
    -- the envelope that brought it, or in which it went out
    envelope  TEXT,
    reason    TEXT,
    -- who, where a person acted
    actor     TEXT,
    -- the traceparent of the transaction's cause
    trace     TEXT,
    PRIMARY KEY (saga, n)
) WITHOUT ROWID;

CREATE TABLE malote_saga_definition (
    definition TEXT NOT NULL,
    version    INTEGER NOT NULL,
    -- JSON: what can be shown of it without the service's code
    outline    TEXT NOT NULL,
    -- when a process last said that it has code for it
    seen_at    INTEGER NOT NULL,
    PRIMARY KEY (definition, version)
) WITHOUT ROWID;

CREATE TABLE malote_saga_act (
    -- AUTOINCREMENT: an outcome is never taken for that of another act
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    saga     TEXT NOT NULL REFERENCES malote_saga (id) ON DELETE CASCADE,
    -- JSON: what is to be done
    deed     TEXT NOT NULL,
    actor    TEXT NOT NULL,
    reason   TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    -- NULL until a coordinator has dealt with it
    done_at  INTEGER,
    outcome  TEXT,
    denied   INTEGER
);
CREATE INDEX malote_saga_act_open ON malote_saga_act (id) WHERE done_at IS NULL;
CREATE INDEX malote_saga_act_saga ON malote_saga_act (saga);

CREATE TABLE malote_operation (
    -- who was asked, and what for
    consumer     TEXT NOT NULL,
    id           TEXT NOT NULL,
    -- the answer; all NULL: it was called off before it came
    type         TEXT,
    topic        TEXT,
    key          TEXT,
    content_type TEXT,
    payload      BLOB,
    at           INTEGER NOT NULL,
    PRIMARY KEY (consumer, id)
) WITHOUT ROWID;
CREATE INDEX malote_operation_age ON malote_operation (at);
