-- Definitions that processes said they have code for.
SELECT outline FROM malote_saga_definition ORDER BY definition, version
