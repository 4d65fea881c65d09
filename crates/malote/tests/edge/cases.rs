//! The cases that other edges have failed.

use crate::bench::{Bank, Bench, Front, Reply, Setup};
use futures::{StreamExt, future::join_all, stream};
use malote::edge::Limits;
use std::time::Duration;

on_each_edge!(
    ac_065_another_body_is_told_before_that_the_first_runs,
    ac_065_of_two_at_once_none_is_an_error,
    ac_066_a_key_counts_for_one_method_and_path,
    ac_067_whatever_fails_leaves_the_key_free,
    ac_068_callers_never_meet,
    ac_069_the_same_key_with_another_body_is_refused,
    ac_070_of_a_hundred_at_once_one_runs,
    ac_071_an_attempt_that_was_overtaken_commits_nothing,
    ac_071_an_attempt_that_was_overtaken_frees_nothing,
    what_was_answered_is_answered_again,
    a_commit_counts_whatever_the_handler_does_next,
    lasting_refusals_are_kept_and_others_are_not,
);

const PAY: &str = r#"{"amount": 5}"#;
const HELD: &str = r#"{"amount": 5, "hold": "before"}"#;

async fn ac_065_another_body_is_told_before_that_the_first_runs<S: Bank>(front: Front) {
    // so long that not even a slow machine comes near its end
    let limits = Limits { lease: Duration::from_secs(3600), ..Setup::default().limits };
    let Some(bench) = Bench::<S>::with(front, Setup { limits, ..Setup::default() }).await else { return };
    let first = bench.pay_beside("k", HELD);
    bench.desk.until_waiting(1).await;
    let running = bench.pay("k", HELD).await;
    running.problem(409, "still running");
    let told: u64 = running.retry_after.as_deref().expect("a time").parse().expect("seconds");
    assert!((1800..=3600).contains(&told), "the rest of the lease, not {told} s");
    bench.pay("k", PAY).await.problem(422, "another request");
    bench.desk.gate.add_permits(1);
    let first = first.await.unwrap();
    assert_eq!((first.status, first.replayed), (202, false));
    assert_eq!(bench.pay("k", HELD).await, first.again());
    bench.pay("k", PAY).await.problem(422, "another request");
    assert_eq!(bench.store.payments("k").await, 1);
}

async fn ac_065_of_two_at_once_none_is_an_error<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    for pair in 0..20 {
        let (key, other) = (format!("k{pair}"), if pair % 2 == 0 { PAY } else { r#"{"amount": 6}"# });
        let (one, two) = tokio::join!(bench.pay(&key, PAY), bench.pay(&key, other));
        let mut statuses = [one.status, two.status];
        statuses.sort_unstable();
        match pair % 2 {
            0 => assert!(matches!(statuses, [202, 202 | 409]), "{one:?} {two:?}"),
            _ => assert_eq!(statuses, [202, 422], "{one:?} {two:?}"),
        }
        assert_eq!(bench.store.payments(&key).await, 1);
    }
}

async fn ac_066_a_key_counts_for_one_method_and_path<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let mut firsts = Vec::new();
    for path in ["/payment", "/refund", "/payment/1/capture", "/payment/2/capture"] {
        let reply = bench.send(path, "k", PAY).await;
        assert_eq!((reply.status, reply.replayed), (202, false), "{path}");
        assert_eq!(reply.location, Some(format!("{path}/k")));
        firsts.push((path, reply));
    }
    let patch = reqwest::Client::new().patch(format!("http://{}/payment", bench.address));
    let patched = Reply::of(patch.header("idempotency-key", "k").body(PAY)).await;
    assert_eq!((patched.status, patched.replayed), (202, false));
    for (path, first) in firsts {
        assert_eq!(bench.send(path, "k", PAY).await, first.again());
    }
    assert_eq!(bench.store.payments("k").await, 5);
}

async fn ac_067_whatever_fails_leaves_the_key_free<S: Bank>(front: Front) {
    let limits = Limits { work_time: Duration::from_millis(1_500), ..Limits::default() };
    let Some(bench) = Bench::<S>::with(front, Setup { limits, ..Setup::default() }).await else { return };
    for (act, status) in [
        ("later", 429),
        ("fault", 502),
        ("broken", 500),
        ("panic", 500),
        ("forget", 500),
        ("commit_fault", 502),
        ("huge", 500),
        ("stall", 503),
    ] {
        let body = format!(r#"{{"amount": 5, "first": "{act}"}}"#);
        let failed = bench.pay(act, &body).await;
        assert_eq!(failed.status, status, "{act}: {failed:?}");
        assert_eq!(bench.store.payments(act).await, 0, "{act} has left something behind");
        let retried = bench.pay(act, &body).await;
        assert_eq!((retried.status, retried.replayed), (202, false), "{act}: {retried:?}");
        assert_eq!(bench.store.payments(act).await, 1, "{act}");
    }
    bench.store.until_nobody_is_inside().await;
}

async fn ac_068_callers_never_meet<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let send = async |caller: String, key: String| {
        let request = bench.request("/payment").header("x-caller", &caller).header("idempotency-key", &key);
        (caller, key, Reply::of(request.body(PAY)).await)
    };
    // a caller and a key that another pair, joined by any of these, could be taken for
    let crafted = [":", "|", "/", "::", "-", "%00", "sha256:", "POST"].iter().flat_map(|by| {
        [
            (format!("a{by}b"), "c".to_owned()),
            ("a".to_owned(), format!("b{by}c")),
            (format!("a{by}"), format!("b{by}c{by}")),
        ]
    });
    let plain = (0..100).flat_map(|n| [("alice".to_owned(), format!("k{n}")), ("bob".to_owned(), format!("k{n}"))]);
    let pairs: Vec<_> = crafted.chain(plain).collect();
    let firsts: Vec<_> = stream::iter(pairs).map(|(caller, key)| send(caller, key)).buffer_unordered(8).collect().await;
    for (caller, key, reply) in &firsts {
        assert_eq!((reply.status, reply.replayed), (202, false), "{caller} {key}: {reply:?}");
        let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(body["caller"], *caller, "{key}");
    }
    let (caller, key, first) = &firsts[0];
    assert_eq!(send(caller.clone(), key.clone()).await.2, first.again());
    ac_068_nobody_blocks_another(&bench).await;
}

async fn ac_068_nobody_blocks_another<S: Bank>(bench: &Bench<S>) {
    let request = |caller: &'static str, body: &'static str| {
        let request = bench.request("/payment").header("x-caller", caller).header("idempotency-key", "shared");
        Reply::of(request.body(body))
    };
    let first = tokio::spawn(request("carol", HELD));
    bench.desk.until_waiting(1).await;
    assert_eq!(request("dave", PAY).await.status, 202);
    bench.desk.gate.add_permits(1);
    assert_eq!(first.await.unwrap().status, 202);
}

async fn ac_069_the_same_key_with_another_body_is_refused<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let first = bench.pay("k", r#"{"amount": 5, "first": "pay"}"#).await;
    assert_eq!(first.status, 202);
    for other in [
        r#"{"amount": 6, "first": "pay"}"#,
        // the same data, written differently: another body, as the documentation says
        r#"{"first": "pay", "amount": 5}"#,
        r#"{"amount":5,"first":"pay"}"#,
        r#"{"amount": 5, "first": "pay"} "#,
    ] {
        bench.pay("k", other).await.problem(422, "another request");
    }
    bench.send("/payment?x=1", "k", r#"{"amount": 5, "first": "pay"}"#).await.problem(422, "another request");
    assert_eq!(bench.store.payments("k").await, 1);
    assert_eq!(bench.pay("k", r#"{"amount": 5, "first": "pay"}"#).await, first.again());
}

async fn ac_070_of_a_hundred_at_once_one_runs<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let replies: Vec<_> = (0..100).map(|_| bench.pay_beside("k", PAY)).collect();
    let replies: Vec<Reply> = join_all(replies).await.into_iter().map(Result::unwrap).collect();
    assert!(replies.iter().all(|reply| matches!(reply.status, 202 | 409)), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| reply.status == 202 && !reply.replayed).count(), 1);
    assert_eq!(*bench.desk.runs.borrow(), 1, "handlers that ran");
    assert_eq!(bench.store.payments("k").await, 1);
}

/// A outlives its lease, B takes over and pays, then A comes to its commit.
async fn ac_071_an_attempt_that_was_overtaken_commits_nothing<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let a = bench.pay_beside("k", HELD);
    bench.desk.until_waiting(1).await;
    bench.store.end_leases().await;
    let b = bench.pay("k", HELD).await;
    assert_eq!((b.status, b.replayed), (202, false));
    bench.desk.gate.add_permits(1);
    a.await.unwrap().problem(409, "another one took over");
    assert_eq!(bench.store.payments("k").await, 1);
    let c = bench.pay("k", HELD).await;
    assert_eq!(c, b.again());
    bench.store.until_nobody_is_inside().await;
}

/// A outlives its lease, B takes over, A fails: then C must wait for B.
async fn ac_071_an_attempt_that_was_overtaken_frees_nothing<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let body = r#"{"amount": 5, "hold": "before", "first": "fault"}"#;
    let a = bench.pay_beside("k", body);
    bench.desk.until_waiting(1).await;
    bench.store.end_leases().await;
    bench.desk.forget("k");
    let b = bench.pay_beside("k", body);
    bench.desk.until_waiting(2).await;
    bench.desk.gate.add_permits(1); // the first that came goes first
    assert_eq!(a.await.unwrap().status, 502);
    bench.pay("k", body).await.problem(409, "still running");
    bench.desk.gate.add_permits(1);
    assert_eq!(b.await.unwrap().status, 502);
    assert_eq!(*bench.desk.runs.borrow(), 2);
}

async fn what_was_answered_is_answered_again<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let first = bench.pay("k", PAY).await;
    assert_eq!((first.status, first.replayed, first.content_type.as_str()), (202, false, "application/json"));
    for _ in 0..3 {
        assert_eq!(bench.pay("k", PAY).await, first.again());
    }
    assert_eq!(*bench.desk.runs.borrow(), 1);
}

async fn a_commit_counts_whatever_the_handler_does_next<S: Bank>(front: Front) {
    let limits = Limits { work_time: Duration::from_millis(1_500), ..Limits::default() };
    let Some(bench) = Bench::<S>::with(front, Setup { limits, ..Setup::default() }).await else { return };
    for act in ["panic_after", "stall_after"] {
        let body = format!(r#"{{"amount": 5, "first": "{act}"}}"#);
        let first = bench.pay(act, &body).await;
        assert_eq!((first.status, first.replayed), (202, false), "{act}: {first:?}");
        assert_eq!(bench.pay(act, &body).await, first.again());
        assert_eq!(bench.store.payments(act).await, 1);
    }
}

async fn lasting_refusals_are_kept_and_others_are_not<S: Bank>(front: Front) {
    let Some(bench) = Bench::<S>::start(front).await else { return };
    let body = r#"{"amount": 5, "first": "refuse"}"#;
    let refused = bench.pay("k", body).await;
    refused.problem(409, "closed");
    assert_eq!(bench.pay("k", body).await, refused.again());
    let unreadable = bench.pay("j", "{").await;
    unreadable.problem(400, "not JSON");
    assert_eq!(bench.pay("j", "{").await, unreadable.again());
    bench.pay("j", PAY).await.problem(422, "another request");
    assert_eq!(*bench.desk.runs.borrow(), 1);
}
