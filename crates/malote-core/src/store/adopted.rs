//! Tables of somebody else's, whose rows are claimed and marked.

use super::StoreError;
use crate::Envelope;
use std::future::Future;

/// A row's id, in text, as its table has it; and what the row is.
pub type ClaimedRow = (String, Envelope);

/// A source of rows that a table of somebody else's holds, claimed and marked one batch at a time.
pub trait ClaimSource: Send + Sync + 'static {
    /// Rows that are locked for this batch.
    type Claimed: Send;
    /// Locks up to `most` unpublished rows that nobody else has locked, oldest first, without those
    /// whose ids are in `except`.
    fn claim(
        &self,
        most: u32,
        except: &[String],
    ) -> impl Future<Output = Result<(Self::Claimed, Vec<ClaimedRow>), StoreError>> + Send;
    /// Marks those of the claimed rows as published whose place in the batch is given, and lets all go.
    fn mark(&self, claimed: Self::Claimed, published: &[usize]) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Waits for a sign that there may be new rows; the relay polls beside it.
    fn woken(&self) -> impl Future<Output = ()> + Send;
}
