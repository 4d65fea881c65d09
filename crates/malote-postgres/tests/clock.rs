//! One clock: the database's. What a process believes the time to be decides nothing.
#![allow(missing_docs)]

mod common;

use chrono::{DateTime, TimeDelta, Utc};
use common::{changed, open, pass, stop_clock};
use malote_core::{
    Admission, Budget, ClaimDue, Class, Clock, Failed, History, Incarnation, Lane, ParkingStore, RawRecord, Sealer,
    Store, Taken, TimerStore, ToPark, Transaction, inspect::Inspect,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

const TEN_MINUTES: Duration = Duration::from_secs(600);

/// A process clock that is off, each time by another amount: -10 minutes, +10 minutes, and back.
struct Jumping(AtomicI64);

impl Clock for Jumping {
    fn now(&self) -> DateTime<Utc> {
        let off = [-600, 600, 0][usize::try_from(self.0.fetch_add(1, Ordering::Relaxed)).unwrap() % 3];
        malote_testkit::conformance::store::WallClock.now() + TimeDelta::seconds(off)
    }
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

fn sealer() -> Sealer {
    Sealer::new("ledger", Arc::new(Jumping(AtomicI64::new(0))))
}

const ALMOST: Duration = Duration::from_millis(599_900);
const REST: Duration = Duration::from_millis(100);

/// No early timer, no early attempt, no stolen lease, no refused insert; and each in its time.
#[tokio::test]
async fn ac_026_every_comparison_is_by_the_databases_clock() {
    let Some(store) = open().await else { return };
    stop_clock(&store).await;
    let letter = ToPark {
        lane: Lane { topic: "things".into(), key: "k".into() },
        what: "1".into(),
        admission: Some(Admission { event_id: Uuid::now_v7(), day: Default::default() }),
        kind: None,
        record: RawRecord::default(),
        setback: Some(Failed {
            class: Class::Transient,
            error: "away".into(),
            attempts: 1,
            history: History::default(),
            wait: TEN_MINUTES,
        }),
    };
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.schedule(changed("a", 1), TEN_MINUTES).await.unwrap();
    store.park(&mut tx, "ledger", &[letter]).await.unwrap();
    tx.publish(changed("b", 1)).await.unwrap();
    Transaction::commit(tx).await.unwrap();
    let lease = store.take_lease("relay", Incarnation(Uuid::now_v7()), TEN_MINUTES).await.unwrap();
    assert!(matches!(lease, Taken::Mine { .. }));

    let ask = || ClaimDue {
        who: Incarnation(Uuid::now_v7()),
        most: 10,
        holds: TEN_MINUTES,
        budget: Budget { per_second: 1.0, burst: 1.0 },
    };
    let stranger = || store.take_lease("relay", Incarnation(Uuid::now_v7()), TEN_MINUTES);
    pass(&store, ALMOST).await;
    let fired = store.fire(10).await.unwrap();
    assert_eq!((fired.moved, fired.next), (0, Some(REST)), "a timer fired early");
    let due = store.claim_due("ledger", &ask()).await.unwrap();
    assert_eq!((due.heads.len(), due.next), (0, Some(REST)), "an attempt was made early");
    assert!(matches!(stranger().await.unwrap(), Taken::Theirs(_)), "a lease was stolen");

    pass(&store, REST).await;
    assert_eq!(store.fire(10).await.unwrap().moved, 1);
    let heads = store.claim_due("ledger", &ask()).await.unwrap().heads;
    assert_eq!((heads.len(), heads[0].age), (1, TEN_MINUTES));
    assert!(matches!(stranger().await.unwrap(), Taken::Mine { .. }), "a lease that has ended is free");

    // the claim of the head, too, and one that is set back takes nothing from the budget
    pass(&store, ALMOST).await;
    assert_eq!(store.claim_due("ledger", &ask()).await.unwrap().heads.len(), 0, "a claim was stolen");
    sqlx::query("UPDATE standing SET at = at - interval '1 hour'").execute(store.pool()).await.unwrap();
    assert_eq!(store.claim_due("ledger", &ask()).await.unwrap().heads.len(), 0);
    pass(&store, Duration::from_secs(3600) + REST).await;
    assert_eq!(store.claim_due("ledger", &ask()).await.unwrap().heads.len(), 1);
    assert_eq!(store.status().await.unwrap().scheduled, 0);
}

/// So that nobody adds a comparison by another clock: the statements name malote's only.
#[test]
fn no_statement_asks_another_clock() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    for file in std::fs::read_dir(folder).unwrap().flatten().filter(|file| file.path().is_file()) {
        let text = std::fs::read_to_string(file.path()).unwrap().to_lowercase();
        let body: String = text.lines().filter(|line| !line.starts_with("--")).collect();
        // those that look at the server's own times compare them with the clock that wrote them
        let own = ["oldest_transaction.sql", "doctor_server.sql", "mark_rows.sql"];
        if own.contains(&file.file_name().to_str().unwrap()) {
            continue;
        }
        for other in
            ["now()", "clock_timestamp", "current_timestamp", "statement_timestamp", "localtime", "current_date"]
        {
            assert!(!body.contains(other), "{} asks {other}", file.path().display());
        }
    }
}
