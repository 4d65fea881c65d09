-- The embedded log: topics, their records, and how far each consumer group has come.
--
-- A record lies at one integer, `at` = number of its partition * 2^40 + its offset. So the log is one
-- b-tree without an index beside it, a partition is a range of it, and offsets have no holes: they are
-- handed out in the transaction that stores the record, from `next`.
--
-- A group has an assignment for every partition of its topics: `target` is who should have it (decided
-- anew when a member comes or goes), `owner` is who has it, and `epoch` counts the changes of owner, so
-- that a former owner's acknowledgement is recognised. Times are milliseconds by the view log_clock.

CREATE VIEW log_clock AS SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now;

CREATE TABLE topic (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    partitions INTEGER NOT NULL
);

CREATE TABLE partition (
    id     INTEGER PRIMARY KEY,
    topic  INTEGER NOT NULL REFERENCES topic,
    number INTEGER NOT NULL,
    -- the offset of the next record
    next   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, number)
);

CREATE TABLE record (
    at         INTEGER PRIMARY KEY,
    written_at INTEGER NOT NULL,
    key        BLOB,
    headers    BLOB NOT NULL,
    payload    BLOB
);

CREATE TABLE consumer_group (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    -- grows whenever a target or an owner changes, so that members need not compare assignments
    generation INTEGER NOT NULL DEFAULT 0
);

-- AUTOINCREMENT: a member's number is never used again, so a former owner is never taken for a new one.
CREATE TABLE member (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer_group INTEGER NOT NULL REFERENCES consumer_group ON DELETE CASCADE,
    expires_at     INTEGER NOT NULL
);

CREATE TABLE member_topic (
    member INTEGER NOT NULL REFERENCES member ON DELETE CASCADE,
    topic  INTEGER NOT NULL REFERENCES topic,
    PRIMARY KEY (member, topic)
) WITHOUT ROWID;

CREATE TABLE assignment (
    consumer_group INTEGER NOT NULL REFERENCES consumer_group ON DELETE CASCADE,
    partition      INTEGER NOT NULL REFERENCES partition,
    -- the offset of the first record that is not acknowledged
    next           INTEGER NOT NULL DEFAULT 0,
    target         INTEGER,
    owner          INTEGER,
    epoch          INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_group, partition)
) WITHOUT ROWID;

PRAGMA user_version = 1;
