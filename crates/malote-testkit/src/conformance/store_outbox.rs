//! Outbox: what is committed is read, in order, as it was written.

use super::store::{PATIENCE, append, commit, message, sealer};
use bytes::Bytes;
use malote_core::{
    Cause, Message, Read, Store, TraceContext, Transaction,
    relay::{Ranges, Window},
};
use std::time::Duration;
use tokio::time::timeout;

fn all() -> Window {
    Window { high: 0, gaps: Ranges::new(), limit: 10_000 }
}

fn keys(read: &Read) -> Vec<&str> {
    read.rows.iter().map(|row| row.envelope.as_ref().unwrap().key.as_str()).collect()
}

/// In the order of the writing, within a call and from call to call.
pub async fn what_is_appended_is_read_in_order<S: Store>(store: S) {
    let mut tx = store.begin(sealer()).await.unwrap();
    let first = append(&mut tx, ["a", "b", "c"].map(message).to_vec()).await.unwrap();
    let second = append(&mut tx, ["d"].map(message).to_vec()).await.unwrap();
    tx.append(Vec::new()).await.unwrap();
    assert_eq!(keys(&store.read(&all()).await.unwrap()), [""; 0], "not before the commit");
    tx.commit().await.unwrap();

    let many: Vec<String> = (0..1_000).map(|n| format!("n{n}")).collect();
    commit(&store, &many.iter().map(String::as_str).collect::<Vec<_>>()).await;

    let read = store.read(&all()).await.unwrap();
    let expected: Vec<&str> = ["a", "b", "c", "d"].into_iter().chain(many.iter().map(String::as_str)).collect();
    assert_eq!(keys(&read), expected);
    assert!(read.rows.windows(2).all(|two| two[0].seq < two[1].seq), "positions ascend");
    assert!(read.rows.iter().all(|row| row.envelope.as_ref().unwrap().sequence == Some(row.seq)));
    let ids: Vec<_> = read.rows[..4].iter().map(|row| row.envelope.as_ref().unwrap().id).collect();
    assert_eq!(ids, [first, second].concat());
}

/// AC-073, the store's half: nobody rewrites a number, a byte or an attribute.
pub async fn an_envelope_survives_byte_for_byte<S: Store>(store: S) {
    let json = br#"{"b":9007199254740993, "a":0.123456789012345678901234567890,"b":1e3, "u":"\u0000\ud800"}"#;
    let every_byte: Vec<u8> = (0..=255).collect();
    let message = |key: &str, content_type: &str, payload: &[u8]| Message {
        key: key.into(),
        content_type: content_type.into(),
        payload: Bytes::copy_from_slice(payload),
        ..message("")
    };
    let messages = vec![
        message("schlüssel \u{1f511}'\"\\", "application/json", json),
        message("", "application/octet-stream", &every_byte),
        message("empty", "text/plain; charset=utf-8", b""),
    ];
    let mut sealer = sealer();
    sealer.cause = Cause {
        correlation_id: Some("order \"7\" \0 \u{1f511}".into()),
        causation_id: Some(sealer.clock.new_id()),
        trace: Some(TraceContext {
            parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            state: Some("vendor=1".into()),
        }),
    };
    let sealed_alike = sealer.clone();
    let mut tx = store.begin(sealer).await.unwrap();
    let before = sealed_alike.clock.now();
    let mut ids = append(&mut tx, messages.clone()).await.unwrap();
    // one without any bytes in a statement of its own, too
    ids.extend(append(&mut tx, messages[2..].to_vec()).await.unwrap());
    tx.commit().await.unwrap();
    let messages = [&messages[..], &messages[2..]].concat();
    let after = sealed_alike.clock.now();

    let read = store.read(&all()).await.unwrap();
    assert_eq!(read.rows.len(), messages.len());
    for ((row, sent), id) in read.rows.iter().zip(&messages).zip(ids) {
        let got = row.envelope.as_ref().unwrap();
        let mut expected = sealed_alike.seal(sent.clone()).unwrap();
        (expected.id, expected.time, expected.sequence) = (id, got.time, Some(row.seq));
        assert!(*got == expected, "{got:?} is not {expected:?}");
        assert!(before - Duration::from_micros(1) <= got.time && got.time <= after);
    }
}

/// Neither by a rollback, nor by a drop, nor by a future that was given up.
pub async fn what_is_not_committed_leaves_nothing<S: Store>(store: S) {
    let mut tx = store.begin(sealer()).await.unwrap();
    append(&mut tx, vec![message("rolled back")]).await.unwrap();
    tx.rollback().await.unwrap();

    let mut tx = store.begin(sealer()).await.unwrap();
    append(&mut tx, vec![message("dropped")]).await.unwrap();
    drop(tx);

    for polls in 0..20 {
        let mut begin = Box::pin(store.begin(sealer()));
        for _ in 0..polls {
            if futures::poll!(&mut begin).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    commit(&store, &["committed"]).await;
    assert_eq!(keys(&store.read(&all()).await.unwrap()), ["committed"]);
}

/// What lies in the gaps comes first, what lies above the high position follows; a limit cuts at the end.
pub async fn a_window_is_gaps_and_tail_by_position<S: Store>(store: S) {
    commit(&store, &["a", "b", "c", "d", "e", "f", "g", "h"]).await;
    let read = store.read(&all()).await.unwrap();
    let at = |key: &str| read.rows[keys(&read).iter().position(|k| *k == key).unwrap()].seq;

    let gaps: Ranges = [(at("a"), at("b")), (at("d"), at("d"))].into_iter().collect();
    let window = |limit| Window { high: at("f"), gaps: gaps.clone(), limit };
    for (limit, expected) in
        [(10, &["a", "b", "d", "g", "h"][..]), (5, &["a", "b", "d", "g", "h"]), (4, &["a", "b", "d", "g"]), (1, &["a"])]
    {
        assert_eq!(keys(&store.read(&window(limit)).await.unwrap()), expected, "limit {limit}");
    }
    let beyond = Window { high: at("h"), gaps: Ranges::new(), limit: 10 };
    assert_eq!(keys(&store.read(&beyond).await.unwrap()), [""; 0]);
}

/// A NUL where a database cannot hold it is refused with a reason, and takes nobody along; in the
/// payload it is carried.
pub async fn ac_018_nul_is_refused_alone_or_carried<S: Store>(store: S) {
    let in_key = message("a\0b");
    let in_kind = Message { kind: "a\0b".into(), ..message("kind") };
    for bad in [in_key, in_kind] {
        let mut tx = store.begin(sealer()).await.unwrap();
        let alone = append(&mut tx, vec![bad.clone()]).await.unwrap_err();
        assert!(alone.contains("NUL character"), "{alone}");
        let mut batch: Vec<Message> = (0..99).map(|n| message(&format!("neighbour {n}"))).collect();
        batch.insert(50, bad);
        assert!(append(&mut tx, batch.clone()).await.is_err());
        // refused before the database saw it, so the transaction is as good as before
        batch.remove(50);
        append(&mut tx, batch).await.unwrap();
        tx.commit().await.unwrap();
    }
    let carried =
        Message { payload: Bytes::from_static(br#"{"\u0000":["\u0000",{"a":"\ud800"}]}"#), ..message("carried") };
    let raw = Message { payload: Bytes::from_static(b"\0\0"), ..message("raw") };
    let mut tx = store.begin(sealer()).await.unwrap();
    append(&mut tx, vec![carried.clone(), raw.clone()]).await.unwrap();
    tx.commit().await.unwrap();

    let read = store.read(&all()).await.unwrap();
    assert_eq!(read.rows.len(), 2 * 99 + 2);
    let payloads: Vec<&Bytes> = read.rows[198..].iter().map(|row| &row.envelope.as_ref().unwrap().payload).collect();
    assert_eq!(payloads, [&carried.payload, &raw.payload]);
}

/// Whatever its size, an event commits: the wake-up carries no data.
pub async fn ac_025_a_large_event_commits_and_wakes<S: Store>(store: S) {
    for unit in ["x", "\u{1f511}"] {
        for size in [7_999, 8_000, 500_000] {
            let large = Message { payload: unit.repeat(size / unit.len()).into(), ..message("large") };
            let mut tx = store.begin(sealer()).await.unwrap();
            append(&mut tx, vec![large]).await.unwrap();
            tx.commit().await.unwrap();
            timeout(PATIENCE, store.woken()).await.expect("woken");
        }
    }
    assert_eq!(store.read(&all()).await.unwrap().rows.len(), 6);
}

/// Also when the relay begins to wait only after the commit.
pub async fn commit_wakes_the_relay<S: Store>(store: S) {
    commit(&store, &["before"]).await;
    timeout(PATIENCE, store.woken()).await.expect("a commit before the waiting counts");
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.woken().await }
    });
    commit(&store, &["while"]).await;
    timeout(PATIENCE, waiting).await.expect("a commit while waiting counts").unwrap();
}
