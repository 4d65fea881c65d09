-- A member goes.
DELETE FROM member WHERE id = ?1
