-- One transaction at a time is about one operation, also where no row tells of it yet: a row that were written in
-- order to be locked would be taken for "called off" as soon as it is committed. A lock by name ends with the
-- transaction, however that ends. Two names that meet in one number only wait for each other. Several operations in
-- one transaction, in another order than somebody else's: the server finds the circle, and one of the two
-- comes again. $1 consumer, $2 operation.
SELECT pg_advisory_xact_lock(hashtextextended('malote operation malote. ' || $1 || ' ' || $2, 0))
