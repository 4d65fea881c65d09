//! Nothing is compiled here; see Cargo.toml.
