-- Empties a partition of the inbox, if all of it is done: looked at again under a lock on it alone. Nobody
-- writes to so old a day as a rule; who does, waits for an instant.
LOCK TABLE ONLY malote.NAME IN ACCESS EXCLUSIVE MODE;
DO $$BEGIN
    IF EXISTS (SELECT FROM malote.NAME WHERE state IN ('parked', 'dead')) THEN
        RAISE EXCEPTION 'something of this day is not done' USING ERRCODE = 'lock_not_available';
    END IF;
END$$;
TRUNCATE TABLE ONLY malote.NAME
