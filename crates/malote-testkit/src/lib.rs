//! Tools to test malote and what is built with it.

pub mod child;
pub mod conformance;
pub mod faults;
pub mod fleet;
pub mod proxy;
pub mod saga;
pub mod servers;
pub mod soak;
