-- What the provider owns; may be run again at any time. The constraints hold without the program: one
-- answer and one effect for a key, one capture, void and refund for an authorisation.

-- What became of each key. Written with the effect in one transaction, so a key that is not here was not worked on.
CREATE TABLE IF NOT EXISTS operations (
    key     TEXT PRIMARY KEY,
    -- hash of what was asked under it; empty where it was called off before it came
    request TEXT NOT NULL,
    -- the answer: an HTTP status, and a body
    status  INTEGER NOT NULL,
    answer  TEXT NOT NULL,
    at      TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE IF NOT EXISTS authorisations (
    id        TEXT PRIMARY KEY,
    -- the merchant's name for what is paid
    reference TEXT NOT NULL,
    -- whole minor units (cents)
    amount    INTEGER NOT NULL CHECK (amount > 0),
    card      TEXT NOT NULL,
    status    TEXT NOT NULL DEFAULT 'AUTHORISED' CHECK (status IN ('AUTHORISED', 'CAPTURED', 'VOIDED', 'REFUNDED')),
    key       TEXT NOT NULL UNIQUE REFERENCES operations (key)
);

-- Everything that was done, in order.
CREATE TABLE IF NOT EXISTS effects (
    n             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind          TEXT NOT NULL CHECK (kind IN ('authorise', 'capture', 'void', 'refund')),
    authorisation TEXT NOT NULL REFERENCES authorisations (id),
    amount        INTEGER NOT NULL CHECK (amount > 0),
    -- what a refund cost the merchant
    fee           INTEGER NOT NULL DEFAULT 0,
    key           TEXT NOT NULL UNIQUE REFERENCES operations (key),
    at            TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (authorisation, kind)
);

-- How often each key was asked: faults are drawn by it, so that they come alike in every run.
CREATE TABLE IF NOT EXISTS asked (
    key   TEXT PRIMARY KEY,
    times INTEGER NOT NULL
);

-- The faults, as JSON; one row, so that a killed provider goes on as it was.
CREATE TABLE IF NOT EXISTS faults (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    settings TEXT NOT NULL
);
