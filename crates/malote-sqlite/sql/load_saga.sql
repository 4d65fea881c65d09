-- An instance, or its tombstone.
SELECT id, definition, version, status, heading, on_request, reason, state, legs, entries, revision, removed
  FROM malote_saga WHERE id = $1
