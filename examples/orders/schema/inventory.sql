-- What the inventory service owns. The same file serves SQLite and PostgreSQL, and may be run again at
-- any time.

-- At every moment, for every item: what was ever there is free, set aside, or sold. No column can go below
-- zero, so nothing is sold that is not there, whatever a handler does.
CREATE TABLE IF NOT EXISTS items (
    sku       TEXT PRIMARY KEY CHECK (length(sku) BETWEEN 1 AND 64),
    total     BIGINT NOT NULL CHECK (total >= 0),
    available BIGINT NOT NULL CHECK (available >= 0),
    reserved  BIGINT NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    sold      BIGINT NOT NULL DEFAULT 0 CHECK (sold >= 0),
    CHECK (available + reserved + sold = total)
);

-- One for an order.
CREATE TABLE IF NOT EXISTS reservations (
    order_id   TEXT PRIMARY KEY,
    status     TEXT NOT NULL DEFAULT 'RESERVED' CHECK (status IN ('RESERVED', 'KEPT', 'RELEASED', 'EXPIRED')),
    -- grows with each change of the status
    version    BIGINT NOT NULL DEFAULT 1,
    -- the scheduled message that lets it expire, while it can
    expiry     TEXT,
    made_at    TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    changed_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CHECK (expiry IS NULL OR status = 'RESERVED')
);

-- One for a line of an order.
CREATE TABLE IF NOT EXISTS reservation_lines (
    order_id TEXT NOT NULL REFERENCES reservations (order_id),
    sku      TEXT NOT NULL REFERENCES items (sku),
    quantity BIGINT NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (order_id, sku)
);

-- The demonstration's stock; there are few globes.
INSERT INTO items (sku, total, available) VALUES
    ('book', 1000, 1000), ('pen', 5000, 5000), ('lamp', 100, 100), ('globe', 3, 3)
ON CONFLICT DO NOTHING;
