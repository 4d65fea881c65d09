//! SQLite does what every store has to do.
#![allow(missing_docs)]

use malote_sqlite::Sqlite;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use uuid::Uuid;

/// A folder that stays, in the target folder: the suite takes the store alone, so nobody holds on to a
/// folder that would go by itself. What runs of an hour ago left there is removed.
fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store-conformance");
    let hour = Duration::from_secs(3600);
    for old in fs::read_dir(&root).into_iter().flatten().flatten() {
        let age = old.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > hour) {
            let _ = fs::remove_dir_all(old.path());
        }
    }
    let folder = root.join(Uuid::now_v7().to_string());
    fs::create_dir_all(&folder).unwrap();
    folder
}

async fn fresh_store() -> Option<Sqlite> {
    let path = folder().join("service.db");
    let store = Sqlite::builder().sync_every_commit(false).open(path.to_str().unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    Some(store)
}

malote_testkit::store_conformance!(fresh_store);
malote_testkit::inspect_conformance!(fresh_store);
