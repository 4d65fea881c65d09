-- Sagas: pieces of business over several services, and what their participants were asked.
--
--   saga             one row for each instance. Of one that has ended long ago a tombstone stays, so that a
--                    late second start meets it.
--   saga_log         its history: intents and outcomes, each once.
--   saga_definition  definitions that processes of the service said they have code for.
--   saga_act         what people asked to be done to an instance, and what came of it.
--   operation        what this service, as a participant of others' sagas, was asked, with the answer it gave;
--                    or that it was called off before it came.
--
-- An instance is locked for NO KEY UPDATE by whoever reads it in order to change it, so replicas take turns; the
-- revision is checked all the same, since it may have been read in another transaction. An operation is
-- locked by its name, because there may be no row of it yet: see recall_lock.sql.
--
-- JSON is kept as text: it comes back as it was written, and jsonb would refuse some of it.
--
-- The version before knows none of these tables, and none of its own is changed.

CREATE TABLE malote.saga (
    id         uuid        PRIMARY KEY,
    -- under which it began, and ends
    definition text        NOT NULL,
    version    bigint      NOT NULL,
    status     text        NOT NULL,
    -- forward (do), until it has turned back (undo)
    heading    text        NOT NULL,
    -- a person asked for it to be undone
    on_request boolean     NOT NULL,
    reason     text,
    -- JSON as the saga wrote it
    state      text        NOT NULL,
    -- JSON: the steps that were reached
    legs       text        NOT NULL,
    -- how many entries its history has
    entries    bigint      NOT NULL,
    -- grows with each change: whoever read an older one changes nothing
    revision   bigint      NOT NULL,
    -- JSON: the names of the steps that wait, or keep it from going on
    steps      text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT malote.clock(),
    changed_at timestamptz NOT NULL DEFAULT malote.clock(),
    -- when a final status was reached; NULL again when it is left
    ended_at   timestamptz,
    -- only the tombstone is left: state, legs and steps are empty, and the history is gone
    removed    boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 80);
-- Lists, counts and alarms: the different beginnings are few, and each is gone into by itself.
CREATE INDEX saga_standing ON malote.saga (definition, version, status, changed_at) WHERE NOT removed;
-- What may be let go: first what is whole, later the tombstones.
CREATE INDEX saga_ended ON malote.saga (ended_at) WHERE NOT removed AND ended_at IS NOT NULL;
CREATE INDEX saga_tombstone ON malote.saga (ended_at) WHERE removed;

CREATE TABLE malote.saga_log (
    saga      uuid        NOT NULL,
    -- from 1, without gaps: two coordinators cannot write the same transition
    n         bigint      NOT NULL,
    at        timestamptz NOT NULL DEFAULT malote.clock(),
    what      text        NOT NULL,
    -- the step, the direction in which it went, and the attempt
    leg       text,
    direction text,
    attempt   bigint,
    -- the envelope that brought it, or in which it went out
    envelope  uuid,
    reason    text,
    -- who, where a person acted
    actor     text,
    -- the traceparent of the transaction's cause
    trace     text,
    PRIMARY KEY (saga, n)
);

CREATE TABLE malote.saga_definition (
    definition text        NOT NULL,
    version    bigint      NOT NULL,
    -- JSON: what can be shown of it without the service's code
    outline    text        NOT NULL,
    -- when a process last said that it has code for it
    seen_at    timestamptz NOT NULL DEFAULT malote.clock(),
    PRIMARY KEY (definition, version)
);

CREATE TABLE malote.saga_act (
    id       bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    saga     uuid        NOT NULL REFERENCES malote.saga ON DELETE CASCADE,
    -- JSON: what is to be done
    deed     text        NOT NULL,
    actor    text        NOT NULL,
    reason   text        NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT malote.clock(),
    -- NULL until a coordinator has dealt with it
    done_at  timestamptz,
    outcome  text,
    denied   boolean
);
CREATE INDEX saga_act_open ON malote.saga_act (id) WHERE done_at IS NULL;
CREATE INDEX saga_act_saga ON malote.saga_act (saga);

CREATE TABLE malote.operation (
    -- who was asked, and what for
    consumer     text        NOT NULL,
    id           text        NOT NULL,
    -- the answer; all NULL: it was called off before it came
    type         text,
    topic        text,
    key          text,
    content_type text,
    payload      bytea,
    at           timestamptz NOT NULL DEFAULT malote.clock(),
    PRIMARY KEY (consumer, id)
);
CREATE INDEX operation_at ON malote.operation (at);
