//! Sagas: a piece of business over several services, as data and one pure function.
//!
//! Each service commits its own part, so there is no transaction to roll back: what was done is undone
//! by further acts of business, and what cannot be undone is finished, or shown to a person. A
//! [`Saga`] says what is asked of whom; an [`Instance`] is one run of it; [`Saga::advance`] decides what
//! follows from whatever happens; a [`Decision`] says what to send, which timers to set and what to
//! write down. Who carries it out decides nothing.
//!
//! ```text
//!               Done                 Done
//!  reserve ───────────▶ charge ───────────▶ … ───▶ completed
//!     ▲                    │ refused: undo what came before
//!     │ undo               │ silent: nobody knows, so undo this one too
//!     │                    ▼
//!  compensated ◀── release ◀── void        after the pivot: forward only, or stuck until a person acts
//! ```

mod acts;
mod address;
mod advance;
mod check;
mod command;
mod decision;
mod definition;
mod draw;
mod exchange;
mod input;
mod instance;
mod machine;
mod operation;
mod outline;
mod port;
mod possible;
mod proceed;
mod step;
mod turn;

pub use address::{Address, BadAddress, DEFINITION, INSTANCE, OPERATION, Reception, Row, UNDOES, VERSION};
pub use check::{BadDefinition, Mistake};
pub use command::{Addressed, Answer, Command, CommandType, Never};
pub use decision::{Decision, Entry, Idle, Send, Timer, Verdict, What, timer_id};
pub use definition::{Group, Saga};
pub use input::{Deed, Input, Reply};
pub use instance::{Answered, Asking, Instance, Leg, Sent, Status, StepState, Stored, UnreadableState};
pub use machine::Machine;
pub use operation::{Direction, LegId, NoOperation, OperationId};
pub use outline::{Outline, StepKind, StepOutline, UndoOutline};
pub use port::{
    AskedDeed, DeedOutcome, Loaded, LogRow, OpenDeed, Recalled, SagaCount, SagaFilter, SagaRow, SagaStore, SagaVersion,
};
pub use step::{Compensation, PerPart, Step, Whole, compensation, compensation_each, each, step};
