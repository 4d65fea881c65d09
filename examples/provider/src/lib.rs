//! An outside payment provider: what a merchant's services cannot look into, and have to get along with.
//!
//! It is slow at times, answers 5xx, does the work and loses the answer, and declines; which of these how
//! often can be set while it runs. What it never does is the same thing twice: a request names its
//! intention with an `Idempotency-Key`, the answer to a key is written down in one transaction with the
//! effect, and whoever asks again gets that answer.
//!
//! | request | body | answers |
//! |---|---|---|
//! | `POST /authorisations` | `{"reference", "amount", "card"}` | 201 `{"authorisation", …}`; 402 `DECLINED` |
//! | `POST /captures` | `{"authorisation", "amount"}` | 201; 422 `NOT_CAPTURABLE` |
//! | `POST /voids` | `{"operation"}`: the key under which it was authorised | 201 `VOIDED` or `NOTHING_DONE`; 422 `CAPTURED` |
//! | `POST /refunds` | `{"operation"}`: the key under which it was captured | 201 `REFUNDED` or `NOTHING_DONE`; 422 `REFUND_FAILED` |
//! | `GET /operations?key=K` | | what became of K: `unknown`, `running`, `done` with its answer, `called off` |
//! | `GET /book` | | every effect, in order |
//! | `GET`, `PUT /faults` | [`Faults`] | the faults |
//!
//! The same key with another body: 422 `KEY_REUSED`. A key whose first work is still running: 409. Undoing
//! a key that never came calls it off: when it comes after all, it gets 410 `CALLED_OFF`. Amounts are
//! whole minor units (cents).

mod book;
mod faults;
mod http;
mod perform;
mod serve;

pub use book::{Book, Effect};
pub use faults::Faults;
pub use http::{Provider, router};
pub use serve::serve;
