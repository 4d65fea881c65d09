-- Deletes claimed rows that are published.
DELETE FROM {TABLE} WHERE {ID} = ANY ($1::text[]::{TYPE}[])
