-- Marks claimed rows as published.
UPDATE {TABLE} SET {MARK} = clock_timestamp() WHERE {ID} = ANY ($1::text[]::{TYPE}[])
