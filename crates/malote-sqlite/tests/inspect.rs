//! Looking at a service from outside: while it runs, while it writes, and when it is down.
#![allow(missing_docs)]

mod common;

use common::waiting::{REDRIVE, act, claim, garbage, give_up, park, stop_clock};
use common::{envelope, open, sealer, store};
use malote_core::{
    By, Dead, History, Store, Transaction,
    inspect::{Filter, Grade, Inspect},
};
use malote_sqlite::Sqlite;
use malote_testkit::child::{Other, say, told};
use std::{path::Path, time::Duration};
use tempfile::TempDir;
use tokio::time::timeout;

async fn outside(folder: &TempDir) -> Sqlite {
    let path = folder.path().join("service.db");
    Sqlite::builder().create(false).open(path.to_str().unwrap()).await.unwrap()
}

/// Looking blocks nobody and waits for nobody; acting waits for its turn like everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_writes_is_looked_at_from_another_process() {
    let folder = TempDir::new().unwrap();
    let mut service = Other::start("write", folder.path());
    assert_eq!(service.hear().as_deref(), Some("holds the lock"));
    let outside = outside(&folder).await;
    let patience = Duration::from_secs(30);
    let all = Filter::default();
    let looks = async {
        assert_eq!(outside.status().await.unwrap().consumers[0].dead, 1);
        assert_eq!(outside.dead(&all, 10).await.unwrap().len(), 1);
        assert!(outside.parked(&all, 10).await.unwrap().is_empty());
        assert_eq!(outside.outbox(&all, 10).await.unwrap().len(), 1, "what is not committed is not seen");
    };
    timeout(patience, looks).await.expect("readers wait for nobody");

    let findings = outside.doctor().await.unwrap();
    let lock = findings.iter().find(|finding| finding.what == "write lock").unwrap();
    assert_eq!(lock.grade, Grade::Warning);
    assert!(lock.says.contains("by process"), "{}", lock.says);

    let asked = act();
    let mut acting = Box::pin(outside.redrive(&asked, &all, REDRIVE));
    assert!(futures::poll!(&mut acting).is_pending());
    service.kill();
    assert_eq!(timeout(patience, acting).await.unwrap().unwrap().done, 1);
    assert_eq!(outside.parked(&all, 10).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some(told) = told() else { return };
    let path = Path::new(&told[1]).join("service.db");
    let store = Sqlite::open(path.to_str().unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    park(&store, &envelope("k", "1"), Duration::ZERO).await;
    give_up(&store, &claim(&store).await.unwrap(), "away", false).await;
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.append(vec![envelope("k", "1")]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.append(vec![envelope("k", "2")]).await.unwrap();
    say("holds the lock");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("nobody.db");
    assert!(Sqlite::builder().create(false).open(path.to_str().unwrap()).await.is_err());
    assert!(!path.exists());
}

#[tokio::test]
async fn the_doctor_finds_what_is_wrong() {
    let (folder, healthy) = store().await;
    let findings = healthy.doctor().await.unwrap();
    let names: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(names, ["file", "space", "journal", "log size", "integrity", "tables", "clock", "write lock"]);
    assert!(findings.iter().all(|finding| finding.grade == Grade::Fine || finding.what == "space"), "{findings:#?}");

    let grade = async |store: &Sqlite, what: &str| {
        store.doctor().await.unwrap().into_iter().find(|finding| finding.what == what).unwrap().grade
    };
    stop_clock(&healthy).await;
    assert_eq!(grade(&healthy, "clock").await, Grade::Warning);
    common::by_hand(&healthy, "INSERT INTO malote_migration (number, name) VALUES (99, 'later')").await;
    assert_eq!(grade(&healthy, "tables").await, Grade::Warning);
    healthy.close().await;

    let empty = folder.path().join("empty.db");
    let empty = Sqlite::open(empty.to_str().unwrap()).await.unwrap();
    assert_eq!(grade(&empty, "tables").await, Grade::Fault);
}

/// An act without a name or a reason is none; what cannot be sent again says why.
#[tokio::test]
async fn what_cannot_be_done_says_why() {
    let (_folder, store) = store().await;
    let mut nameless = act();
    nameless.actor = " ".into();
    let mut reasonless = act();
    reasonless.reason = String::new();
    for act in [nameless, reasonless] {
        assert!(store.discard(&act, &Filter::default(), true).await.is_err());
        assert!(store.erase(&act, "k", true).await.is_err());
    }
    let unreadable = Dead {
        by: By::Relay("payment".into()),
        what: "outbox row 7".into(),
        admission: None,
        kind: None,
        topic: String::new(),
        key: None,
        partition: None,
        offset: Some(7),
        class: malote_core::Class::Final,
        reason: "its id is not a UUID".into(),
        attempts: 1,
        history: History::default(),
        correlation_id: None,
        trace: None,
        record: Default::default(),
    };
    let damaged = Dead { what: "outbox row 8".into(), record: garbage(), ..unreadable.clone() };
    let mut tx = store.begin(sealer()).await.unwrap();
    store.set_aside(&mut tx, &unreadable).await.unwrap();
    store.set_aside(&mut tx, &damaged).await.unwrap();
    tx.commit().await.unwrap();
    let acted = store.redrive(&act(), &Filter::default(), REDRIVE).await.unwrap();
    let whys: Vec<&str> = acted.refused.iter().map(|refused| refused.why.as_str()).collect();
    assert_eq!((acted.done, whys.len()), (0, 2));
    assert!(whys[0].contains("mend the row by hand") && whys[1].contains("cannot be read"), "{whys:?}");
}

/// What is left says that there was something, and nothing of what.
#[tokio::test]
async fn a_key_is_erased() {
    let (folder, store) = store().await;
    let secret = "secret-of-alice";
    park(&store, &envelope("alice", format!("\"{secret}\"")), Duration::ZERO).await;
    give_up(&store, &claim(&store).await.unwrap(), secret, false).await;
    park(&store, &envelope("alice", format!("\"{secret}\"")), Duration::from_secs(600)).await;
    park(&store, &envelope("bob", "1"), Duration::from_secs(600)).await;
    assert_eq!(store.erase(&act(), "alice", true).await.unwrap().done, 2);
    assert_eq!(store.erase(&act(), "alice", false).await.unwrap().done, 2);
    assert_eq!(store.erase(&act(), "alice", false).await.unwrap().done, 0);
    let dead = store.dead(&Filter::default(), 10).await.unwrap();
    assert_eq!((dead.len(), dead[0].key.as_deref(), dead[0].payload_bytes), (1, None, None));
    let acted = store.redrive(&act(), &Filter::default(), REDRIVE).await.unwrap();
    assert!(acted.refused[0].why.contains("erased"), "{acted:?}");
    assert_eq!(store.parked(&Filter::default(), 10).await.unwrap().len(), 1, "others are left alone");
    assert!(!format!("{:?}", store.audit(10).await.unwrap()).contains("alice"));
    store.close().await;
    let again = open(&folder).await;
    assert_eq!(again.discard(&act(), &Filter::default(), false).await.unwrap().done, 1);
}
