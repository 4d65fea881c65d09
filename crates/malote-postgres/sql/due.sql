-- Whether a lane of consumer $1 is due, and how long until the next one is, in microseconds. The clock is
-- asked once, in a subquery: compared with each row it would keep the index from being used.
SELECT EXISTS (SELECT FROM malote.lane WHERE consumer = $1 AND due_at <= (SELECT malote.clock())) AS overdue,
       (SELECT greatest(0, extract(epoch FROM l.due_at - malote.clock()) * 1000000)::int8
          FROM malote.lane l
         WHERE l.consumer = $1 AND l.due_at > (SELECT malote.clock()) ORDER BY l.due_at LIMIT 1) AS next
