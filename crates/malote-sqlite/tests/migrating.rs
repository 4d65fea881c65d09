//! From one version of the tables to the next, with rows in each, and with a process of the version
//! before that goes on.
#![allow(missing_docs)]

mod common;

use common::waiting::{CONSUMER, REDRIVE, act, claim, handle, settle};
use common::{LONG, envelope, open, somebody, store, window};
use malote_core::{
    Admission, Claim, Ending, IdempotencyStore, LaneState, ParkingStore, RequestKey, Settled, Store, Taken,
    inspect::{Filter, Inspect},
    wire,
};
use rusqlite::{Connection, params};
use tempfile::TempDir;
use uuid::Uuid;

const FIRST: &str = include_str!("../sql/migrations/0001_first.sql");
const MIGRATIONS: &str = include_str!("../sql/migrations.sql");
/// As the version before has them; what is not here is as it was.
const SET_ASIDE: &str = r#"
INSERT INTO malote_dead (by, what, event_id, type, topic, "partition", "offset", reason, attempts,
                         record_key, record_headers, record_payload, first_at, last_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
        (SELECT now FROM malote_clock), (SELECT now FROM malote_clock))
    ON CONFLICT (by, what) DO UPDATE
   SET reason = excluded.reason, attempts = excluded.attempts, last_at = excluded.last_at"#;
const ADMIT: &str = "
INSERT INTO malote_inbox (consumer, event_id, day, at)
SELECT ?1, each.value ->> 0, each.value ->> 1, (SELECT now FROM malote_clock)
  FROM json_each(?2) AS each WHERE true
    ON CONFLICT DO NOTHING
RETURNING event_id, day";
const FORGET: &str = "
DELETE FROM malote_idempotency WHERE rowid IN (
    SELECT rowid FROM malote_idempotency
     WHERE coalesce(done_at, lease_until) <= (SELECT now FROM malote_clock) - ?1
     ORDER BY coalesce(done_at, lease_until) LIMIT ?2)";
const REMOVE_PUBLISHED: &str = "
DELETE FROM malote_outbox WHERE seq IN (
    SELECT seq FROM malote_outbox
    WHERE seq <= MIN(?1, (SELECT MIN(COALESCE((gaps ->> '$[0][0]') - 1, high)) FROM malote_relay))
    ORDER BY seq LIMIT ?2)";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the version before sets aside.
fn set_aside(file: &Connection, by: &str, envelope: &malote_core::Envelope) {
    let record = wire::encode(envelope);
    let headers: Vec<(&str, String)> = record.headers.iter().map(|(name, value)| (name.as_str(), hex(value))).collect();
    let headers = serde_json::to_string(&headers).unwrap();
    let id = envelope.id.to_string();
    let values = params![
        by,
        id,
        id,
        envelope.kind,
        envelope.topic,
        3,
        17,
        "no",
        2,
        record.key.as_deref(),
        headers,
        record.payload.as_deref()
    ];
    file.execute(SET_ASIDE, values).unwrap();
}

fn admit(file: &Connection, envelope: &malote_core::Envelope) -> usize {
    let day = Admission::of(envelope).day.to_string();
    let which = serde_json::json!([[envelope.id, day]]).to_string();
    let mut statement = file.prepare(ADMIT).unwrap();
    statement.query_map(params![CONSUMER, which], |_| Ok(())).unwrap().count()
}

/// A file of the first version with a row in every table.
fn first(folder: &TempDir) -> (Connection, Vec<malote_core::Envelope>) {
    let file = Connection::open(folder.path().join("service.db")).unwrap();
    file.pragma_update(None, "journal_mode", "wal").unwrap();
    file.execute_batch(FIRST).unwrap();
    file.execute_batch(MIGRATIONS).unwrap();
    file.execute("INSERT INTO malote_migration (number, name) VALUES (1, 'first')", []).unwrap();
    let events: Vec<_> = (0..4).map(|n| envelope("a key", n.to_string())).collect();
    for event in &events {
        assert_eq!(admit(&file, event), 1);
    }
    set_aside(&file, "consumer ledger", &events[1]);
    set_aside(&file, "relay payment", &events[2]);
    file.execute("INSERT INTO malote_dead (by, what, topic, reason, attempts, record_headers, record_payload, first_at, last_at) VALUES ('consumer ledger', 't partition 1 offset 2', 't', 'no', 1, '[]', X'ff', 5, 6)", []).unwrap();
    file.execute_batch(
        "INSERT INTO malote_outbox (id, type, key, payload) VALUES ('0198c0de-0000-7000-8000-000000000001', 'x.v1', 'k', '1'), ('0198c0de-0000-7000-8000-000000000002', 'x.v1', 'k', '2');
         DELETE FROM malote_outbox WHERE seq = 1;
         INSERT INTO malote_relay (name, high, gaps, epoch) VALUES ('payment', 1, '[]', 7);
         INSERT INTO malote_idempotency (caller, scope, key, fingerprint, owner, lease_until, status, headers, body, done_at)
         VALUES ('c', 'POST /', '1', zeroblob(32), 'o', 5, 201, '[]', 'done', 5)",
    )
    .unwrap();
    (file, events)
}

#[tokio::test]
async fn a_file_of_the_first_version_loses_nothing() {
    let folder = TempDir::new().unwrap();
    let (file, events) = first(&folder);
    let store = open(&folder).await;
    assert_eq!(store.status().await.unwrap().tables, (3, 3));

    let rows = store.read(&window(0, &[], 10)).await.unwrap().rows;
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [2]);
    assert!(
        matches!(store.take_lease("payment", somebody(), LONG).await.unwrap(), Taken::Mine { last: 2, cursor, lease } if cursor.high == 1 && lease.epoch == 8)
    );
    let request = RequestKey { caller: "c".into(), scope: "POST /".into(), key: "1".into() };
    assert!(
        matches!(store.claim(&request, &[0; 32], Uuid::now_v7(), LONG).await.unwrap(), Claim::Done(answer) if answer.status == 201)
    );
    for event in &events {
        assert!(!handle(&store, event).await, "it was handled by the version before");
    }
    let dead = store.dead(&Filter::default(), 10).await.unwrap();
    assert_eq!(dead.len(), 3);
    let of = |by: &str, what: &str| dead.iter().find(|row| row.by == by && row.what == what).expect("it is kept");
    let letter = of("consumer ledger", &events[1].id.to_string());
    assert_eq!(
        (letter.key.as_deref(), letter.attempts, letter.offset, letter.class.as_str()),
        (Some("a key"), 2, Some(17), "final")
    );
    let garbage = of("consumer ledger", "t partition 1 offset 2");
    assert_eq!(
        (garbage.key.as_deref(), garbage.first_at.timestamp_millis(), garbage.last_at.timestamp_millis()),
        (None, 5, 6)
    );
    let (_, kept) = store.dead_letter(letter.id).await.unwrap().unwrap();
    assert_eq!(wire::decode(&kept.topic, &kept.record).unwrap(), events[1]);
    assert_eq!(kept.admission, Some(Admission::of(&events[1])));

    // what the version before gave up can be redriven
    let acted = store.redrive(&act(), &Filter::default(), REDRIVE).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (3, 0));
    let mut whats = Vec::new();
    while let Some(head) = claim(&store).await {
        assert!(matches!(settle(&store, &head, Ending::Done).await, Settled::Rest));
        whats.push(head.what);
    }
    whats.sort();
    let mut expected = [events[1].id.to_string(), "t partition 1 offset 2".into()];
    expected.sort();
    assert_eq!(whats, expected);
    assert_eq!(store.read(&window(2, &[], 10)).await.unwrap().rows[0].envelope.as_ref().unwrap().id, events[2].id);
    drop(file);
}

/// A process of the version before that has not been restarted yet.
#[tokio::test]
async fn the_statements_of_the_first_version_still_work() {
    let (folder, store) = store().await;
    let file = Connection::open(folder.path().join("service.db")).unwrap();
    let events: Vec<_> = (0..3).map(|n| envelope("a key", n.to_string())).collect();
    assert_eq!((admit(&file, &events[0]), admit(&file, &events[0])), (1, 0));
    for _ in 0..2 {
        set_aside(&file, "consumer ledger", &events[0]);
    }
    assert_eq!(store.dead(&Filter::default(), 10).await.unwrap().len(), 1);
    file.execute(FORGET, params![0, 10]).unwrap();
    file.execute("INSERT INTO malote_outbox (type, key, payload) VALUES ('x.v1', 'k', '1')", []).unwrap();
    file.execute("INSERT INTO malote_relay (name, high) VALUES ('payment', 1)", []).unwrap();
    assert_eq!(file.execute(REMOVE_PUBLISHED, params![1, 10]).unwrap(), 1);

    // and what it gave up meanwhile is no less a dead letter
    assert_eq!(store.redrive(&act(), &Filter::default(), REDRIVE).await.unwrap().done, 1);
    let head = claim(&store).await.unwrap();
    assert_eq!((head.lane.key.as_str(), head.admission), ("a key", Some(Admission::of(&events[0]))));
    assert!(matches!(settle(&store, &head, Ending::Done).await, Settled::Rest));
    let mut tx = store.begin(common::sealer()).await.unwrap();
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[head.lane]).await.unwrap(), [LaneState::Free]);
    tx.rollback().await.unwrap();
}
