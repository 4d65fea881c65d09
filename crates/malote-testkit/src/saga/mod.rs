//! How a saga is tested: without servers, on a clock that stands still until it is told.
//!
//! Two ways, for two questions. [`given`] tells one story and says what is asked of whom in it; it is
//! how the intent of a saga is written down. [`laws`] asks whether the saga keeps what every saga has
//! to keep: each step refused, silent, repeated, late, each compensation refused, and thousands of
//! stories that nobody would write. A saga has both.
//!
//! ```
//! use malote_core::{Event, saga::{Command, Deed, Saga, Status, step}};
//! use malote_testkit::saga::{Answers, given, laws};
//! # use serde::{Deserialize, Serialize};
//! use std::time::Duration;
//! # macro_rules! message { ($($name:ident = $type:literal),+) => { $(
//! #     #[derive(Serialize, Deserialize)] struct $name { order: String }
//! #     impl Event for $name { const TYPE: &'static str = $type; fn key(&self) -> String { self.order.clone() } }
//! #     impl std::fmt::Display for $name { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str($type) } }
//! # )+ } }
//! # message!(Reserve = "stock.reserve.v1", Reserved = "stock.reserved.v1", NoStock = "stock.refused.v1",
//! #     Release = "stock.release.v1", Released = "stock.released.v1", NotReleased = "stock.not-released.v1",
//! #     Charge = "card.charge.v1", Charged = "card.charged.v1", Declined = "card.declined.v1");
//! # impl Command for Reserve { type Done = Reserved; type Refused = NoStock; }
//! # impl Command for Release { type Done = Released; type Refused = NotReleased; }
//! # impl Command for Charge { type Done = Charged; type Refused = Declined; }
//! #[derive(Clone, Serialize, Deserialize)]
//! struct Order { id: String }
//!
//! let place_order = Saga::named("place-order", 1)
//!     .step(step("reserve stock", |o: &Order| Reserve { order: o.id.clone() })
//!         .compensate(|o| Release { order: o.id.clone() }))
//!     .step(step("charge card", |o: &Order| Charge { order: o.id.clone() }).pivot());
//! let order = || Order { id: "o1".into() };
//! let id = || "o1".to_owned();
//!
//! // A declined card gives the stock back.
//! given(&place_order, order())
//!     .then_asks::<Reserve>()
//!     .when::<Reserve>(Ok(Reserved { order: id() }))
//!     .then_asks::<Charge>()
//!     .when::<Charge>(Err(Declined { order: id() }))
//!     .then_asks::<Release>()
//!     .when::<Release>(Ok(Released { order: id() }))
//!     .then(Status::Compensated);
//!
//! // Silence before the pivot: nobody knows whether stock was reserved, so it is released.
//! given(&place_order, order())
//!     .then_asks::<Reserve>()
//!     .when_time_passes(Duration::from_secs(30))
//!     .then_asks::<Release>();
//!
//! // And everything that holds for any saga.
//! let answers = Answers::new()
//!     .to::<Reserve>(|c| Reserved { order: c.order }, |c| NoStock { order: c.order })
//!     .to::<Release>(|c| Released { order: c.order }, |c| NotReleased { order: c.order })
//!     .to::<Charge>(|c| Charged { order: c.order }, |c| Declined { order: c.order });
//! laws(&place_order, [order()], &answers);
//! ```

mod answers;
mod history;
mod laws;
mod random;
mod run;
mod scenario;
mod watch;
mod world;

pub use answers::Answers;
pub use laws::laws;
pub use scenario::{Due, Scenario, given};
