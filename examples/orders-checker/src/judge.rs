//! Everything that must hold when all is quiet.

use crate::{
    Asked, Books, Faults, Lines, Topics,
    books::{Authorisation, Saga},
    path::{follow, said},
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is wrong, in words; empty when all is well.
pub fn judge(asked: &Asked, books: &Books, topics: &Topics) -> Vec<String> {
    let mut faults = Faults::default();
    accepted(asked, books, &mut faults);
    stock(asked, books, &mut faults);
    for (id, saga) in &books.sagas {
        outcome(id, saga, books, &mut faults);
        history(id, saga, books, topics, &mut faults);
    }
    provider(books, &mut faults);
    events(books, topics, &mut faults);
    for (order, what) in &books.left {
        let stuck = books.sagas.get(order).is_some_and(|saga| saga.status == "stuck");
        faults.check(stuck, || format!("{what}, of {order}, which is not stuck"));
    }
    faults.0
}

/// Each key led to one order, of what was asked for, and there are no others.
fn accepted(asked: &Asked, books: &Books, faults: &mut Faults) {
    for (key, placed) in &asked.accepted {
        match books.orders.get(&placed.id) {
            Some(order) => faults.check(order.lines == placed.lines, || {
                format!("order {} is of {:?}, and {:?} was asked for", placed.id, order.lines, placed.lines)
            }),
            None => faults.check(false, || format!("order {}, accepted under key {key}, does not exist", placed.id)),
        }
    }
    let (keys, orders, sagas) = (asked.accepted.len(), books.orders.len(), books.sagas.len());
    faults.check(keys == orders && orders == sagas, || {
        format!("{keys} keys were accepted, {orders} orders and {sagas} sagas exist")
    });
}

/// Of every item there is what there was; what is set aside and sold is what reservations say; and no more
/// left the house, or was ever promised, than there was.
fn stock(asked: &Asked, books: &Books, faults: &mut Faults) {
    let of = |status: &str| sum(books.reservations.values().filter(|(its, _)| its == status).map(|(_, lines)| lines));
    let (reserved, kept) = (of("RESERVED"), of("KEPT"));
    let sent = sum(books.shipments.values().filter(|(its, _)| its != "CANCELLED").map(|(_, lines)| lines));
    for (sku, opening) in &asked.stock {
        let Some([total, available, set_aside, sold]) = books.items.get(sku) else {
            faults.check(false, || format!("item {sku} is gone"));
            continue;
        };
        let now = available + set_aside + sold;
        faults.check(*total == *opening && now == *opening, || {
            format!("of {sku} there were {opening}; now {available} + {set_aside} + {sold} = {now} of {total}")
        });
        faults.check(*available >= 0, || format!("{sku} is oversold: {available} are left"));
        let said = |lines: &Lines| lines.get(sku).copied().unwrap_or(0);
        faults.check(said(&reserved) == *set_aside && said(&kept) == *sold, || {
            let (reserved, kept) = (said(&reserved), said(&kept));
            format!("{sku}: {set_aside} set aside and {sold} sold, but reservations say {reserved} and {kept}")
        });
        faults.check(said(&sent) <= *opening, || format!("{} of {sku} are sent, there were {opening}", said(&sent)));
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Lines>) -> Lines {
    let mut sum = Lines::new();
    for (sku, quantity) in all.flatten() {
        *sum.entry(sku.clone()).or_default() += quantity;
    }
    sum
}

/// How an order ended, everywhere.
struct End<'a> {
    order: &'a str,
    reservation: &'a str,
    payment: &'a str,
    shipment: &'a str,
    notices: Vec<&'a str>,
    /// The kinds of the provider's effects, by authorisation.
    money: Vec<Vec<&'a str>>,
}

impl<'a> End<'a> {
    fn of(id: &str, books: &'a Books) -> Self {
        let first = |rows: &'a BTreeMap<String, (String, Lines)>| rows.get(id).map_or("", |row| row.0.as_str());
        let kinds = |it: &'a Authorisation| it.effects.iter().map(|[kind, ..]| kind.as_str()).collect();
        Self {
            order: books.orders.get(id).map_or("", |order| order.status.as_str()),
            reservation: first(&books.reservations),
            payment: books.payments.get(id).map_or("", |payment| payment.status.as_str()),
            shipment: first(&books.shipments),
            notices: books.notices.get(id).into_iter().flatten().map(String::as_str).collect(),
            money: books.provider.authorisations.get(id).into_iter().flatten().map(kinds).collect(),
        }
    }

    /// Nothing is held, and nothing was taken.
    fn nothing_taken(&self) -> bool {
        self.money.iter().all(|effects| effects == &["authorise", "void"])
    }
}

/// The four services, the provider and the customer agree on how an order ended.
fn outcome(id: &str, saga: &Saga, books: &Books, faults: &mut Faults) {
    let end = End::of(id, books);
    let agree = match (saga.status.as_str(), end.order) {
        ("completed", "CONFIRMED") => {
            (end.reservation, end.payment, end.shipment) == ("KEPT", "CAPTURED", "REQUESTED")
                && end.money == [["authorise", "capture"]]
                && end.notices == ["CONFIRMED"]
        }
        ("compensated", order @ ("CANCELLED" | "REJECTED")) => {
            matches!(end.reservation, "" | "RELEASED" | "EXPIRED")
                && matches!(end.payment, "" | "DECLINED" | "VOIDED")
                && end.shipment.is_empty()
                && end.nothing_taken()
                && end.notices == [order]
        }
        ("compensated", "WITHDRAWN") => {
            (end.reservation, end.payment) == ("RELEASED", "REFUNDED")
                && matches!(end.shipment, "" | "CANCELLED" | "RETURNING")
                && end.money == [["authorise", "capture", "refund"]]
                && BTreeSet::from_iter(&end.notices) == BTreeSet::from([&"CONFIRMED", &"CORRECTION"])
                && end.notices.len() == 2
        }
        ("stuck", _) => !saga.reason.is_empty() && saga.steps != "[]",
        _ => false,
    };
    faults.check(agree, || {
        let End { order, reservation, payment, shipment, notices, money } = end;
        format!(
            "the saga of order {id} is {} ({}, {}), the order {order:?}, its reservation {reservation:?}, its \
             payment {payment:?}, its parcel {shipment:?}, the customer was told {notices:?}, the provider did {money:?}",
            saga.status, saga.reason, saga.steps
        )
    });
    if let (Some((_, parcel)), Some(order)) = (books.shipments.get(id), books.orders.get(id)) {
        faults.check(*parcel == order.lines, || format!("the parcel of {id} holds {parcel:?}, not {:?}", order.lines));
    }
}

/// A history has no gaps, is a path of the definition, leads to where the saga stands, and what it tells
/// of was said and heard.
fn history(id: &str, saga: &Saga, books: &Books, topics: &Topics, faults: &mut Faults) {
    let none = Vec::new();
    let history = books.histories.get(id).unwrap_or(&none);
    faults.check(history.len() == saga.entries, || {
        format!("the history of {id} has {} lines, and should have {}", history.len(), saga.entries)
    });
    match follow(&books.outline, history) {
        Ok(end) => faults.check(end == saga.status, || {
            format!("the saga of order {id} is {}, and its history leads to {end}", saga.status)
        }),
        Err(why) => faults.check(false, || format!("the history of order {id} is no path of the definition: {why}")),
    }
    for entry in history {
        let Some(types) = said(&books.outline, entry) else { continue };
        let found = topics.first.get(&entry.envelope).map(|seen| seen.kind.as_str());
        faults.check(found.is_some_and(|kind| types.contains(&kind)), || {
            format!("line {} of {id} tells of {types:?}, and its envelope is {found:?}", entry.n)
        });
    }
    let reasoned =
        history.iter().filter(|e| ["refused", "unknown", "failed", "turned_back", "stuck"].contains(&&*e.what));
    for entry in reasoned {
        faults.check(!entry.reason.is_empty(), || format!("line {} of {id} ({}) has no reason", entry.n, entry.what));
    }
}

/// What the provider did is what billing has written down, each once, for the right amount.
fn provider(books: &Books, faults: &mut Faults) {
    let mut captured = BTreeMap::new();
    let mut refunded = BTreeMap::new();
    for (order, authorisations) in &books.provider.authorisations {
        let amount = books.orders.get(order).map(|order| order.amount);
        let holds = authorisations.iter().filter(|it| it.status != "VOIDED").count();
        faults.check(holds <= 1, || format!("{holds} authorisations hold for order {order}"));
        for it in authorisations {
            faults.check(Some(it.amount) == amount, || {
                format!("authorisation {} of order {order} is of {}, not of {amount:?}", it.id, it.amount)
            });
            for [kind, of, key] in &it.effects {
                faults
                    .check(*of == it.amount.to_string(), || format!("{kind} of {order} is of {of}, not {}", it.amount));
                let twice = match kind.as_str() {
                    "capture" => captured.insert(order, [it.id.clone(), of.clone(), key.clone()]).is_some(),
                    "refund" => refunded.insert(order, [of.clone(), key.clone()]).is_some(),
                    _ => false,
                };
                faults.check(!twice, || format!("the provider has two of {kind} for order {order}"));
            }
            let last = it.effects.last().map_or("nothing", |[kind, ..]| kind);
            let becomes =
                [("authorise", "AUTHORISED"), ("capture", "CAPTURED"), ("void", "VOIDED"), ("refund", "REFUNDED")];
            faults.check(becomes.contains(&(last, &it.status)), || {
                format!("authorisation {} is {} after {last}", it.id, it.status)
            });
        }
    }
    let stuck = |order: &str| books.sagas.get(order).is_some_and(|saga| saga.status == "stuck");
    let orders: BTreeSet<&String> = books.orders.keys().filter(|order| !stuck(order)).collect();
    for order in orders {
        let (ours, theirs) = (books.captures.get(order), captured.get(order));
        faults.check(ours == theirs, || format!("billing took {ours:?} for {order}, the provider says {theirs:?}"));
        let (ours, theirs) = (books.refunds.get(order), refunded.get(order));
        faults
            .check(ours == theirs, || format!("billing gave {ours:?} back for {order}, the provider says {theirs:?}"));
        let Some(payment) = books.payments.get(order).filter(|payment| !payment.authorisation.is_empty()) else {
            continue;
        };
        let theirs = books.provider.authorisations.get(order).into_iter().flatten();
        let same = theirs.into_iter().find(|it| it.id == payment.authorisation);
        faults.check(same.is_some_and(|it| it.status == payment.status && it.amount == payment.amount), || {
            format!("billing has {payment:?} for {order}, the provider {same:?}")
        });
    }
}

/// What was written to an outbox and what is on the topics are the same, and a key keeps to its partition.
fn events(books: &Books, topics: &Topics, faults: &mut Faults) {
    let on_topics: BTreeSet<&String> = topics.first.keys().collect();
    let written: BTreeSet<&String> = books.outbox.iter().collect();
    let lost: Vec<_> = written.difference(&on_topics).collect();
    let phantom: Vec<_> = on_topics.difference(&written).collect();
    faults.check(lost.is_empty(), || format!("{} events were written and never published: {lost:?}", lost.len()));
    faults.check(phantom.is_empty(), || {
        format!("{} events were published and never written: {phantom:?}", phantom.len())
    });
    for (at, partitions) in &topics.partitions_of_key {
        faults.check(partitions.len() == 1, || format!("{at:?} lies in partitions {partitions:?}"));
    }
}
