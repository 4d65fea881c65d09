//! The HTTP edge, over real HTTP, on each store, with and without Redis in front.
#![cfg(all(feature = "http", feature = "redis", feature = "sqlite", feature = "postgres"))]
#![allow(missing_docs)]

#[macro_use]
mod bench;
mod abandoned;
mod bodies;
mod cases;
mod desk;
mod headers;
mod proxy;
mod redis_away;
mod slow;
mod stop;
mod unknown;
