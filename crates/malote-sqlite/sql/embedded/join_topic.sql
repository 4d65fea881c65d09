-- A topic that a member reads.
INSERT INTO member_topic (member, topic) VALUES (?1, ?2)
