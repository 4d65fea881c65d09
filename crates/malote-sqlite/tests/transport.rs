//! The embedded log does what every transport has to do.
#![allow(missing_docs)]

use malote_sqlite::Embedded;
use malote_testkit::conformance::transport::{Bench, Features};
use tempfile::TempDir;

struct Log(TempDir);

impl Bench for Log {
    type Transport = Embedded;
    async fn open(&self) -> Embedded {
        Embedded::open(self.0.path().join("log.db")).await.unwrap()
    }
    fn features(&self) -> Features {
        Features::default()
    }
}

async fn fresh_log() -> Option<Log> {
    Some(Log(TempDir::new().unwrap()))
}

malote_testkit::transport_conformance!(fresh_log);
