//! What every adapter of a port has to do, as tests that each adapter runs.

pub mod transport;
mod transport_groups;
mod transport_records;
