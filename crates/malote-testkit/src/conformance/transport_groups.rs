//! Groups: where they start, what they remember, how their members share.

use super::transport::*;
use futures::FutureExt;
use malote_core::{Delivery, Place, Subscription};
use std::{collections::HashSet, time::Duration};
use tokio::time::timeout;

/// A service that is added later sees what was said before.
pub async fn a_new_group_starts_at_the_oldest_record(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topic = fresh("oldest");
    ensure(&transport, &[&topic]).await;
    publish(&transport, numbers(&topic, 0..50)).await;
    let mut member = join(&transport, &fresh("group"), &[&topic]).await;
    assert_eq!(sorted(&take(member.as_mut(), 50, &features).await), numbers_as_text(0..50));
    publish(&transport, numbers(&topic, 50..60)).await;
    assert_eq!(sorted(&take(member.as_mut(), 10, &features).await), numbers_as_text(50..60));
    member.close().await;
}

/// Services do not take each other's records away.
pub async fn two_groups_get_everything_each(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topics = [fresh("one"), fresh("other")];
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    ensure(&transport, &names).await;
    let mut first = join(&transport, &fresh("group"), &names).await;
    let mut second = join(&bench.open().await, &fresh("group"), &names).await;
    publish(&transport, numbers(&topics[0], 0..30)).await;
    publish(&transport, numbers(&topics[1], 30..60)).await;
    for member in [&mut first, &mut second] {
        let all = take(member.as_mut(), 60, &features).await;
        assert_eq!(sorted(&all), numbers_as_text(0..60));
        acknowledge(member.as_mut(), &all).await;
    }
    first.close().await;
    second.close().await;
}

/// At least once: what was delivered and not acknowledged is delivered again.
pub async fn what_is_not_acknowledged_comes_again(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let (topic, group) = (fresh("again"), fresh("group"));
    ensure(&transport, &[&topic]).await;
    publish(&transport, numbers(&topic, 0..40)).await;
    for _ in 0..2 {
        let mut member = join(&transport, &group, &[&topic]).await;
        assert_eq!(sorted(&take(member.as_mut(), 40, &features).await), numbers_as_text(0..40));
        member.close().await;
    }
}

/// What was acknowledged does not come again, what was not does, and nothing is left out.
pub async fn a_group_goes_on_where_it_was(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let (topic, group) = (fresh("on"), fresh("group"));
    ensure(&transport, &[&topic]).await;
    publish(&transport, numbers(&topic, 0..100)).await;
    let mut member = join(&transport, &group, &[&topic]).await;
    let first = take(member.as_mut(), 60, &features).await;
    // all but the last record of each partition
    let behind =
        |d: &&Delivery| first.iter().any(|o| o.place.partition == d.place.partition && o.place.offset > d.place.offset);
    let handled: Vec<Delivery> = first.iter().filter(behind).cloned().collect();
    acknowledge(member.as_mut(), &handled).await;
    member.close().await;
    publish(&transport, numbers(&topic, 100..110)).await;
    let mut member = join(&bench.open().await, &group, &[&topic]).await;
    let rest = take(member.as_mut(), 110 - handled.len(), &features).await;
    let mut all = texts(&handled);
    all.extend(texts(&rest));
    all.sort();
    assert_eq!(all, numbers_as_text(0..110));
    member.close().await;
}

/// `next` is dropped at many moments, with records coming in.
pub async fn giving_up_on_next_loses_nothing(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topic = fresh("dropped");
    ensure(&transport, &[&topic]).await;
    let mut member = join(&transport, &fresh("group"), &[&topic]).await;
    let mut came = Vec::new();
    for round in 0..50 {
        publish(&transport, numbers(&topic, round * 4..round * 4 + 4)).await;
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
            came.extend(member.next(3).now_or_never().into_iter().flatten().flatten());
        }
        let impatient = timeout(Duration::from_micros(round as u64 * 20), member.next(3)).await;
        came.extend(impatient.into_iter().flatten().flatten());
    }
    came.extend(take(member.as_mut(), 200 - came.len(), &features).await);
    assert_eq!(sorted(&came), numbers_as_text(0..200));
    member.close().await;
}

/// Two members have partitions at one time; when one leaves, the other gets all, from where it was.
pub async fn two_members_share_and_take_over(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let (topic, group) = (fresh("shared"), fresh("group"));
    ensure(&transport, &[&topic]).await;
    let mut first = join(&transport, &group, &[&topic]).await;
    let mut second = join(&bench.open().await, &group, &[&topic]).await;
    let mut seen: HashSet<String> = HashSet::new();
    let mut sent = 0;
    let shared = async {
        // until both have had records of the same round
        loop {
            publish(&transport, numbers(&topic, sent..sent + 32)).await;
            sent += 32;
            let mut had = [false; 2];
            while seen.len() < sent {
                for (member, had) in [&mut first, &mut second].into_iter().zip(&mut had) {
                    let some = soon(member.as_mut()).await;
                    *had |= !some.is_empty();
                    acknowledge(member.as_mut(), &some).await;
                    seen.extend(texts(&some));
                }
            }
            if had == [true; 2] {
                break;
            }
        }
    };
    timeout(features.patience, shared).await.expect("both members get records");
    publish(&transport, numbers(&topic, sent..sent + 32)).await;
    let mut unhandled = HashSet::new();
    while unhandled.is_empty() {
        unhandled.extend(texts(&take(first.as_mut(), 1, &features).await));
    }
    first.close().await;
    let mut last = HashSet::new();
    while last.len() < 32 {
        let some = take(second.as_mut(), 1, &features).await;
        acknowledge(second.as_mut(), &some).await;
        last.extend(texts(&some).into_iter().filter(|text| !seen.contains(text)));
    }
    assert!(last.is_superset(&unhandled), "what the first member left behind came to the second");
    second.close().await;
}

/// Records that are there now or very soon.
async fn soon(member: &mut dyn Subscription) -> Vec<Delivery> {
    timeout(Duration::from_millis(20), member.next(100)).await.into_iter().flatten().flatten().collect()
}

/// A place from an assignment that is over moves nothing.
pub async fn an_acknowledgement_from_before_changes_nothing(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    if !features.fences_between_members {
        return;
    }
    let (topic, group) = (fresh("fenced"), fresh("group"));
    ensure(&transport, &[&topic]).await;
    publish(&transport, numbers(&topic, 0..20)).await;
    let mut member = join(&transport, &group, &[&topic]).await;
    let before: Vec<Place> = take(member.as_mut(), 20, &features).await.into_iter().map(|d| d.place).collect();
    member.close().await;
    let mut member = join(&transport, &group, &[&topic]).await;
    take(member.as_mut(), 20, &features).await;
    member.acknowledge(&before).await.expect("places of others are passed over");
    member.close().await;
    let mut member = join(&transport, &group, &[&topic]).await;
    assert_eq!(sorted(&take(member.as_mut(), 20, &features).await), numbers_as_text(0..20));
    member.close().await;
}

/// A partition that is held gives nothing, however much lies in it, and keeps no other waiting; let go, it goes
/// on where it was.
pub async fn what_is_held_waits_and_keeps_no_other_waiting(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let (slow, other, unread) = (fresh("slow"), fresh("other"), fresh("unread"));
    ensure(&transport, &[&slow, &other, &unread]).await;
    let mut member = join(&transport, &fresh("group"), &[&slow, &other]).await;
    // of one key, so that it is one partition
    let of = |topic: &str, n: i64| envelope(topic, "k", n.to_string());
    // more than is read ahead
    const MANY: i64 = 6_000;
    for from in (0..MANY).step_by(500) {
        publish(&transport, (from..from + 500).map(|n| of(&slow, n)).collect()).await;
    }
    let mut before = take(member.as_mut(), 1, &features).await;
    let held = [(slow.clone(), before[0].place.partition)];
    for n in 0..12 {
        member.hold(&[]);
        before.extend(take(member.as_mut(), 1, &features).await);
        // meanwhile its place is taken by the next one
        publish(&transport, vec![of(&unread, n)]).await;
        member.hold(&held);
        publish(&transport, vec![of(&other, n)]).await;
        let came = take(member.as_mut(), 1, &features).await;
        assert_eq!((&*came[0].place.topic, texts(&came)), (&*other, vec![n.to_string()]));
    }
    member.hold(&[]);
    before.extend(take(member.as_mut(), MANY as usize - before.len(), &features).await);
    assert_eq!(texts(&before), (0..MANY).map(|n| n.to_string()).collect::<Vec<_>>());
    member.close().await;
}
