-- An instance, or its tombstone, to look at.
SELECT id, definition, version, status, heading, on_request, reason, state, legs, entries, revision, removed
  FROM malote.saga WHERE id = $1
