//! Acts: what comes back, what goes, and what is sent again; each written down in its own transaction.

use super::{
    inspect::{
        AT_ONCE, CONSUMER, LONG, act, admit, all, claim, dead, deliver, dies, envelope, gives_up, handled, head, lane,
        letter, of_key, settle, waits,
    },
    store::{commit, sealer},
};
use malote_core::{
    Admission, By, Class, Dead, Ending, Envelope, FullStore, History, Incarnation, LaneState, RawRecord, Settled,
    Taken, Transaction,
    inspect::{Act, Filter, ONLY_FOR, Redrive, Replay},
    relay::{Cursor, Ranges, Window},
    wire,
};
use std::time::Duration;
use uuid::Uuid;

/// Fail, dead letter, redrive, fail again, redrive, succeed: one id, every attempt in the history, one effect.
pub async fn ac_049_ac_051_a_redriven_message_keeps_its_id_and_its_history<S: FullStore>(store: S) {
    let envelope = envelope("k");
    dies(&store, &envelope, "first").await;
    let first = dead(&store, &all()).await.remove(0);
    assert_eq!(store.redrive(&act(), &all(), AT_ONCE).await.unwrap().done, 1);
    assert_eq!(dead(&store, &all()).await.len(), 0);

    let again = head(&store).await;
    assert_eq!((again.what.clone(), again.admission), (envelope.id.to_string(), Some(Admission::of(&envelope))));
    assert_eq!((again.attempts, again.age), (1, Duration::ZERO), "its attempts count anew");
    assert_eq!(wire::decode(&again.lane.topic, &again.record).unwrap(), envelope, "nothing that came with it is lost");
    gives_up(&store, &again, "second", false).await;
    let second = dead(&store, &all()).await.remove(0);
    assert_eq!((second.what.as_str(), second.key.as_deref()), (first.what.as_str(), Some("k")));
    assert_eq!(second.first_at.timestamp_millis(), first.first_at.timestamp_millis());

    assert_eq!(store.redrive(&act(), &all(), AT_ONCE).await.unwrap().done, 1);
    let last = head(&store).await;
    let whys: Vec<(&str, &str)> = last.history.entries().iter().map(|e| (e.what.as_str(), e.why.as_str())).collect();
    let redriven = ("redriven", "ana: the bank is back");
    assert_eq!(whys, [("final", "first"), redriven, ("transient", "second"), redriven]);
    assert!(matches!(settle(&store, &last, &Ending::Done).await, Settled::Rest));
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(!admit(&store, &mut tx, &envelope).await, "what was handled is not handled again");
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&envelope)]).await.unwrap(), [LaneState::Free]);
    tx.rollback().await.unwrap();
    let acts = store.audit(10).await.unwrap();
    assert_eq!(acts.len(), 2);
    assert!(
        acts.iter()
            .all(|a| (a.act.as_str(), a.actor.as_str(), a.reason.as_str()) == ("redrive", "ana", "the bank is back"))
    );
    assert!(acts[0].target.contains(&envelope.id.to_string()));
}

/// Apply v1, give v2 up, apply v3, redrive v2: it is not handled, and it is written down that it was asked for.
pub async fn ac_047_a_stale_letter_is_refused_and_audited<S: FullStore>(store: S) {
    assert_eq!(deliver(&store, &envelope("k")).await, LaneState::Free);
    let second = envelope("k");
    dies(&store, &second, "no such account").await;
    assert_eq!(deliver(&store, &envelope("k")).await, LaneState::Passing);
    assert_eq!(deliver(&store, &envelope("l")).await, LaneState::Free);
    assert_eq!(dead(&store, &all()).await[0].newer, 1);

    let acted = store.redrive(&act(), &all(), AT_ONCE).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (0, 1));
    assert!(acted.refused[0].stale && acted.refused[0].why.contains("discard"), "{acted:?}");
    assert_eq!(claim(&store).await.len(), 0, "nothing waits");
    assert_eq!(dead(&store, &all()).await.len(), 1);
    assert_eq!(store.audit(10).await.unwrap()[0].outcome, "stale");

    let although = Redrive { although_newer: true, ..AT_ONCE };
    assert_eq!(store.redrive(&act(), &all(), although).await.unwrap().done, 1);
    assert_eq!(handled(&store).await, [second.id.to_string()]);
}

/// Also when the first is handled before the second has been put back; what came later goes behind.
pub async fn letters_of_a_key_come_back_in_their_order<S: FullStore>(store: S) {
    let letters = [envelope("k"), envelope("other"), envelope("k"), envelope("k")];
    for letter in &letters {
        dies(&store, letter, "never").await;
    }
    let acted = store.redrive(&act(), &of_key("k"), AT_ONCE).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (3, 0));
    let later = envelope("k");
    assert_eq!(deliver(&store, &later).await, LaneState::Busy);
    let expected = [&letters[0], &letters[2], &letters[3], &later].map(|envelope| envelope.id.to_string());
    assert_eq!(handled(&store).await, expected);
    assert_eq!(dead(&store, &all()).await.len(), 1);
}

/// Those that came meanwhile wait, and go on behind it.
pub async fn a_held_key_is_let_go_with_its_letter_in_front<S: FullStore>(store: S) {
    let (first, second, third) = (envelope("k"), envelope("k"), envelope("k"));
    waits(&store, &first, Duration::ZERO).await;
    assert_eq!(deliver(&store, &second).await, LaneState::Busy);
    gives_up(&store, &head(&store).await, "for good", true).await;
    assert_eq!(deliver(&store, &third).await, LaneState::Busy, "a held key takes nothing");
    assert_eq!(claim(&store).await.len(), 0);
    let status = store.status().await.unwrap();
    assert_eq!((status.consumers[0].held_keys, status.consumers[0].parked_messages), (1, 2));
    let rows = dead(&store, &all()).await;
    assert!(rows[0].holds_key);
    assert!(store.parked(&all(), 10).await.unwrap().iter().all(|row| row.held && row.due_at.is_none()));
    assert_eq!(store.redrive(&act(), &all(), AT_ONCE).await.unwrap().done, 1);
    assert_eq!(handled(&store).await, [&first, &second, &third].map(|envelope| envelope.id.to_string()));
    let mut tx = store.begin(sealer()).await.unwrap();
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&first)]).await.unwrap(), [LaneState::Free]);
}

/// A thousand at once would be the next storm.
pub async fn a_redrive_is_spread_over_time<S: FullStore>(store: S) {
    for key in ["a", "b", "c"] {
        dies(&store, &envelope(key), "never").await;
        dies(&store, &envelope(key), "never").await;
    }
    let slowly = Redrive { per_second: 1, ..AT_ONCE };
    assert_eq!(store.redrive(&act(), &all(), slowly).await.unwrap().done, 6);
    let rows = store.parked(&all(), 10).await.unwrap();
    let due: Vec<_> = rows.iter().filter_map(|row| row.due_at).collect();
    assert_eq!(due.len(), 3, "one a key");
    for pair in due.windows(2) {
        assert!(pair[1] - pair[0] >= chrono::TimeDelta::milliseconds(900), "{due:?}");
    }
}

/// To the outbox, under their own id; what cannot be read cannot be sent.
pub async fn letters_of_a_relay_are_sent_again<S: FullStore>(store: S) {
    let envelope = envelope("k");
    let by = By::Relay("ledger".into());
    let unreadable = Dead {
        what: "outbox row 7".into(),
        record: RawRecord::default(),
        ..letter(by.clone(), &envelope, History::default(), 1, "the headers cannot be read")
    };
    let mut tx = store.begin(sealer()).await.unwrap();
    store.set_aside(&mut tx, &letter(by, &envelope, History::default(), 1, "too large")).await.unwrap();
    store.set_aside(&mut tx, &unreadable).await.unwrap();
    tx.commit().await.unwrap();
    let acted = store.redrive(&act(), &all(), AT_ONCE).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (1, 1));
    assert!(acted.refused[0].why.contains("the headers cannot be read") && !acted.refused[0].stale, "{acted:?}");
    let rows = store.read(&Window { high: 0, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows;
    let sent = rows[0].envelope.clone().unwrap();
    assert_eq!(Envelope { sequence: None, ..sent }, envelope);
    assert_eq!((rows.len(), dead(&store, &all()).await.len()), (1, 1));
}

/// And is not handled when it comes again.
pub async fn a_discarded_letter_lets_its_key_go<S: FullStore>(store: S) {
    let (first, second) = (envelope("k"), envelope("k"));
    waits(&store, &first, Duration::ZERO).await;
    deliver(&store, &second).await;
    gives_up(&store, &head(&store).await, "for good", true).await;
    let acted = store.discard(&act(), &all(), false).await.unwrap();
    assert_eq!((acted.done, acted.refused.len()), (1, 0));
    assert_eq!(handled(&store).await, [second.id.to_string()]);
    assert_eq!(dead(&store, &all()).await.len(), 0);
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(!admit(&store, &mut tx, &first).await);
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&first)]).await.unwrap(), [LaneState::Free]);
    tx.rollback().await.unwrap();
    let acts = store.audit(10).await.unwrap();
    assert_eq!((acts.len(), acts[0].act.as_str(), acts[0].actor.as_str()), (1, "discard", "ana"));
}

/// Without waiting for its time.
pub async fn the_next_attempt_can_be_made_now<S: FullStore>(store: S) {
    let (wanted, other) = (envelope("k"), envelope("l"));
    waits(&store, &wanted, LONG).await;
    waits(&store, &other, LONG).await;
    assert_eq!(claim(&store).await.len(), 0);
    assert_eq!(store.retry_now(&act(), &of_key("k"), false).await.unwrap().done, 1);
    assert_eq!(handled(&store).await, [wanted.id.to_string()]);
    let acts = store.audit(10).await.unwrap();
    assert_eq!((acts.len(), acts[0].act.as_str()), (1, "retry"));
}

/// With its own time; to another topic or for one consumer where asked. What the relay has not come to is left to it.
pub async fn what_was_published_is_sent_again_under_its_id<S: FullStore>(store: S) {
    let old: Vec<Envelope> = ["a", "b", "a", "c"].map(envelope).into();
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.append(old.clone()).await.unwrap();
    tx.commit().await.unwrap();
    let who = Incarnation(Uuid::now_v7());
    let Taken::Mine { lease, .. } = store.take_lease("ledger", who, LONG).await.unwrap() else { panic!("not free") };
    let cursor = Cursor { high: 3, gaps: [(2, 2)].into_iter().collect() };
    store.save(&lease, &cursor, LONG).await.unwrap();
    let plain = Replay { dry: false, topic: None, consumer: None, most: 100 };
    let aimed = Replay { topic: Some("again".into()), consumer: Some("audit".into()), ..plain.clone() };
    assert_eq!(store.replay(&act(), &all(), plain.clone()).await.unwrap().done, 2);
    assert_eq!(store.replay(&act(), &of_key("a"), Replay { most: 1, ..aimed }).await.unwrap().done, 1);
    let rows = store.read(&Window { high: 4, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows;
    let sent: Vec<Envelope> =
        rows.into_iter().map(|row| Envelope { sequence: None, ..row.envelope.unwrap() }).collect();
    assert_eq!(sent[..2], [old[0].clone(), old[2].clone()]);
    let only = (ONLY_FOR.to_owned(), "audit".to_owned());
    assert_eq!((sent.len(), sent[2].id, sent[2].topic.as_str()), (3, old[0].id, "again"));
    assert!(sent[2].headers.contains(&only) && sent[2].time == old[0].time);

    // of an event that lies there twice, one goes; and a copy is no copy of a copy
    store.save(&lease, &Cursor { high: 7, gaps: Ranges::new() }, LONG).await.unwrap();
    assert_eq!(store.replay(&act(), &of_key("a"), plain).await.unwrap().done, 2);
    let rows = store.read(&Window { high: 7, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows;
    assert!(rows.iter().all(|row| !row.envelope.as_ref().unwrap().headers.contains(&only)));
    assert_eq!(store.audit(10).await.unwrap().len(), 3);
}

/// In payload, headers, key or error; also not in what was written down about it.
pub async fn an_erased_key_is_nowhere<S: FullStore>(store: S) {
    let (first, other) = (envelope("maria@example.org"), envelope("l"));
    waits(&store, &first, Duration::ZERO).await;
    let behind = envelope("maria@example.org");
    deliver(&store, &behind).await;
    gives_up(&store, &head(&store).await, "maria@example.org is unknown", false).await;
    dies(&store, &other, "never").await;
    let acted = store.erase(&act(), "maria@example.org", false).await.unwrap();
    assert_eq!(acted.done, 2);
    let rows = dead(&store, &all()).await;
    let (_, erased) = store.dead_letter(rows[0].id).await.unwrap().unwrap();
    let told = format!("{rows:?} {erased:?} {:?} {:?}", store.parked(&all(), 10).await, store.audit(10).await);
    assert!(!told.contains("maria@example.org"), "{told}");
    assert_eq!((erased.record, rows[0].payload_bytes, rows[0].key.as_deref()), (RawRecord::default(), None, None));
    assert_eq!(store.parked(&all(), 10).await.unwrap().len(), 0);
    let (_, kept) = store.dead_letter(rows[1].id).await.unwrap().unwrap();
    assert_eq!(kept.record, wire::encode(&other));
    let acted = store.redrive(&act(), &Filter { ids: Some(vec![rows[0].id]), ..all() }, AT_ONCE).await.unwrap();
    assert!(acted.done == 0 && acted.refused[0].why.contains("erased"), "{acted:?}");
    let mut tx = store.begin(sealer()).await.unwrap();
    assert!(!admit(&store, &mut tx, &behind).await, "it is not handled when it comes again");
    assert_eq!(store.lanes(&mut tx, CONSUMER, &[lane(&first)]).await.unwrap(), [LaneState::Free]);
}

/// Who acts and why is written down, so both are asked for, of every act.
pub async fn an_act_without_a_name_or_a_reason_is_refused<S: FullStore>(store: S) {
    dies(&store, &envelope("k"), "never").await;
    waits(&store, &envelope("l"), LONG).await;
    let replay = Replay { dry: false, topic: None, consumer: None, most: 100 };
    for lacking in [Act { actor: " ".into(), ..act() }, Act { reason: "\t".into(), ..act() }] {
        let acts = [
            store.redrive(&lacking, &all(), AT_ONCE).await.map(drop),
            store.discard(&lacking, &all(), false).await.map(drop),
            store.retry_now(&lacking, &all(), false).await.map(drop),
            store.replay(&lacking, &all(), replay.clone()).await.map(drop),
            store.erase(&lacking, "k", false).await.map(drop),
            store.note(&lacking, "prune", "old rows", "none").await,
        ];
        for refused in acts {
            let error = refused.expect_err("nobody would know");
            assert!(error.class == Class::Final && error.source.to_string().contains("written down"), "{error:?}");
        }
    }
    assert_eq!(dead(&store, &all()).await.len(), 1);
    assert_eq!(store.audit(10).await.unwrap().len(), 0);
}

/// It says what it would do, and writes nothing down.
pub async fn a_dry_run_changes_nothing<S: FullStore>(store: S) {
    commit(&store, &["a"]).await;
    let who = Incarnation(Uuid::now_v7());
    let Taken::Mine { lease, .. } = store.take_lease("ledger", who, LONG).await.unwrap() else { panic!("not free") };
    store.save(&lease, &Cursor { high: 1, gaps: Ranges::new() }, LONG).await.unwrap();
    dies(&store, &envelope("k"), "never").await;
    waits(&store, &envelope("l"), LONG).await;
    let before = format!("{:?} {:?}", store.dead(&all(), 10).await, store.parked(&all(), 10).await);
    let dry = Redrive { dry: true, ..AT_ONCE };
    assert_eq!(store.redrive(&act(), &all(), dry).await.unwrap().done, 1);
    assert_eq!(store.discard(&act(), &all(), true).await.unwrap().done, 1);
    assert_eq!(store.retry_now(&act(), &all(), true).await.unwrap().done, 1);
    assert_eq!(store.erase(&act(), "k", true).await.unwrap().done, 1);
    let replay = Replay { dry: true, topic: None, consumer: None, most: 100 };
    assert_eq!(store.replay(&act(), &all(), replay).await.unwrap().done, 1);
    let after = format!("{:?} {:?}", store.dead(&all(), 10).await, store.parked(&all(), 10).await);
    assert_eq!(before, after);
    assert_eq!(store.audit(10).await.unwrap().len(), 0);
    assert_eq!(store.read(&Window { high: 1, gaps: Ranges::new(), limit: 10 }).await.unwrap().rows.len(), 0);
}
