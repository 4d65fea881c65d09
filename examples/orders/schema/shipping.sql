-- What the shipping service owns. The same file serves SQLite and PostgreSQL, and may be run again at any
-- time.

-- One for an order.
CREATE TABLE IF NOT EXISTS shipments (
    order_id   TEXT PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    address    TEXT NOT NULL,
    status     TEXT NOT NULL DEFAULT 'REQUESTED'
               CHECK (status IN ('REQUESTED', 'DISPATCHED', 'CANCELLED', 'RETURNING')),
    -- grows with each change of the status
    version    BIGINT NOT NULL DEFAULT 1,
    changed_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE IF NOT EXISTS shipment_lines (
    order_id TEXT NOT NULL REFERENCES shipments (order_id),
    sku      TEXT NOT NULL,
    quantity BIGINT NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (order_id, sku)
);
