-- Made apart, then attached: that takes no lock which an insert conflicts with, whereas CREATE TABLE ...
-- PARTITION OF would lock the whole outbox. The identity is the parent's; a partition cannot have one.
--
-- It must lie well ahead. An insert that was on its way to DEFAULT while its own partition was attached
-- would be refused; and ATTACH fails when rows of its range lie in DEFAULT. So this comes to nothing
-- when the positions have come near in the meantime.
CREATE TABLE malote.outbox_FIRST
    (LIKE malote.outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE);
ALTER TABLE malote.outbox ATTACH PARTITION malote.outbox_FIRST FOR VALUES FROM (FIRST) TO (BEYOND);
DO $$BEGIN
    IF (SELECT is_called AND last_value + MARGIN >= FIRST FROM malote.outbox_seq_seq) THEN
        RAISE EXCEPTION 'the positions have come near' USING ERRCODE = 'lock_not_available';
    END IF;
END$$
