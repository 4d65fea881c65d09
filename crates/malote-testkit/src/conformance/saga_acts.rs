//! What people ask to be done to sagas: refused or written down, dealt with once, and answered.

use super::{
    kept::prune,
    saga::{MANY, bring, insert, instance},
    store::{PATIENCE, sealer},
};
use malote_core::{
    Class, FullStore, Prune, Transaction,
    inspect::Act,
    saga::{AskedDeed, Deed, DeedOutcome, Status},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Barrier, task::JoinSet, time::timeout};
use uuid::Uuid;

fn by(actor: &str, reason: &str) -> Act {
    Act { actor: actor.into(), reason: reason.into() }
}

fn skip() -> Deed {
    Deed::Skip { step: "reserve#porto".into(), answer: Some(r#"{ "n": 1.50 }"#.into()) }
}

/// Takes it and answers; whether it was to be had.
async fn deal<S: FullStore>(store: &S, id: i64, says: &str, denied: bool) -> Option<AskedDeed> {
    let mut tx = store.begin(sealer()).await.unwrap();
    let asked = store.take_act(&mut tx, id).await.unwrap();
    if let Some(asked) = &asked {
        let outcome = DeedOutcome { denied, says: says.into() };
        store.answer_act(&mut tx, asked, &outcome).await.unwrap();
    }
    tx.commit().await.unwrap();
    asked
}

/// By whoever takes it first; whoever asked hears what came of it, and so does the audit, in that transaction.
pub async fn an_act_is_dealt_with_once<S: FullStore>(store: S) {
    let saga = instance("buy", 1, Status::Stuck);
    assert!(insert(&store, &saga).await);
    let id = store.ask_deed(&by("ana", "the bank says so"), saga.id, &skip()).await.unwrap();
    let later = store.ask_deed(&by("ana", "enough"), saga.id, &Deed::Compensate).await.unwrap();
    assert_eq!(store.open_acts(0, 10).await.unwrap(), [id, later]);
    assert_eq!(store.open_acts(0, 1).await.unwrap(), [id]);
    assert_eq!(store.open_acts(id, 10).await.unwrap(), [later], "those behind it");
    assert_eq!(store.status().await.unwrap().open_acts, 2);
    assert_eq!(store.deed_outcome(id).await.unwrap(), None);

    // taken, and given up with the transaction
    let mut tx = store.begin(sealer()).await.unwrap();
    let taken = store.take_act(&mut tx, id).await.unwrap().unwrap();
    assert_eq!(taken, AskedDeed { id, saga: saga.id, act: by("ana", "the bank says so"), deed: skip() });
    store.answer_act(&mut tx, &taken, &DeedOutcome { denied: false, says: "never".into() }).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(store.open_acts(0, 1).await.unwrap(), [id]);
    assert!(store.audit(10).await.unwrap().is_empty());

    let (start, mut racers) = (Arc::new(Barrier::new(MANY)), JoinSet::new());
    for n in 0..MANY {
        let (store, start) = (store.clone(), start.clone());
        racers.spawn(async move {
            start.wait().await;
            deal(&store, id, &format!("running, says {n}"), false).await.map(|_| n)
        });
    }
    let dealt = timeout(PATIENCE, racers.join_all()).await.expect("nobody waits for ever");
    let dealt: Vec<usize> = dealt.into_iter().flatten().collect();
    assert_eq!(dealt.len(), 1, "{dealt:?}");
    assert_eq!(deal(&store, id, "again", true).await, None);
    assert_eq!(deal(&store, later + 1, "no such act", true).await, None);
    let says = format!("running, says {}", dealt[0]);
    let outcome = store.deed_outcome(id).await.unwrap().unwrap();
    assert_eq!(outcome, DeedOutcome { denied: false, says: says.clone() });
    assert_eq!(store.open_acts(0, 10).await.unwrap(), [later]);

    deal(&store, later, "it has ended", true).await.unwrap();
    assert!(store.deed_outcome(later).await.unwrap().unwrap().denied);
    let audit = store.audit(10).await.unwrap();
    let told =
        audit.iter().map(|row| [&row.actor, &row.act, &row.target, &row.reason, &row.outcome].map(String::as_str));
    let (whole, step) = (format!("saga {}", saga.id), format!("saga {}, step reserve#porto", saga.id));
    let expected = [
        ["ana", "saga compensate", &whole, "enough", "denied: it has ended"],
        ["ana", "saga skip", &step, "the bank says so", &says],
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(store.status().await.unwrap().open_acts, 0);
}

/// Without a name or a reason, and for what is not there or only remembered.
pub async fn an_act_that_cannot_be_is_refused<S: FullStore>(store: S) {
    let saga = instance("buy", 1, Status::Completed);
    assert!(insert(&store, &saga).await);
    let good = by("ana", "because");
    let refused = async |act: &Act, id: Uuid| {
        let error = store.ask_deed(act, id, &Deed::Compensate).await.unwrap_err();
        assert_eq!(error.class, Class::Final, "{error}");
        error.to_string()
    };
    assert!(refused(&by(" ", "because"), saga.id).await.contains("who acts"));
    assert!(refused(&by("ana", "\n"), saga.id).await.contains("a reason"));
    assert!(refused(&good, Uuid::now_v7()).await.contains("no such saga"));
    let dealt = store.ask_deed(&good, saga.id, &Deed::Abandon).await.unwrap();
    deal(&store, dealt, "no", true).await.unwrap();
    let open = store.ask_deed(&good, saga.id, &Deed::Compensate).await.unwrap();
    assert_eq!(prune(&store, Prune::Sagas(Duration::ZERO), 10).await, 1);
    assert!(refused(&good, saga.id).await.contains("removed"));
    assert_eq!(store.deed_outcome(dealt).await.unwrap(), None, "it went with the saga");
    assert_eq!(store.open_acts(0, 10).await.unwrap(), [open], "somebody still has to say no");
    assert!(deal(&store, open, "it is gone", true).await.is_some());
    assert_eq!(prune(&store, Prune::Tombstones(Duration::ZERO), 10).await, 1);
    assert_eq!(store.deed_outcome(open).await.unwrap(), None);
    assert_eq!(store.audit(10).await.unwrap().len(), 2, "what was done stays");

    let again = instance("buy", 1, Status::Running);
    assert!(insert(&store, &again).await);
    bring(&store, again.id, Status::Stuck).await;
    let next = store.ask_deed(&good, again.id, &Deed::Retry { step: None }).await.unwrap();
    assert!(next > open, "a number is not used twice");
}
