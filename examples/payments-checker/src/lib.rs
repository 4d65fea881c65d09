//! Judges what the payment services left behind.
//!
//! It reads their databases with plain SQL and their topics record by record, and depends on
//! nothing that they are built with: a mistake of theirs cannot excuse itself here.

mod books;

use std::collections::{BTreeMap, BTreeSet};

pub use books::Books;
pub use topics::{Topics, read_kafka};

/// Said of a payment that has no outcome in time, which may happen to any that waits for a service
/// that was killed; it leads to nothing.
const OVERDUE: &str = "payment.overdue.v1";

/// Everything that is wrong, in words; empty when all is well. `accepted` are the ids of the payments
/// whose acceptance a client has seen, each with the key it was sent under.
pub fn judge(accepted: &BTreeMap<String, String>, books: &Books, topics: &Topics) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    for (key, id) in accepted {
        check(books.payments.contains_key(id), format!("payment {id}, accepted under key {key}, does not exist"));
    }
    check(
        books.payments.len() == accepted.len(),
        format!("{} keys were accepted, {} payments exist", accepted.len(), books.payments.len()),
    );
    for (id, status) in &books.payments {
        let approved = books.decisions.get(id);
        let entries = books.entries.get(id).map_or(&[][..], Vec::as_slice);
        let expected = match (status.as_str(), approved) {
            ("SETTLED", Some(true)) => 2,
            ("FAILED", Some(true)) | ("REJECTED", Some(false)) => 0,
            _ => {
                check(false, format!("payment {id} is {status}, fraud said {approved:?}"));
                continue;
            }
        };
        check(entries.len() == expected, format!("payment {id} is {status} and has {} entries", entries.len()));
        check(entries.iter().sum::<i64>() == 0, format!("the entries of payment {id} do not sum to zero: {entries:?}"));
        let notices = books.notices.get(id).copied().unwrap_or(0);
        check(notices == 1, format!("payment {id} is {status} and has {notices} notifications"));
    }
    check(books.refused == 0, format!("{} payments were told a second outcome", books.refused));
    for (name, [opening, balance, moved]) in &books.accounts {
        check(opening + moved == *balance, format!("account {name}: {opening} and {moved} do not make {balance}"));
    }
    let sums = |at: usize| books.accounts.values().map(|a| a[at]).sum::<i64>();
    check(sums(0) == sums(1), format!("money was made or lost: {} became {}", sums(0), sums(1)));
    check(books.dead.is_empty(), format!("set aside: {:?}", books.dead));
    events(books, topics, &mut check);
    wrong
}

/// What was written to an outbox and what is on the topics are the same, each once after removing
/// duplicates, and the events of a payment lead to each other.
fn events(books: &Books, topics: &Topics, check: &mut impl FnMut(bool, String)) {
    let on_topics: BTreeSet<&String> = topics.first.keys().collect();
    let written: BTreeSet<&String> = books.outbox.iter().collect();
    let lost: Vec<_> = written.difference(&on_topics).collect();
    let phantom: Vec<_> = on_topics.difference(&written).collect();
    check(lost.is_empty(), format!("{} events were written and never published: {lost:?}", lost.len()));
    check(phantom.is_empty(), format!("{} events were published and never written: {phantom:?}", phantom.len()));
    let mut per_payment: BTreeMap<&str, Vec<(&str, &topics::Seen)>> = BTreeMap::new();
    for (id, seen) in topics.first.iter().filter(|(_, seen)| seen.kind != OVERDUE) {
        per_payment.entry(&seen.key).or_default().push((id, seen));
    }
    for (payment, status) in &books.payments {
        let events = per_payment.get(payment.as_str()).map_or(&[][..], Vec::as_slice);
        let of = |kind: &str| events.iter().filter(|(_, seen)| seen.kind == kind).collect::<Vec<_>>();
        let chain: &[&str] = match status.as_str() {
            "SETTLED" => &["payment.received.v1", "payment.approved.v1", "payment.settled.v1"],
            "FAILED" => &["payment.received.v1", "payment.approved.v1", "payment.failed.v1"],
            _ => &["payment.received.v1", "payment.rejected.v1"],
        };
        check(events.len() == chain.len(), format!("payment {payment} is {status} after {} events", events.len()));
        let mut before: Option<&str> = None;
        for kind in chain {
            let [(id, seen)] = of(kind)[..] else {
                check(false, format!("payment {payment} is {status} and has {} events {kind}", of(kind).len()));
                break;
            };
            check(seen.cause.as_deref() == before, format!("{kind} of payment {payment} was not caused by {before:?}"));
            before = Some(id);
        }
    }
    for (at, partitions) in &topics.partitions_of_key {
        check(partitions.len() == 1, format!("{at:?} lies in partitions {partitions:?}"));
    }
}
