//! malote on PostgreSQL.
