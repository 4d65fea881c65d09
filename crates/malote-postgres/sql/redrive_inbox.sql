-- The event is parked again. Its row may be missing where the tables were restored.
INSERT INTO malote.inbox AS i (consumer, event_id, day, state) VALUES ($1, $2, $3, 'parked')
ON CONFLICT (consumer, event_id, day) DO UPDATE SET state = 'parked'
