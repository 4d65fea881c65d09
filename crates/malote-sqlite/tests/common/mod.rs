//! What the tests of the store share.
#![allow(dead_code)]

pub mod waiting;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use malote_core::{
    Clock, Envelope, Incarnation, Message, Sealer, Store,
    relay::{Ranges, Window},
};
use malote_sqlite::{Builder, Sqlite};
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;
use uuid::Uuid;

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(60);

pub struct Real;

impl Clock for Real {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

pub fn sealer() -> Sealer {
    Sealer::new("test", Arc::new(Real))
}

pub fn message(key: &str, payload: impl Into<Bytes>) -> Message {
    Message {
        kind: "thing.happened.v1".into(),
        topic: "thing.happened.v1".into(),
        key: key.into(),
        content_type: "application/json".into(),
        payload: payload.into(),
    }
}

pub fn envelope(key: &str, payload: impl Into<Bytes>) -> Envelope {
    sealer().seal(message(key, payload)).unwrap()
}

/// A fresh store in a folder that goes with it.
pub async fn store() -> (TempDir, Sqlite) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    (folder, store)
}

pub async fn open(folder: &TempDir) -> Sqlite {
    open_with(folder, Sqlite::builder()).await
}

pub async fn open_with(folder: &TempDir, builder: Builder) -> Sqlite {
    let path = folder.path().join("service.db");
    let store = builder.sync_every_commit(false).open(path.to_str().unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Does something to the tables by hand.
pub async fn by_hand(store: &Sqlite, sql: &'static str) {
    let mut tx = store.begin(sealer()).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

pub fn window(high: i64, gaps: &[(i64, i64)], limit: usize) -> Window {
    Window { high, gaps: Ranges::from_iter(gaps.iter().copied()), limit }
}

pub fn somebody() -> Incarnation {
    Incarnation(Uuid::now_v7())
}
