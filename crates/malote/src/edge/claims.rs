//! What the edge asks of the store, each within a time: a database that does not answer holds no client.

use super::{Problem, work::Work};
use malote_core::{Claim, Class, IdempotencyStore, StoreError, chain, planted, retry::Backoff};
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// How often a claim is tried that met another transaction.
const TRIES: u32 = 5;

impl<S: IdempotencyStore> Work<S> {
    /// Claims the request for `owner`.
    pub(super) async fn claim(&self, owner: Uuid) -> Result<Claim, Problem> {
        let time = if planted::is("edge-claim-time") { Duration::MAX } else { self.edge.limits.work_time };
        let class = match timeout(time, self.ask(owner)).await {
            Ok(Ok(claim)) => return Ok(claim),
            Ok(Err(error)) => {
                tracing::error!(error = chain(&error), "a request could not be claimed");
                error.class
            }
            Err(_) => {
                tracing::error!("a request could not be claimed within {time:?}");
                Class::Transient
            }
        };
        // it may be ours all the same, if only the answer was lost
        let work = self.clone();
        tokio::spawn(async move { work.free(owner).await });
        Err(Problem::of_class(class))
    }

    async fn ask(&self, owner: Uuid) -> Result<Claim, StoreError> {
        let store = self.edge.outbox.store();
        let mut attempt = 1;
        loop {
            match store.claim(&self.request, &self.fingerprint, owner, self.edge.limits.lease).await {
                Err(error) if error.class == Class::Conflict && attempt < TRIES => {
                    tokio::time::sleep(Backoff::default().wait(attempt, fastrand::f64())).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Frees a claim that came to nothing. That there is none to free is a fault: it was taken under
    /// another name, or the lease was too short.
    pub(super) async fn release(&self, owner: Uuid) {
        if !self.free(owner).await {
            tracing::error!(scope = self.request.scope, "a claim could not be released: it ends with its lease");
        }
    }

    /// Goes on in a task of its own when it takes longer than anybody should wait.
    async fn free(&self, owner: Uuid) -> bool {
        let (store, mut request) = (self.edge.outbox.store().clone(), self.request.clone());
        if planted::is("edge-release") {
            request.key.push('\'');
        }
        let freeing = tokio::spawn(async move {
            store.release(&request, owner).await.unwrap_or_else(|error| {
                tracing::warn!(error = chain(&error), "a claim could not be released");
                false
            })
        });
        matches!(timeout(self.edge.limits.work_time, freeing).await, Ok(Ok(true)))
    }

    /// Finds out what became of a commit whose own answer was lost: `Won` when it took no effect (the
    /// key is free then), `Done` when it did, none when the store does not say.
    ///
    /// A commit that is still on its way holds the claim's row, and the release waits for it. So
    /// the release decides: it frees the key, and the commit can take no effect any more, or finds
    /// that there is nothing to free, and the answer is there.
    pub(super) async fn look_up(&self, owner: Uuid) -> Option<Claim> {
        if planted::is("edge-unknown") {
            self.release(owner).await;
            return Some(Claim::Won);
        }
        let looking = async {
            let mut attempt = 1;
            loop {
                match self.decided(owner).await {
                    Ok(found) => return found,
                    Err(error) => tracing::warn!(error = chain(&error), "an unknown commit could not be looked up yet"),
                }
                tokio::time::sleep(Backoff::default().wait(attempt, fastrand::f64())).await;
                attempt += 1;
            }
        };
        timeout(self.edge.limits.work_time, looking).await.ok()
    }

    async fn decided(&self, owner: Uuid) -> Result<Claim, StoreError> {
        let store = self.edge.outbox.store();
        if store.release(&self.request, owner).await? {
            return Ok(Claim::Won);
        }
        let asking = Uuid::now_v7();
        let found = store.claim(&self.request, &self.fingerprint, asking, self.edge.limits.lease).await?;
        if found == Claim::Won {
            store.release(&self.request, asking).await?;
        }
        Ok(found)
    }
}
