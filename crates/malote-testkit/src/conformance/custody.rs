//! Records that kill their process: whose partitions were never given back, and which runs never ended.

use super::{parking::CONSUMER, store::sealer};
use malote_core::{FullStore, Incarnation, Transaction};
use uuid::Uuid;

/// Given back is given back; a holder that is gone without it is told, once; consumers are apart.
pub async fn custody_tells_of_a_death<S: FullStore>(store: S) {
    let (a, b) = (Incarnation(Uuid::now_v7()), Incarnation(Uuid::now_v7()));
    let all = [("things".to_owned(), 0), ("things".to_owned(), 1), ("other".to_owned(), 0)];
    assert_eq!(store.take_custody(CONSUMER, a, &all).await.unwrap(), [false; 3]);
    assert_eq!(store.take_custody(CONSUMER, a, &all).await.unwrap(), [false; 3], "its own");
    assert_eq!(store.take_custody("notification", b, &all).await.unwrap(), [false; 3], "another consumer's");
    store.give_back(CONSUMER, a).await.unwrap();
    assert_eq!(store.take_custody(CONSUMER, b, &all[..2]).await.unwrap(), [false; 2], "given back");
    // b dies
    assert_eq!(store.take_custody(CONSUMER, a, &all).await.unwrap(), [true, true, false]);
    assert_eq!(store.take_custody(CONSUMER, a, &all[1..]).await.unwrap(), [false; 2], "told once");
    store.give_back(CONSUMER, b).await.unwrap();
    let c = Incarnation(Uuid::now_v7());
    assert_eq!(store.take_custody(CONSUMER, c, &all).await.unwrap(), [true; 3], "only its own is given back");
    assert_eq!(store.take_custody(CONSUMER, c, &[]).await.unwrap(), [false; 0]);
}

/// Each run that begins is counted until one ends; consumers and messages are apart.
pub async fn runs_are_counted_until_they_end<S: FullStore>(store: S) {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (one, both) = (named(&["1"]), named(&["1", "2"]));
    assert_eq!(store.runs(CONSUMER, &both).await.unwrap(), [0, 0]);
    for n in 1..=3 {
        assert_eq!(store.runs_begin(CONSUMER, &one).await.unwrap(), [n]);
    }
    assert_eq!(store.runs_begin(CONSUMER, &named(&["2", "1", "2"])).await.unwrap(), [1, 4, 1], "2 runs once");
    assert_eq!(store.runs_begin("notification", &one).await.unwrap(), [1]);
    let mut tx = store.begin(sealer()).await.unwrap();
    store.runs_ended(&mut tx, CONSUMER, &both).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(store.runs(CONSUMER, &both).await.unwrap(), [4, 1], "their end was rolled back");
    let mut tx = store.begin(sealer()).await.unwrap();
    store.runs_ended(&mut tx, CONSUMER, &named(&["1", "of nobody"])).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.runs(CONSUMER, &named(&["2", "of nobody", "1"])).await.unwrap(), [1, 0, 0]);
    assert_eq!(store.runs_begin(CONSUMER, &one).await.unwrap(), [1]);
    assert_eq!(store.runs_begin("notification", &one).await.unwrap(), [2]);
    assert_eq!(store.runs_begin(CONSUMER, &[]).await.unwrap(), [0; 0]);
}
