//! Kafka does what every transport has to do.
#![allow(missing_docs)]

use malote_kafka::Kafka;
use malote_testkit::conformance::transport::{Bench, Features};

struct Broker(String);

impl Bench for Broker {
    type Transport = Kafka;
    async fn open(&self) -> Kafka {
        Kafka::connect(&self.0).unwrap()
    }
    fn features(&self) -> Features {
        Features::default()
    }
}

async fn broker() -> Option<Broker> {
    malote_testkit::servers::kafka().map(Broker)
}

malote_testkit::transport_conformance!(broker);
