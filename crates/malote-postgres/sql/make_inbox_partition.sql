-- As for the outbox. A row of this day that lies in the DEFAULT partition keeps its day there: two
-- partitions for one day would admit an event twice.
CREATE TABLE malote.inbox_FIRST
    (LIKE malote.inbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE);
ALTER TABLE malote.inbox ATTACH PARTITION malote.inbox_FIRST FOR VALUES FROM ('FIRST') TO ('BEYOND')
