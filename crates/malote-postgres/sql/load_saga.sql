-- An instance, or its tombstone, in order to change it: whoever else wants to do so waits.
SELECT id, definition, version, status, heading, on_request, reason, state, legs, entries, revision, removed
  FROM malote.saga WHERE id = $1 FOR NO KEY UPDATE
