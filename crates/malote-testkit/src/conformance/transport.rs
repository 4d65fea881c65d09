//! What every transport has to do.
//!
//! Each function is one promise of [`malote_core::Transport`]; it takes a [`Bench`] and uses topics
//! and groups of its own, so that one broker may serve all. An adapter runs them all as tests of
//! their own by [`transport_conformance!`](crate::transport_conformance).

pub use super::transport_groups::*;
pub use super::transport_records::*;

use chrono::{DateTime, Utc};
use malote_core::{
    Clock, Delivery, Envelope, Message, Place, Publisher, Report, Sealer, Subscription, Transport, wire,
};
use std::{
    collections::BTreeMap,
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::timeout;
use uuid::Uuid;

/// Makes a test of each promise. `$open` is an `async fn() -> Option<impl Bench>`, or gives `None`
/// where its server cannot be had.
#[macro_export]
macro_rules! transport_conformance {
    ($open:path) => {
        $crate::transport_conformance! { @each $open:
            order_is_kept_per_key_with_batches_under_way
            bytes_and_headers_come_out_as_they_went_in
            ac_073_large_integers_keep_their_digits
            a_record_that_is_too_large_is_refused_alone
            a_topic_is_not_made_by_publishing
            making_a_topic_twice_changes_nothing
            a_new_group_starts_at_the_oldest_record
            two_groups_get_everything_each
            what_is_not_acknowledged_comes_again
            a_group_goes_on_where_it_was
            giving_up_on_next_loses_nothing
            what_is_held_waits_and_keeps_no_other_waiting
            two_members_share_and_take_over
            an_acknowledgement_from_before_changes_nothing
        }
    };
    (@each $open:path: $($name:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if let Some(bench) = $open().await {
                $crate::conformance::transport::$name(&bench).await;
            }
        })+
    };
}

/// A transport on the bench. Kept alive for the whole of a test.
pub trait Bench: Send + Sync {
    /// What is tested.
    type Transport: Transport;
    /// A new handle on the same log or broker, as another process would have it.
    fn open(&self) -> impl Future<Output = Self::Transport> + Send;
    /// What it can do.
    fn features(&self) -> Features;
}

/// What a transport can do, where transports may differ.
#[derive(Clone, Debug)]
pub struct Features {
    /// Longer than it may take for a group to settle and for a record to come.
    pub patience: Duration,
    /// A record of this many bytes is refused.
    pub too_large: usize,
    /// Publishing to a topic that does not exist is answered soon, and not by making it.
    pub knows_missing_topics: bool,
    /// `Place::assignment` differs between one member and the next, so that one may not use the
    /// places of the other.
    pub fences_between_members: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(60),
            too_large: (1 << 20) + 1,
            knows_missing_topics: true,
            fences_between_members: true,
        }
    }
}

struct Real;

impl Clock for Real {
    fn now(&self) -> DateTime<Utc> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        DateTime::UNIX_EPOCH + since
    }
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// A name that nobody else uses.
pub fn fresh(what: &str) -> String {
    format!("{what}.{}", Uuid::now_v7().simple())
}

/// An envelope on its way to `topic`.
pub fn envelope(topic: &str, key: &str, payload: impl Into<bytes::Bytes>) -> Envelope {
    let message = Message {
        kind: "thing.happened.v1".into(),
        topic: topic.into(),
        key: key.into(),
        content_type: "application/json".into(),
        payload: payload.into(),
    };
    Sealer::new("conformance", Arc::new(Real)).seal(message).expect("a small envelope with a valid name")
}

/// Makes topics.
pub async fn ensure(transport: &impl Transport, topics: &[&str]) {
    let topics: Vec<String> = topics.iter().map(|t| (*t).to_owned()).collect();
    transport.ensure(&topics).await.expect("topics are made");
}

/// Publishes and waits for the reports, all of which have to be good ones.
pub async fn publish(transport: &impl Transport, envelopes: Vec<Envelope>) {
    let mut publisher = transport.publisher().await.expect("a publisher");
    let count = envelopes.len();
    assert_eq!(reports(publisher.as_mut(), envelopes).await, vec![Report::Stored; count]);
}

/// Hands a batch over and waits for its reports.
pub async fn reports(publisher: &mut dyn Publisher, envelopes: Vec<Envelope>) -> Vec<Report> {
    publisher.send(envelopes).await.expect("the batch is taken").await
}

/// Joins a group.
pub async fn join(transport: &impl Transport, group: &str, topics: &[&str]) -> Box<dyn Subscription> {
    let topics: Vec<String> = topics.iter().map(|t| (*t).to_owned()).collect();
    transport.subscribe(group, &topics).await.expect("the group is joined")
}

/// Takes records until there are `count`.
pub async fn take(member: &mut dyn Subscription, count: usize, features: &Features) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let next = timeout(features.patience, member.next(count - taken.len())).await;
        taken.extend(next.unwrap_or_else(|_| panic!("{} of {count} records came", taken.len())).expect("records"));
    }
    taken
}

/// Acknowledges records.
pub async fn acknowledge(member: &mut dyn Subscription, deliveries: &[Delivery]) {
    let places: Vec<Place> = deliveries.iter().map(|d| d.place.clone()).collect();
    member.acknowledge(&places).await.expect("acknowledged");
}

/// Reads deliveries as envelopes.
pub fn opened(deliveries: &[Delivery]) -> Vec<Envelope> {
    deliveries.iter().map(|d| wire::decode(&d.place.topic, &d.record).expect("an envelope")).collect()
}

/// The payloads of deliveries, as text.
pub fn texts(deliveries: &[Delivery]) -> Vec<String> {
    opened(deliveries).into_iter().map(|e| String::from_utf8_lossy(&e.payload).into_owned()).collect()
}

/// The payloads of deliveries as text, sorted.
pub fn sorted(deliveries: &[Delivery]) -> Vec<String> {
    let mut texts = texts(deliveries);
    texts.sort();
    texts
}

/// Payloads by key, in the order in which they came.
pub fn by_key(deliveries: &[Delivery]) -> BTreeMap<String, Vec<String>> {
    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for envelope in opened(deliveries) {
        by_key.entry(envelope.key).or_default().push(String::from_utf8_lossy(&envelope.payload).into_owned());
    }
    by_key
}

/// `from..to` as envelopes with keys that spread over the partitions; the payload is the number.
pub fn numbers(topic: &str, range: std::ops::Range<usize>) -> Vec<Envelope> {
    range.map(|n| envelope(topic, &format!("key {}", n % 16), format!("{n:06}"))).collect()
}

/// The payloads that [`numbers`] makes.
pub fn numbers_as_text(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("{n:06}")).collect()
}
