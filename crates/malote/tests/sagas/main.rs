//! Sagas over real services: carried out once, undone where they must be, shown, and mended by people.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod acts;
mod operations;
mod shop;
mod story;
mod times;
mod versions;
