//! What participants of sagas were asked: answered once, or called off, whoever comes first.

use super::{
    kept::prune,
    saga::{LONG, MANY},
    store::{PATIENCE, message, sealer},
};
use malote_core::{
    FullStore, Message, Prune, Transaction,
    saga::{Direction, LegId, OperationId, Recalled},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Barrier, task::JoinSet, time::timeout};
use uuid::Uuid;

const CONSUMER: &str = "stock";

fn operation(leg: &str) -> OperationId {
    let leg = LegId::from(leg.to_owned());
    OperationId { saga: Uuid::now_v7(), leg, direction: Direction::Do, attempt: 1 }
}

fn answer(text: &str) -> Message {
    let payload = format!("{{ \"a\": 1.50, \"text\": {text:?} }}").into();
    Message { content_type: "application/vnd.x+json".into(), payload, ..message(text) }
}

async fn recall<S: FullStore>(store: &S, consumer: &str, operation: &OperationId) -> Recalled {
    let mut tx = store.begin(sealer()).await.unwrap();
    let recalled = store.recall(&mut tx, consumer, operation).await.unwrap();
    tx.rollback().await.unwrap();
    recalled
}

async fn remember<S: FullStore>(store: &S, operation: &OperationId, answer: &Message) {
    let mut tx = store.begin(sealer()).await.unwrap();
    store.remember(&mut tx, CONSUMER, operation, answer).await.unwrap();
    tx.commit().await.unwrap();
}

async fn call_off<S: FullStore>(store: &S, operation: &OperationId) {
    let mut tx = store.begin(sealer()).await.unwrap();
    store.call_off(&mut tx, CONSUMER, operation).await.unwrap();
    tx.commit().await.unwrap();
}

/// Byte for byte, by the consumer that was asked, for this operation and no other; the first answer stays.
pub async fn an_answer_is_remembered<S: FullStore>(store: S) {
    let long = format!("reserve#{}", "é \0:#".repeat(2_000));
    for leg in ["reserve", "reserve#porto", "reserve#", &long] {
        let asked = operation(leg);
        let others = [
            OperationId { attempt: 2, ..asked.clone() },
            OperationId { direction: Direction::Undo, ..asked.clone() },
            OperationId { saga: Uuid::now_v7(), ..asked.clone() },
            OperationId { leg: LegId::from(format!("{leg}x")), ..asked.clone() },
        ];
        assert_eq!(recall(&store, CONSUMER, &asked).await, Recalled::Unknown);
        let mut tx = store.begin(sealer()).await.unwrap();
        store.remember(&mut tx, CONSUMER, &asked, &answer("lost")).await.unwrap();
        assert_eq!(store.recall(&mut tx, CONSUMER, &asked).await.unwrap(), Recalled::Answered(answer("lost")));
        tx.rollback().await.unwrap();
        assert_eq!(recall(&store, CONSUMER, &asked).await, Recalled::Unknown);

        remember(&store, &asked, &answer("first \u{1f511}")).await;
        remember(&store, &asked, &answer("second")).await;
        assert_eq!(recall(&store, CONSUMER, &asked).await, Recalled::Answered(answer("first \u{1f511}")));
        assert_eq!(recall(&store, "warehouse", &asked).await, Recalled::Unknown);
        for other in &others {
            assert_eq!(recall(&store, CONSUMER, other).await, Recalled::Unknown, "{other:?}");
        }
    }
}

/// What has not come does not come any more; what was answered stays answered.
pub async fn what_is_called_off_is_not_done<S: FullStore>(store: S) {
    let (never, done) = (operation("reserve"), operation("reserve"));
    let mut tx = store.begin(sealer()).await.unwrap();
    store.call_off(&mut tx, CONSUMER, &never).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(recall(&store, CONSUMER, &never).await, Recalled::Unknown);
    call_off(&store, &never).await;
    call_off(&store, &never).await;
    assert_eq!(recall(&store, CONSUMER, &never).await, Recalled::CalledOff);
    assert_eq!(recall(&store, "warehouse", &never).await, Recalled::Unknown);
    remember(&store, &never, &answer("too late")).await;
    assert_eq!(recall(&store, CONSUMER, &never).await, Recalled::CalledOff);

    remember(&store, &done, &answer("done")).await;
    call_off(&store, &done).await;
    assert_eq!(recall(&store, CONSUMER, &done).await, Recalled::Answered(answer("done")));
}

/// Of many that come with the same command at once one does it, and the others give its answer.
pub async fn an_operation_is_done_once<S: FullStore>(store: S) {
    for round in 0..5 {
        let (asked, start) = (operation("reserve"), Arc::new(Barrier::new(MANY)));
        let mut racers = JoinSet::new();
        for n in 0..MANY {
            let (store, asked, start) = (store.clone(), asked.clone(), start.clone());
            racers.spawn(async move {
                start.wait().await;
                let mut tx = store.begin(sealer()).await.unwrap();
                let mine = answer(&n.to_string());
                let done = match store.recall(&mut tx, CONSUMER, &asked).await.unwrap() {
                    Recalled::Unknown => {
                        store.remember(&mut tx, CONSUMER, &asked, &mine).await.unwrap();
                        (true, mine)
                    }
                    Recalled::Answered(known) => (false, known),
                    Recalled::CalledOff => panic!("nobody called it off"),
                };
                tx.commit().await.unwrap();
                done
            });
        }
        let all = timeout(PATIENCE, racers.join_all()).await.expect("nobody waits for ever");
        let did: Vec<&Message> = all.iter().filter(|(did, _)| *did).map(|(_, mine)| mine).collect();
        assert_eq!(did.len(), 1, "in round {round}");
        assert!(all.iter().all(|(_, said)| said == did[0]), "all say the same");
    }
}

/// Whoever calls off what somebody is just doing waits for the answer; whoever comes after it does nothing.
pub async fn an_operation_is_done_or_called_off<S: FullStore>(store: S) {
    for round in 0..20 {
        let (asked, start) = (operation("reserve"), Arc::new(Barrier::new(2)));
        let doing = {
            let (store, asked, start) = (store.clone(), asked.clone(), start.clone());
            async move {
                start.wait().await;
                let mut tx = store.begin(sealer()).await.unwrap();
                let known = store.recall(&mut tx, CONSUMER, &asked).await.unwrap();
                let free = known == Recalled::Unknown;
                if free {
                    // as long as a handler takes for a few statements
                    for _ in 0..5 {
                        store.recall(&mut tx, "nobody", &operation("else")).await.unwrap();
                    }
                    store.remember(&mut tx, CONSUMER, &asked, &answer("done")).await.unwrap();
                }
                tx.commit().await.unwrap();
                free
            }
        };
        let undoing = {
            let (store, asked) = (store.clone(), asked.clone());
            async move {
                start.wait().await;
                let mut tx = store.begin(sealer()).await.unwrap();
                store.call_off(&mut tx, CONSUMER, &asked).await.unwrap();
                let known = store.recall(&mut tx, CONSUMER, &asked).await.unwrap();
                tx.commit().await.unwrap();
                known
            }
        };
        let (doing, undoing) = (tokio::spawn(doing), tokio::spawn(undoing));
        let both = async { (doing.await.unwrap(), undoing.await.unwrap()) };
        let (did, told) = timeout(PATIENCE, both).await.expect("nobody waits for ever");
        let expected = if did { Recalled::Answered(answer("done")) } else { Recalled::CalledOff };
        assert_eq!(told, expected, "in round {round}");
        assert_eq!(recall(&store, CONSUMER, &asked).await, expected);
    }
}

/// Answered or called off, when it is old enough.
pub async fn old_operations_go<S: FullStore>(store: S) {
    let all: Vec<OperationId> = (0..5).map(|_| operation("reserve")).collect();
    for (n, asked) in all.iter().enumerate() {
        if n % 2 == 0 { remember(&store, asked, &answer("done")).await } else { call_off(&store, asked).await }
    }
    assert_eq!(prune(&store, Prune::Operations(LONG), 2).await, 0);
    assert_eq!(recall(&store, CONSUMER, &all[1]).await, Recalled::CalledOff);
    assert_eq!(prune(&store, Prune::Operations(Duration::ZERO), 2).await, 5);
    for asked in &all {
        assert_eq!(recall(&store, CONSUMER, asked).await, Recalled::Unknown);
    }
}
