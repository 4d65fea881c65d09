//! Sagas, acts on them, and what participants were asked.
//!
//! Everything happens under the write lock, which a transaction has from its first statement on: nobody else
//! changes what it has read. The revision is checked all the same, since an instance may have been read
//! in another transaction than the one that writes it.

mod act;
mod instance;
mod operation;

pub(super) use instance::{bury, stored, word};

use super::{Sqlite, Tx, inspect};
use malote_core::{
    Message, StoreError,
    saga::{AskedDeed, DeedOutcome, Entry, Loaded, OperationId, Outline, Recalled, SagaStore, Stored},
};
use uuid::Uuid;

impl SagaStore for Sqlite {
    async fn insert_saga(&self, tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, StoreError> {
        instance::insert(tx, instance, log).await
    }
    async fn load_saga(&self, tx: &mut Tx, id: Uuid) -> Result<Loaded, StoreError> {
        instance::load(tx, id).await
    }
    async fn save_saga(&self, tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, StoreError> {
        instance::save(tx, instance, log).await
    }
    async fn define_sagas(&self, outlines: &[Outline]) -> Result<(), StoreError> {
        instance::define(self, outlines).await
    }
    async fn sagas_under_way(&self) -> Result<Vec<(String, u32, u64)>, StoreError> {
        inspect::sagas_under_way(self).await
    }
    async fn open_acts(&self, after: i64, most: u32) -> Result<Vec<i64>, StoreError> {
        act::open(self, after, most).await
    }
    async fn take_act(&self, tx: &mut Tx, id: i64) -> Result<Option<AskedDeed>, StoreError> {
        act::take(tx, id).await
    }
    async fn answer_act(&self, tx: &mut Tx, asked: &AskedDeed, outcome: &DeedOutcome) -> Result<(), StoreError> {
        act::answer(tx, asked, outcome).await
    }
    async fn recall(&self, tx: &mut Tx, consumer: &str, operation: &OperationId) -> Result<Recalled, StoreError> {
        operation::recall(tx, consumer, operation).await
    }
    async fn remember(
        &self,
        tx: &mut Tx,
        consumer: &str,
        operation: &OperationId,
        answer: &Message,
    ) -> Result<(), StoreError> {
        operation::remember(tx, consumer, operation, answer).await
    }
    async fn call_off(&self, tx: &mut Tx, consumer: &str, operation: &OperationId) -> Result<(), StoreError> {
        operation::call_off(tx, consumer, operation).await
    }
}
