-- Each service owns its data: a database each, in one server. Run once, when
-- the server of the local stack is made.
CREATE DATABASE payment;
CREATE DATABASE fraud;
CREATE DATABASE ledger;
CREATE DATABASE notification;
