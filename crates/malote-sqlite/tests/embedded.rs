//! The embedded log among processes, and what it does when things go wrong.
#![allow(missing_docs)]

mod common;
mod told;

use malote_core::{Delivery, Envelope, Report, Subscription, Transport, wire};
use malote_sqlite::{Embedded, embedded::Builder};
use malote_testkit::child::{Other, say, told};
use malote_testkit::conformance::transport::{
    Features, acknowledge, ensure, envelope, join, numbers, numbers_as_text, opened, publish, reports, sorted, take,
    texts,
};
use rusqlite::Connection;
use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::time::timeout;
use told::Told;

const TOPIC: &str = "thing.happened.v1";
const BATCH: usize = 5;

/// Short enough that tests see its end, long enough that a busy machine keeps it.
const LEASE: Duration = Duration::from_millis(1500);

fn quick() -> Builder {
    Embedded::builder().lease(LEASE)
}

async fn log(folder: &Path) -> Embedded {
    quick().open(folder.join("log.db")).await.unwrap()
}

/// A look into the file from outside.
fn ask<T: rusqlite::types::FromSql>(folder: &Path, sql: &str) -> T {
    let connection = Connection::open(folder.join("log.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Looks until it is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn all(member: &mut dyn Subscription, count: usize) -> Vec<Delivery> {
    take(member, count, &Features::default()).await
}

fn numbered(batch: usize) -> Vec<Envelope> {
    numbers(TOPIC, batch * BATCH..(batch + 1) * BATCH)
}

/// What was reported is there, whole batches only, and offsets have no holes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_is_killed_loses_nothing_that_was_reported() {
    let folder = TempDir::new().unwrap();
    let mut begun = 0;
    for round in 1..=6 {
        let mut producer = Other::start("produce", folder.path());
        let mut reported = begun;
        while reported < begun + 10 * round {
            reported = producer.hear().expect("it goes on until it is killed").parse().unwrap();
        }
        producer.kill();
        // what it said before it died and nobody has heard yet
        while let Some(last) = producer.hear() {
            reported = last.parse().unwrap();
        }
        let stored: i64 = ask(folder.path(), "SELECT count(*) FROM record");
        let stored = usize::try_from(stored).unwrap();
        assert!(stored >= reported * BATCH, "{stored} records, {reported} batches of {BATCH} were reported");
        assert_eq!(stored % BATCH, 0, "half a batch");
        begun = stored / BATCH;
    }
    let mut member = join(&log(folder.path()).await, "check", &[TOPIC]).await;
    let came = all(member.as_mut(), begun * BATCH).await;
    assert_eq!(sorted(&came), numbers_as_text(0..begun * BATCH));
    let mut offsets: HashMap<i32, i64> = HashMap::new();
    for place in came.iter().map(|d| &d.place) {
        let next = offsets.entry(place.partition).or_default();
        assert_eq!(place.offset, *next, "offsets ascend without holes");
        *next += 1;
    }
    assert!(offsets.len() > 1);
    member.close().await;
}

/// It held partitions and records that nobody had acknowledged; the other member gets them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_killed_is_taken_over_from() {
    let folder = TempDir::new().unwrap();
    let log = log(folder.path()).await;
    ensure(&log, &[TOPIC]).await;
    let mut dying = Other::start("consume", folder.path());
    publish(&log, numbers(TOPIC, 0..64)).await;
    let mut handled = HashSet::new();
    while handled.len() < 20 {
        handled.insert(dying.hear().expect("it goes on until it is killed"));
    }
    let mut member = join(&log, "group", &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 64..96)).await;
    dying.kill();
    while let Some(last) = dying.hear() {
        handled.insert(last);
    }
    while handled.len() < 96 {
        let some = all(member.as_mut(), 1).await;
        acknowledge(member.as_mut(), &some).await;
        handled.extend(texts(&some));
    }
    until("all is acknowledged", || {
        ask::<i64>(
            folder.path(),
            "SELECT sum(p.next - a.next) FROM assignment a JOIN partition p ON p.id = a.partition",
        ) == 0
    })
    .await;
    member.close().await;
}

/// A member that closes is not waited for: the other has its partitions at once, a first one too.
#[tokio::test]
async fn nobody_waits_for_a_lease_without_need() {
    let folder = TempDir::new().unwrap();
    let log = Embedded::builder().lease(Duration::from_secs(3600)).open(folder.path().join("log.db")).await.unwrap();
    ensure(&log, &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 0..8)).await;
    let mut first = join(&log, "group", &[TOPIC]).await;
    assert_eq!(all(first.as_mut(), 8).await.len(), 8);
    let mut second = join(&log, "group", &[TOPIC]).await;
    first.close().await;
    assert_eq!(all(second.as_mut(), 8).await.len(), 8);
    drop(second);
    let mut third = join(&log, "group", &[TOPIC]).await;
    assert_eq!(all(third.as_mut(), 8).await.len(), 8);
    third.close().await;
}

/// Records are with a handler that takes longer than several leases: its partitions stay its own, and
/// those that another member should have change hands only after the acknowledgement.
#[tokio::test]
async fn a_slow_handler_keeps_its_partitions_until_it_is_done() {
    let folder = TempDir::new().unwrap();
    let (log, other) = (log(folder.path()).await, log(folder.path()).await);
    ensure(&log, &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 0..64)).await;
    let mut slow = join(&log, "group", &[TOPIC]).await;
    let with_handler = all(slow.as_mut(), 64).await;
    let lease_end = "SELECT min(expires_at) FROM member";
    let begin: i64 = ask(folder.path(), lease_end);
    let mut quick = join(&other, "group", &[TOPIC]).await;
    assert!(ask::<i64>(folder.path(), "SELECT count(*) FROM assignment WHERE target IS NOT owner") > 0);
    until("the slow member outlives two leases", || {
        let members: i64 = ask(folder.path(), "SELECT count(*) FROM member");
        assert_eq!(members, 2, "a member that is at work was taken for dead");
        ask::<i64>(folder.path(), lease_end) > begin + 2 * LEASE.as_millis() as i64
    })
    .await;
    acknowledge(slow.as_mut(), &with_handler).await;
    publish(&log, numbers(TOPIC, 64..128)).await;
    let mut came = all(quick.as_mut(), 1).await;
    let end = Instant::now() + Duration::from_secs(20);
    while came.len() < 64 {
        assert!(Instant::now() < end, "{} of 64 records came", came.len());
        for member in [&mut slow, &mut quick] {
            let some = timeout(Duration::from_millis(20), member.next(64)).await;
            came.extend(some.into_iter().flatten().flatten());
        }
    }
    assert_eq!(sorted(&came), numbers_as_text(64..128), "nothing that was with the handler came again");
    slow.close().await;
    quick.close().await;
}

/// Whoever hands records over and closes without waiting for the reports loses none.
#[tokio::test]
async fn a_clean_close_flushes() {
    let folder = TempDir::new().unwrap();
    let log = log(folder.path()).await;
    ensure(&log, &[TOPIC]).await;
    let mut publisher = log.publisher().await.unwrap();
    for batch in 0..50 {
        drop(publisher.send(numbered(batch)).await.unwrap());
    }
    log.clone().close().await;
    assert!(!folder.path().join("log.db-wal").exists(), "everything is in the file itself");
    assert_eq!(ask::<i64>(folder.path(), "SELECT count(*) FROM record"), 50 * BATCH as i64);
    assert!(publisher.send(numbered(50)).await.is_err(), "closed for everybody");
    log.close().await;
}

/// Old enough, and acknowledged by all: only then a record goes.
#[tokio::test]
async fn records_stay_as_long_as_a_group_needs_them() {
    let folder = TempDir::new().unwrap();
    let log = Embedded::builder().keep(Duration::ZERO).open(folder.path().join("log.db")).await.unwrap();
    ensure(&log, &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 0..40)).await;
    let (mut ahead, mut behind) = (join(&log, "ahead", &[TOPIC]).await, join(&log, "behind", &[TOPIC]).await);
    let (first, second) = (all(ahead.as_mut(), 40).await, all(behind.as_mut(), 40).await);
    acknowledge(ahead.as_mut(), &first).await;
    assert_eq!(log.retain().await.unwrap(), 0, "one group has not acknowledged anything");
    acknowledge(behind.as_mut(), &second[..10]).await;
    let removed = log.retain().await.unwrap();
    assert!((1..=10).contains(&removed), "{removed}");
    let mut late = join(&log, "late", &[TOPIC]).await;
    assert_eq!(all(late.as_mut(), 40 - removed as usize).await.len(), 40 - removed as usize);
    acknowledge(behind.as_mut(), &second).await;
    late.close().await;
    assert!(log.forget_group("late").await.unwrap());
    assert_eq!(log.retain().await.unwrap(), 40 - removed);
    publish(&log, numbers(TOPIC, 40..48)).await;
    assert_eq!(sorted(&all(ahead.as_mut(), 8).await), numbers_as_text(40..48), "offsets go on");
    ahead.close().await;
    behind.close().await;
    let patient = Embedded::open(folder.path().join("log.db")).await.unwrap();
    assert_eq!(patient.retain().await.unwrap(), 0, "not old enough");
}

/// Also when its position was forgotten: what it has handled comes again, and the inbox knows it.
#[tokio::test]
async fn ac_041_a_group_without_a_position_starts_at_the_oldest_record() {
    let folder = TempDir::new().unwrap();
    let log = log(folder.path()).await;
    ensure(&log, &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 0..100)).await;
    for again in 0..2 {
        let mut member = join(&log, "new", &[TOPIC]).await;
        let records = all(member.as_mut(), 100).await;
        assert_eq!(sorted(&records), numbers_as_text(0..100), "time {again}");
        acknowledge(member.as_mut(), &records).await;
        member.close().await;
        assert!(log.forget_group("new").await.unwrap());
    }
}

/// The range that is missing is told exactly, and what is left is delivered.
#[tokio::test]
async fn ac_045_a_group_whose_records_are_gone_goes_on_at_the_oldest_and_says_so() {
    let folder = TempDir::new().unwrap();
    let log = Embedded::builder().partitions(1).lease(LEASE).open(folder.path().join("log.db")).await.unwrap();
    ensure(&log, &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 0..50)).await;
    let mut member = join(&log, "away", &[TOPIC]).await;
    let records = all(member.as_mut(), 50).await;
    acknowledge(member.as_mut(), &records[..20]).await;
    member.close().await;
    // retention would not do this
    let connection = Connection::open(folder.path().join("log.db")).unwrap();
    connection.execute("DELETE FROM record WHERE at & 0xffffffffff < 33", []).unwrap();

    let told = Told::listen();
    let mut member = join(&log, "away", &[TOPIC]).await;
    let left = all(member.as_mut(), 17).await;
    assert_eq!(sorted(&left), numbers_as_text(33..50));
    acknowledge(member.as_mut(), &left).await;
    member.close().await;
    let mut later = join(&log, "later", &[TOPIC]).await;
    assert_eq!(all(later.as_mut(), 17).await.len(), 17);
    later.close().await;
    assert_eq!(told.lines(), [format!("away {TOPIC} 0 20 32")], "the new group has missed nothing");
}

/// Somebody else holds the lock for a while: everything waits, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_file_is_waited_for() {
    let folder = TempDir::new().unwrap();
    let log = log(folder.path()).await;
    ensure(&log, &[TOPIC]).await;
    let connection = Connection::open(folder.path().join("log.db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut publisher = log.publisher().await.unwrap();
    let mut waiting = publisher.send(numbers(TOPIC, 0..3)).await.unwrap();
    let held = timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(held.is_err(), "nothing is reported before it is committed");
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(waiting.await, vec![Report::Stored; 3]);
    let mut member = join(&log, "group", &[TOPIC]).await;
    assert_eq!(all(member.as_mut(), 3).await.len(), 3);
    member.close().await;
}

/// What cannot be written is told with its reason, and nobody panics.
#[tokio::test]
async fn a_damaged_file_is_told() {
    let folder = TempDir::new().unwrap();
    let log = log(folder.path()).await;
    ensure(&log, &[TOPIC]).await;
    let mut member = join(&log, "group", &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 0..3)).await;
    assert_eq!(all(member.as_mut(), 3).await.len(), 3);
    ask::<Option<i64>>(folder.path(), "SELECT 1").unwrap();
    Connection::open(folder.path().join("log.db")).unwrap().execute_batch("ALTER TABLE record RENAME TO lost").unwrap();
    let mut publisher = log.publisher().await.unwrap();
    let told = reports(publisher.as_mut(), numbers(TOPIC, 3..5)).await;
    assert!(matches!(&told[0], Report::Unknown(why) if why.contains("no such table")), "{told:?}");
    let error = timeout(Duration::from_secs(20), member.next(1)).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("group \"group\""), "{error}");
    Connection::open(folder.path().join("log.db")).unwrap().execute_batch("ALTER TABLE lost RENAME TO record").unwrap();
    assert_eq!(reports(publisher.as_mut(), numbers(TOPIC, 5..6)).await, [Report::Stored]);
    let end = Instant::now() + Duration::from_secs(20);
    let came = loop {
        assert!(Instant::now() < end);
        if let Ok(came) = member.next(1).await {
            break came;
        }
    };
    assert_eq!(texts(&came), ["000005"]);
    member.close().await;
}

/// A record that was damaged in the file comes as one that nobody can take for an event, so that it
/// can be set aside; what lies behind it comes too.
#[tokio::test]
async fn a_damaged_record_does_not_hold_up_its_partition() {
    let folder = TempDir::new().unwrap();
    let log = Embedded::builder().partitions(1).open(folder.path().join("log.db")).await.unwrap();
    ensure(&log, &[TOPIC]).await;
    publish(&log, numbers(TOPIC, 0..5)).await;
    let outside = Connection::open(folder.path().join("log.db")).unwrap();
    let offset = "(at & 1099511627775)"; // the lower 40 bits
    let damage = [(1, "headers = x'ff00ff'"), (2, "headers = 'text'"), (3, "key = 7")];
    for (at, change) in damage {
        outside.execute(&format!("UPDATE record SET {change} WHERE {offset} = {at}"), []).unwrap();
    }
    let mut member = join(&log, "group", &[TOPIC]).await;
    let came = all(member.as_mut(), 5).await;
    let read: Vec<_> = came.iter().map(|d| (d.place.offset, wire::decode(TOPIC, &d.record).err())).collect();
    let damaged = |at| (at, Some(wire::Malformed::Damaged));
    assert_eq!(read, [(0, None), damaged(1), damaged(2), damaged(3), (4, None)]);
    assert_eq!(came[1].record.headers, [(wire::DAMAGED.to_owned(), b"\xff\0\xff"[..].into())], "what is left of it");
    member.close().await;
}

/// The last statement before the commit fails: the records are not there, and were not reported.
#[tokio::test]
async fn a_report_is_given_for_what_is_committed_only() {
    let folder = TempDir::new().unwrap();
    let log = log(folder.path()).await;
    ensure(&log, &[TOPIC]).await;
    let outside = Connection::open(folder.path().join("log.db")).unwrap();
    let full = "CREATE TRIGGER full BEFORE UPDATE ON partition BEGIN SELECT RAISE(ABORT, 'no space'); END";
    outside.execute_batch(full).unwrap();
    let mut publisher = log.publisher().await.unwrap();
    let told = reports(publisher.as_mut(), numbers(TOPIC, 0..2)).await;
    assert!(told.iter().all(|r| matches!(r, Report::Unknown(why) if why.contains("no space"))), "{told:?}");
    assert_eq!(ask::<i64>(folder.path(), "SELECT count(*) FROM record"), 0);
    outside.execute_batch("DROP TRIGGER full").unwrap();
    assert_eq!(reports(publisher.as_mut(), numbers(TOPIC, 0..2)).await, [Report::Stored, Report::Stored]);
    assert_eq!(ask::<i64>(folder.path(), "SELECT count(*) FROM record"), 2);
}

#[tokio::test]
async fn a_file_that_is_no_log_is_refused() {
    let folder = TempDir::new().unwrap();
    let refused = async |name: &str| Embedded::open(folder.path().join(name)).await.err().unwrap();
    std::fs::write(folder.path().join("text"), "no database at all, but long enough to be one".repeat(100)).unwrap();
    Connection::open(folder.path().join("service.db")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(!refused("text").await.transient);
    let error = refused("service.db").await;
    assert!(!error.transient && format!("{error}").contains("a file of its own"), "{error}");
    assert!(refused("no/such/folder").await.to_string().contains("no/such/folder"));
    let log = log(folder.path()).await;
    log.close().await;
    Connection::open(folder.path().join("log.db")).unwrap().pragma_update(None, "user_version", 77).unwrap();
    assert!(refused("log.db").await.to_string().contains("77"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some(told) = told() else { return };
    let log = log(Path::new(&told[1])).await;
    ensure(&log, &[TOPIC]).await;
    match told[0].as_str() {
        "produce" => {
            let stored: i64 = ask(Path::new(&told[1]), "SELECT count(*) FROM record");
            let mut publisher = log.publisher().await.unwrap();
            for batch in stored as usize / BATCH.. {
                assert_eq!(reports(publisher.as_mut(), numbered(batch)).await, vec![Report::Stored; BATCH]);
                say(batch + 1);
            }
        }
        "consume" => {
            let mut member = join(&log, "group", &[TOPIC]).await;
            loop {
                for one in member.next(64).await.unwrap() {
                    // the effect comes first: killed in between, it happens twice and never not at all
                    say(&texts(std::slice::from_ref(&one))[0]);
                    acknowledge(member.as_mut(), &[one]).await;
                }
            }
        }
        other => panic!("nobody is {other}"),
    }
}

/// Keys and payloads are what they were, by the file itself.
#[tokio::test]
async fn what_lies_in_the_file_is_the_wire_format() {
    let folder = TempDir::new().unwrap();
    let log = log(folder.path()).await;
    ensure(&log, &[TOPIC]).await;
    let sent = envelope(TOPIC, "k", "{\"n\":9007199254740993}");
    publish(&log, vec![sent.clone()]).await;
    assert_eq!(ask::<Vec<u8>>(folder.path(), "SELECT payload FROM record"), sent.payload.to_vec());
    assert_eq!(ask::<Vec<u8>>(folder.path(), "SELECT key FROM record"), b"k");
    let mut member = join(&log, "group", &[TOPIC]).await;
    assert_eq!(opened(&all(member.as_mut(), 1).await), [sent]);
    member.close().await;
}
