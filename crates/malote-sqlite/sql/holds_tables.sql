-- Whether the file has malote's tables, asked without changing it: the outbox is the one that every
-- version has.
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'malote_outbox')
