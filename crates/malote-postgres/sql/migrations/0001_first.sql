-- The tables of malote, in a schema of their own inside the service's database.
--
-- A service changes its own tables and says what happened in ONE transaction:
--
--   outbox       what the service says. An append-only log: rows are written by the service, read by
--                the relay in order of `seq`, never updated, and leave when their partition is emptied.
--                Any program may write to it: INSERT INTO malote.outbox (type, key, payload) ...
--   relay        how far the relay has come, and which of its replicas is at work. `high` is the
--                highest position that is dealt with and `gaps` are the positions below it that are
--                not: position order is not commit order, so a row may appear below `high` when its
--                transaction commits late.
--   inbox        which events a consumer has handled. The row is written in the transaction that
--                handles the event, so a second delivery finds it and does nothing.
--   dead         what could not be handled or sent, with the reason.
--   idempotency  requests at the HTTP edge, by caller and key, with the answer once there is one.
--   migration    which of these files have been run.
--
-- How the relay knows that a gap will never be filled (design: docs/decisions/0005-outbox-on-postgres.md):
--
--   * `tx` stands BEFORE `seq`, and defaults are evaluated in the order of the columns. So whoever
--     holds a position had its transaction id before, and that id is below every id given out later.
--   * The sequence hands out one number at a time (CACHE 1), so no session keeps numbers for later.
--   * After a read that shows a gap, the relay begins a new transaction; its id is the gap's bound.
--     Once a reading snapshot's xmin has reached the bound, everyone who could fill the gap has ended.
--
-- Partitions: `outbox` by ranges of `seq`, `inbox` by day. Both have a DEFAULT partition, so that a
-- partition that nobody has made in time never fails an insert. The keeper makes partitions ahead and
-- empties old ones; it takes no lock that makes a writer wait for longer than an instant.
--
-- Payloads are kept as bytes: nobody rewrites a number or the order of keys on the way.
-- Time is read from malote.clock() only, so whatever processes compare is one clock.

CREATE FUNCTION malote.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp()';

CREATE TABLE malote.outbox (
    -- before seq: see above
    tx             xid8        NOT NULL DEFAULT pg_current_xact_id(),
    seq            bigint      NOT NULL GENERATED ALWAYS AS IDENTITY (CACHE 1),
    -- names the event for ever
    id             uuid        NOT NULL DEFAULT gen_random_uuid(),
    -- such as payment.settled.v1
    type           text        NOT NULL,
    -- where it is published; the type, when NULL
    topic          text,
    -- events of one topic and key keep their order; aggregate_id, or else id, when NULL
    key            text,
    -- for those who write to the table themselves and look for their rows later
    aggregate_type text,
    aggregate_id   text,
    -- further CloudEvents attributes, each a string: source, time, datacontenttype, correlationid, ...
    headers        json        NOT NULL DEFAULT '{}',
    payload        bytea       NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT malote.clock(),
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

CREATE TABLE malote.outbox_rest PARTITION OF malote.outbox DEFAULT;

CREATE TABLE malote.relay (
    name        text           PRIMARY KEY,
    -- which start of which process holds the lease; the zero id: nobody
    incarnation uuid           NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    -- grows whenever the lease changes hands
    epoch       bigint         NOT NULL DEFAULT 0,
    expires_at  timestamptz    NOT NULL DEFAULT 'epoch',
    high        bigint         NOT NULL DEFAULT 0,
    gaps        int8multirange NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- For people: which rows are published (as of the last cursor that was stored).
CREATE VIEW malote.outbox_status AS
    SELECT o.seq, o.id, o.type, coalesce(o.topic, o.type) AS topic, coalesce(o.key, o.aggregate_id, o.id::text) AS key,
           o.created_at, octet_length(o.payload) AS payload_bytes,
           EXISTS (SELECT FROM malote.relay r WHERE o.seq <= r.high AND NOT r.gaps @> o.seq) AS published
      FROM malote.outbox o;

CREATE TABLE malote.inbox (
    consumer text        NOT NULL,
    event_id uuid        NOT NULL,
    -- the day of the event's own time: it chooses the partition, and never changes for an event
    day      date        NOT NULL,
    state    text        NOT NULL DEFAULT 'done',
    at       timestamptz NOT NULL DEFAULT malote.clock(),
    PRIMARY KEY (consumer, event_id, day)
) PARTITION BY RANGE (day);

CREATE TABLE malote.inbox_rest PARTITION OF malote.inbox DEFAULT;

CREATE TABLE malote.dead (
    -- who gave up (`consumer ledger`), and what (an event id, or a place in a topic)
    by             text        NOT NULL,
    what           text        NOT NULL,
    event_id       uuid,
    type           text,
    topic          text        NOT NULL,
    "partition"    integer,
    "offset"       bigint,
    reason         text        NOT NULL,
    attempts       integer     NOT NULL,
    -- the record as it came, or would have gone
    record_key     bytea,
    header_names   text[]      NOT NULL,
    header_values  bytea[]     NOT NULL,
    record_payload bytea,
    first_at       timestamptz NOT NULL DEFAULT malote.clock(),
    last_at        timestamptz NOT NULL DEFAULT malote.clock(),
    PRIMARY KEY (by, what)
);

CREATE TABLE malote.idempotency (
    -- SHA-256 over caller, scope and key, each with its length: no separator that could be forged
    request     bytea       PRIMARY KEY,
    caller      text        NOT NULL,
    scope       text        NOT NULL,
    key         text        NOT NULL,
    -- SHA-256 of what was asked for
    fingerprint bytea       NOT NULL,
    -- who is at it, and until when nobody else may
    owner       uuid        NOT NULL,
    lease_until timestamptz NOT NULL,
    -- the answer, once there is one
    status      smallint,
    headers     json,
    body        bytea,
    done_at     timestamptz
);
CREATE INDEX idempotency_age ON malote.idempotency ((coalesce(done_at, lease_until)));
