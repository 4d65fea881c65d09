//! The malote command.
fn main() {}
