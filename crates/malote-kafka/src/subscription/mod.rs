//! A member of a consumer group.
//!
//! A thread of its own polls the client whatever the handlers do, so a slow one loses no membership;
//! see [`member`]. What it reads waits in a bounded buffer. When that is full, records stay in the
//! client's own queues, which are bounded too, and the broker is asked for no more.

mod context;
mod member;
mod missing;
mod shared;

use crate::Shared;
use malote_core::{BoxFuture, Delivery, Place, Subscription, TransportError};
use member::Member;
use shared::Ledger;
use std::{sync::Arc, time::Duration};

/// How long leaving the group in good order may take.
const FAREWELL: Duration = Duration::from_secs(10);

pub(crate) struct KafkaSubscription {
    ledger: Arc<Ledger>,
    member: Member,
}

impl KafkaSubscription {
    pub(crate) async fn join(shared: &Shared, group: &str, topics: &[String]) -> Result<Self, TransportError> {
        let ledger = Arc::new(Ledger::new(shared.assignments.clone()));
        let member =
            Member::start(shared.config.consumer(group), topics.to_vec(), ledger.clone(), shared.config.commit_every)
                .await
                .map_err(|e| TransportError::lasting(format!("joining the group {group:?}"), e))?;
        Ok(Self { ledger, member })
    }
}

impl Subscription for KafkaSubscription {
    fn next(&mut self, most: usize) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move {
            let (deliveries, made_room) = self.ledger.take(most).await?;
            if made_room {
                self.member.wake();
            }
            Ok(deliveries)
        })
    }

    fn hold(&mut self, partitions: &[(String, i32)]) {
        self.ledger.hold(partitions);
        self.member.wake();
    }

    fn acknowledge<'a>(&'a mut self, handled: &'a [Place]) -> BoxFuture<'a, Result<(), TransportError>> {
        // the member's thread commits them with its next look
        self.ledger.acknowledge(handled);
        Box::pin(std::future::ready(Ok(())))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if tokio::time::timeout(FAREWELL, self.member.stop()).await.is_err() {
                tracing::warn!(target: "malote::kafka", "leaving the group takes long; it goes on in the background");
            }
        })
    }
}
