//! What every adapter of a port has to do, as tests that each adapter runs.

mod custody;
pub mod inspect;
mod inspect_acts;
mod kept;
mod parking;
mod parking_budget;
mod saga;
mod saga_acts;
mod saga_found;
mod saga_operations;
pub mod store;
mod store_idempotency;
mod store_inbox;
mod store_outbox;
mod store_relay;
mod timer;
pub mod transport;
mod transport_groups;
mod transport_records;
