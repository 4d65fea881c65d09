//! Words and decisions of malote: envelopes, handlers, the relay's plan. No I/O.
