//! malote on SQLite: a store, and a durable log as transport.
