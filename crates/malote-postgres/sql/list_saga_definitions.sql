-- Definitions that processes said they have code for.
SELECT outline FROM malote.saga_definition ORDER BY definition, version
