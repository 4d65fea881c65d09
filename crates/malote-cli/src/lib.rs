//! The malote command.
