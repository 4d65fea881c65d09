//! Sagas, acts on them, and what participants were asked.

mod act;
mod instance;
mod operation;

pub(crate) use instance::{loaded, unreadable, unwritable, word};

use crate::{Postgres, Tx};
use malote_core::{
    Message, StoreError,
    saga::{AskedDeed, DeedOutcome, Entry, Loaded, OperationId, Outline, Recalled, SagaStore, Stored},
};
use uuid::Uuid;

impl SagaStore for Postgres {
    async fn insert_saga(&self, tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, StoreError> {
        let made = self.inner.insert_saga(tx, instance, log).await;
        made.map_err(|error| self.inner.failed(format!("writing the new saga {}", instance.id), error))
    }
    async fn load_saga(&self, tx: &mut Tx, id: Uuid) -> Result<Loaded, StoreError> {
        let loaded = self.inner.load_saga(tx, id).await;
        loaded.map_err(|error| self.inner.failed(format!("reading saga {id}"), error))
    }
    async fn save_saga(&self, tx: &mut Tx, instance: &Stored, log: &[Entry]) -> Result<bool, StoreError> {
        let saved = self.inner.save_saga(tx, instance, log).await;
        saved.map_err(|error| self.inner.failed(format!("writing saga {}", instance.id), error))
    }
    async fn define_sagas(&self, outlines: &[Outline]) -> Result<(), StoreError> {
        let defined = self.inner.define_sagas(outlines).await;
        defined.map_err(|error| self.inner.failed("writing down which sagas there is code for", error))
    }
    async fn sagas_under_way(&self) -> Result<Vec<(String, u32, u64)>, StoreError> {
        let under_way = self.inner.sagas_under_way().await;
        under_way.map_err(|error| self.inner.failed("asking which sagas are under way", error))
    }
    async fn open_acts(&self, after: i64, most: u32) -> Result<Vec<i64>, StoreError> {
        let numbers = self.inner.open_acts(after, most).await;
        numbers.map_err(|error| self.inner.failed("looking for acts on sagas", error))
    }
    async fn take_act(&self, tx: &mut Tx, id: i64) -> Result<Option<AskedDeed>, StoreError> {
        let taken = self.inner.take_act(tx, id).await;
        taken.map_err(|error| self.inner.failed(format!("taking act {id} on a saga"), error))
    }
    async fn answer_act(&self, tx: &mut Tx, asked: &AskedDeed, outcome: &DeedOutcome) -> Result<(), StoreError> {
        let answered = self.inner.answer_act(tx, asked, outcome).await;
        answered.map_err(|error| self.inner.failed(format!("answering act {} on a saga", asked.id), error))
    }
    async fn recall(&self, tx: &mut Tx, consumer: &str, operation: &OperationId) -> Result<Recalled, StoreError> {
        let recalled = self.inner.recall(tx, consumer, operation).await;
        recalled.map_err(|error| self.inner.failed(format!("recalling operation {operation}"), error))
    }
    async fn remember(
        &self,
        tx: &mut Tx,
        consumer: &str,
        operation: &OperationId,
        answer: &Message,
    ) -> Result<(), StoreError> {
        let kept = self.inner.remember(tx, consumer, operation, answer).await;
        kept.map_err(|error| self.inner.failed(format!("remembering the answer to operation {operation}"), error))
    }
    async fn call_off(&self, tx: &mut Tx, consumer: &str, operation: &OperationId) -> Result<(), StoreError> {
        let called = self.inner.call_off(tx, consumer, operation).await;
        called.map_err(|error| self.inner.failed(format!("calling off operation {operation}"), error))
    }
}
