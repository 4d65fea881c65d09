//! Services that are told to fail, so that a person can see what happens then.
//!
//! `malote demo break ledger --class transient` leaves the file `faults/ledger` in the data folder,
//! `malote demo mend ledger` takes it away. Each service looks before it handles anything.

use malote::{Failure, Outcome};
use std::path::{Path, PathBuf};

/// The folder of the faults.
#[derive(Clone, Debug)]
pub struct Faults(PathBuf);

/// The fault of one service.
#[derive(Clone, Debug)]
pub struct Fault(PathBuf);

impl Faults {
    /// Below the folder of the data.
    pub fn in_folder(data: &Path) -> Self {
        Self(data.join("faults"))
    }

    /// That of one service.
    pub fn of(&self, service: &str) -> Fault {
        Fault(self.0.join(service))
    }
}

impl Fault {
    /// Fails as the file says, when there is one.
    pub fn check(&self) -> Outcome {
        match std::fs::read_to_string(&self.0).as_deref().map(str::trim) {
            Err(_) => Ok(()),
            Ok("final") => Err(Failure::reject("told to fail for good (malote demo break)")),
            Ok(_) => Err(Failure::retry("told to fail for a while (malote demo break)")),
        }
    }
}
