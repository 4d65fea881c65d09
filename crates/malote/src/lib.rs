//! Reliable messages and sagas between services.
