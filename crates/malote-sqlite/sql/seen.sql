-- Which of these events a consumer has handled. $1: consumer; $2: [[event id, day], …].
SELECT i.event_id, i.day FROM json_each($2) AS each
CROSS JOIN malote_inbox AS i
    ON i.consumer = $1 AND i.event_id = each.value ->> 0 AND i.day = each.value ->> 1
