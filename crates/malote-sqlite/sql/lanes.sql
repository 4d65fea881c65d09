-- Which of these lanes are not free. $1: consumer; $2: [[topic, key], …].
SELECT l.topic, l.key, l.held OR l.due_at IS NOT NULL AS busy, l.dead > 0 AS passing
  FROM json_each($2) AS each
 CROSS JOIN malote_lane AS l ON l.consumer = $1 AND l.topic = each.value ->> 0 AND l.key = each.value ->> 1
