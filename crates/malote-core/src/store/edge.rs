//! The edge's part of a store: requests by caller and key.

use super::{Store, StoreError};
use bytes::Bytes;
use std::{future::Future, time::Duration};
use uuid::Uuid;

/// The edge's part of a store: requests by caller and key.
pub trait IdempotencyStore: Store {
    /// A short committed claim on a request. Checks in this order: another fingerprint, an answer,
    /// a living claim; takes over a claim whose lease has passed. By the database's clock.
    fn claim(
        &self,
        request: &RequestKey,
        fingerprint: &[u8; 32],
        owner: Uuid,
        lease: Duration,
    ) -> impl Future<Output = Result<Claim, StoreError>> + Send;

    /// Records the answer in the request's own transaction; false when the claim is no longer `owner`'s,
    /// and then the transaction must not commit.
    fn finish(
        &self,
        tx: &mut Self::Tx,
        request: &RequestKey,
        owner: Uuid,
        answer: &Answer,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Frees a claim that came to nothing; false when there was none of `owner`'s to free.
    fn release(&self, request: &RequestKey, owner: Uuid) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Removes answers older than `keep`, at most `most`; returns how many.
    fn forget(&self, keep: Duration, most: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A request at the edge: keys are per caller, method and path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Who asks, as the edge identified them.
    pub caller: String,
    /// Method and concrete path, such as `POST /payment`.
    pub scope: String,
    /// The key that the caller chose.
    pub key: String,
}

/// What became of a claim on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Ours to do, until the lease ends.
    Won,
    /// Somebody is at it; its lease ends after this long.
    Running(Duration),
    /// Done before; this was the answer.
    Done(Answer),
    /// The key was used for another request.
    Mismatch,
}

/// A recorded answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers worth repeating.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}
