//! Faults that people met in sagas, against the one function that decides.
#![allow(missing_docs)]

mod purchase;

use malote_core::retry::Policy;
use malote_core::saga::{
    Address, Deed, Direction, Idle, Input, Instance, LegId, Machine, OperationId, Reception, Reply, Row, Saga, Status,
    Stored, Timer, Verdict, step,
};
use malote_core::{Event, Message};
use malote_testkit::saga::{Scenario, given};
use purchase::*;
use std::{collections::BTreeSet, time::Duration};
use uuid::Uuid;

fn order() -> String {
    "o1".into()
}

fn why() -> String {
    "cannot be".into()
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn reply(operation: OperationId, answer: &impl Event) -> Input {
    let Message { kind, payload, .. } = Message::of(answer).unwrap();
    Input::Reply(Reply { operation, kind, payload, envelope: None })
}

fn operation(it: &Instance<Purchase>, leg: &str, direction: Direction) -> OperationId {
    let leg = it.leg(&LegId::from(leg.to_owned())).unwrap();
    it.operation(leg, direction)
}

fn reserved(saga: &Saga<Purchase>) -> Scenario<'_, Purchase> {
    let mut story = given(saga, purchase());
    story
        .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
        .when::<ReserveStock>(Ok(StockReserved { order: order(), reservation: "r".into() }))
        .then_asks::<CreateOrder>()
        .then_asks::<ReserveStock>()
        .then_asks::<AuthorisePayment>();
    story
}

/// A row with a revision: whoever read an older one writes nothing, and looks again.
struct Table(Instance<Purchase>);

impl Table {
    fn save(&mut self, read: u64, mut changed: Instance<Purchase>) -> bool {
        let current = self.0.revision == read;
        if current {
            changed.revision += 1;
            self.0 = changed;
        }
        current
    }
}

#[test]
fn ac_053_a_saga_is_not_finished_from_a_state_that_it_has_left() {
    let saga = buy();
    for round in 0..10_000 {
        let mut story = saga.begin(Uuid::from_u128(round), purchase());
        saga.advance(&mut story, Input::Started);
        let create = operation(&story, "create order", Direction::Do);
        saga.advance(&mut story, reply(create, &OrderCreated { order: order() }));
        let mut table = Table(story);
        let answer = reply(
            operation(&table.0, "reserve stock#porto", Direction::Do),
            &StockReserved { order: order(), reservation: "r".into() },
        );
        let act = malote_core::inspect::Act { actor: "ana".into(), reason: "enough".into() };
        let abandon = Input::Act(act, Deed::Abandon);
        let mut both = [answer, abandon];
        if round % 2 == 0 {
            both.reverse();
        }
        // Both read the same row; the second one to write is refused, and decides anew.
        let read = table.0.clone();
        let ends = both.map(|input| {
            let (mut mine, before) = (read.clone(), read.revision);
            let decision = saga.advance(&mut mine, input.clone());
            if table.save(before, mine) {
                return (decision.sends.len(), decision.ended);
            }
            let (mut mine, before) = (table.0.clone(), table.0.revision);
            let decision = saga.advance(&mut mine, input);
            assert!(table.save(before, mine));
            (decision.sends.len(), decision.ended)
        });
        assert_eq!(table.0.status, Status::Abandoned);
        assert_eq!(ends.iter().filter(|(_, ended)| ended.is_some()).count(), 1, "it ends once");
        let sent = usize::from(round % 2 == 1);
        assert_eq!(ends.iter().map(|(sends, _)| sends).sum::<usize>(), sent, "nothing is sent after the end");
    }
}

#[test]
fn ac_054_success_after_the_abort_is_undone_once() {
    let saga = buy();
    let late = StockReserved { order: order(), reservation: "late".into() };
    for when in 0..4 {
        let mut story = given(&saga, gift());
        story
            .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
            .when_part::<ReserveStock>("porto", Err(StockRefused { order: order(), why: why() }))
            .then_asks::<CreateOrder>()
            .then_asks::<ReserveStock>()
            .then_asks::<ReserveStock>()
            .then_asks::<WrapGift>()
            .then_asks_that::<ReleaseStock>(|c| c.warehouse == "braga");
        if when == 0 {
            story.when_part::<ReserveStock>("braga", Ok(late.clone())).then(Status::Compensating);
        }
        story.when::<ReleaseStock>(Ok(StockReleased { order: order() })).then_asks::<CancelOrder>();
        if when == 1 {
            story.when_part::<ReserveStock>("braga", Ok(late.clone())).then(Status::Compensating);
        }
        story.when::<CancelOrder>(Ok(OrderCancelled { order: order() })).then(Status::Compensated);
        if when == 2 {
            story.when_part::<ReserveStock>("braga", Ok(late.clone())).then_ignored(Idle::Ended);
        }
        assert!(story.pass(30 * DAY).is_empty());
        story.then(Status::Compensated);
        assert_eq!(story.asked(Direction::Undo), 2, "one release, one cancellation\n{}", story.show());
    }
}

#[test]
fn ac_055_a_failing_compensation_does_not_stop_the_earlier_ones_and_the_end_tells_the_truth() {
    let saga = buy();
    // The card is declined, and the stock of one of two warehouses cannot be released.
    let mut story = given(&saga, gift());
    story.when::<CreateOrder>(Ok(OrderCreated { order: order() })).when::<WrapGift>(Ok(GiftWrapped { order: order() }));
    for part in ["braga", "porto"] {
        story.when_part::<ReserveStock>(part, Ok(StockReserved { order: order(), reservation: part.into() }));
    }
    story
        .when::<AuthorisePayment>(Err(PaymentDeclined { order: order(), why: "declined".into() }))
        .when_part::<ReleaseStock>("porto", Ok(StockReleased { order: order() }));
    while story.instance().status == Status::Compensating
        && story.instance().pending().any(|leg| leg.id.to_string() == "reserve stock#braga")
    {
        story.when_part::<ReleaseStock>("braga", Err(ReleaseRefused { order: order(), why: why() }));
        if story.instance().pending().any(|leg| leg.id.to_string() == "reserve stock#braga") {
            story.when_the_next_timer_fires();
        }
    }
    story
        .then_step("reserve stock#porto", "undone")
        .then_step("reserve stock#braga", "undo failed")
        .when::<CancelOrder>(Ok(OrderCancelled { order: order() }))
        .then_step("create order", "undone");
    let it = story.instance();
    assert_eq!(it.status, Status::Stuck);
    assert_eq!(it.open().map(|leg| leg.id.to_string()).collect::<Vec<_>>(), ["reserve stock#braga"]);
    assert!(story.show().contains("stuck"), "{}", story.show());
    assert_eq!(it.reason.as_deref(), Some("authorise payment: declined"));
}

#[test]
fn ac_057_of_a_deadline_and_a_reply_in_one_instant_exactly_one_wins() {
    let saga = buy();
    // The reply first: the deadline has fired already, and is nothing.
    let mut story = reserved(&saga);
    let (timer, _) = story.timers().remove(0);
    story
        .when::<AuthorisePayment>(Ok(PaymentAuthorised { order: order(), authorisation: "a".into() }))
        .then_asks::<CapturePayment>()
        .when_input(Input::Deadline(timer))
        .then_ignored(Idle::NotSet)
        .then(Status::Running);
    // The deadline first: the reply is late, and what it reserved is released.
    let mut story = given(&saga, purchase());
    story
        .when::<CreateOrder>(Ok(OrderCreated { order: order() }))
        .then_asks::<CreateOrder>()
        .then_asks::<ReserveStock>()
        .when_time_passes(30 * SECOND)
        .then_asks::<ReleaseStock>()
        .when::<ReserveStock>(Ok(StockReserved { order: order(), reservation: "late".into() }))
        .then(Status::Compensating);
    assert_eq!(story.asked(Direction::Do), 2);
}

/// Three timers at once: two warehouses and the gift.
fn three_timers(saga: &Saga<Purchase>) -> Scenario<'_, Purchase> {
    let mut story = given(saga, gift());
    story.when::<CreateOrder>(Ok(OrderCreated { order: order() }));
    assert_eq!(story.timers().len(), 3);
    story
}

#[test]
fn ac_058_an_answer_takes_back_its_own_timer_and_no_other() {
    let saga = buy();
    let mut story = three_timers(&saga);
    let braga = StockReserved { order: order(), reservation: "r".into() };
    let mut it = story.instance().clone();
    let answer = reply(operation(&it, "reserve stock#braga", Direction::Do), &braga);
    let decision = saga.advance(&mut it, answer);
    let cancelled: Vec<_> = decision.timers.iter().filter(|timer| matches!(timer, Timer::Cancel { .. })).collect();
    assert_eq!(cancelled, [&Timer::Cancel { name: "do:1:deadline:reserve stock#braga".into() }]);
    story.when_part::<ReserveStock>("braga", Ok(braga));
    let names: Vec<_> = story.timers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["do:1:deadline:reserve stock#porto", "do:1:deadline:wrap gift"]);
    // Each of the two fires: one turns the saga back, or both would have if there were one more.
    for name in names {
        let mut it = story.instance().clone();
        assert_eq!(saga.advance(&mut it, Input::Deadline(name)).verdict, Verdict::Acted);
        assert_eq!(it.status, Status::Compensating);
    }
}

#[test]
fn ac_059_a_deadline_that_is_short_fires_once() {
    let twice = Policy::default().attempts(2).backoff(Duration::ZERO, Duration::ZERO);
    for deadline in [Duration::from_nanos(1), Duration::from_millis(1), SECOND] {
        let saga: Saga<Purchase> = Saga::named("short", 1).step(
            step("reserve stock", |p: &Purchase| CreateOrder { order: p.order.clone() })
                .within(deadline)
                .retry(twice)
                .nothing_to_undo(),
        );
        let mut it = saga.begin(Uuid::from_u128(1), purchase());
        let mut set = saga.advance(&mut it, Input::Started).timers;
        let mut names = BTreeSet::new();
        while let Some(Timer::Set { name, .. }) = set.pop() {
            assert!(names.insert(name.clone()), "{name} was set twice");
            // The process dies after the commit, and the timer is delivered again.
            set = saga.advance(&mut it, Input::Deadline(name.clone())).timers;
            let mut restarted: Stored = it.clone().into_stored().unwrap();
            let again = saga.advance_stored(&mut restarted, Input::Deadline(name)).unwrap();
            assert_eq!((again.verdict, again.timers), (Verdict::Ignored(Idle::NotSet), vec![]));
        }
        assert_eq!(names.len(), 3, "asked, again, asked: {names:?}");
        assert_eq!(it.status, Status::Compensated);
    }
}

#[test]
fn ac_060_a_compensation_that_is_refused_is_tried_again_and_in_the_end_a_person_is_asked() {
    let saga = buy();
    for failures in [1, 5, u32::MAX] {
        let mut story = reserved(&saga);
        story
            .when::<AuthorisePayment>(Err(PaymentDeclined { order: order(), why: "declined".into() }))
            .then_asks::<ReleaseStock>();
        let mut failed = 0;
        while failed < failures && story.instance().status == Status::Compensating {
            if !story.instance().pending().any(|leg| leg.id.step == "reserve stock") {
                break;
            }
            story.when::<ReleaseStock>(Err(ReleaseRefused { order: order(), why: why() }));
            failed += 1;
            if story.instance().pending().any(|leg| leg.id.step == "reserve stock") {
                story.when_the_next_timer_fires();
            }
        }
        if failures < 20 {
            assert_eq!(story.operation::<ReleaseStock>(None).attempt, failures + 1, "each refusal ends an attempt");
            story.when::<ReleaseStock>(Ok(StockReleased { order: order() }));
            story.when::<CancelOrder>(Ok(OrderCancelled { order: order() }));
            assert_eq!(story.instance().status, Status::Compensated);
            continue;
        }
        assert_eq!(failed, Policy::default().attempts);
        story.when::<CancelOrder>(Ok(OrderCancelled { order: order() }));
        assert_eq!(story.instance().status, Status::Stuck);
        story
            .then_step("reserve stock#porto", "undo failed")
            .when_person(Deed::Skip { step: "reserve stock#porto".into(), answer: None });
        assert_eq!(story.instance().status, Status::Compensated);
    }
}

#[test]
fn ac_062_an_answer_counts_for_the_operation_that_it_answers_and_for_nothing_else() {
    let saga = buy();
    let mut story = three_timers(&saga);
    let braga = story.operation::<ReserveStock>(Some("braga"));
    let answer = StockReserved { order: order(), reservation: "braga's".into() };
    story
        .when_part::<ReserveStock>("braga", Ok(answer.clone()))
        .when_it_comes_again()
        .then_ignored(Idle::AnsweredAlready)
        .then_step("reserve stock#porto", "asked")
        .when_input(reply(OperationId { saga: Uuid::from_u128(1), ..braga.clone() }, &answer))
        .then_ignored(Idle::NotAsked)
        .when_input(reply(OperationId { leg: LegId::of("capture payment"), ..braga.clone() }, &answer))
        .then_ignored(Idle::NotAsked)
        .when_input(reply(OperationId { attempt: 0, ..braga }, &answer))
        .then_ignored(Idle::EarlierAttempt);
    assert_eq!(story.instance().state.reservations.len(), 1);
}

/// The same purchase, a version later: a step is new, one is gone, one has another name.
fn buy_newer() -> Saga<Purchase> {
    Saga::named("purchase", 2)
        .step(
            step("check address", |p: &Purchase| WrapGift { order: p.order.clone(), card: String::new() })
                .nothing_to_undo(),
        )
        .step(
            step("reserve everything", |p: &Purchase| ReserveStock {
                order: p.order.clone(),
                warehouse: "porto".into(),
                quantity: 1,
            })
            .compensate(|p| ReleaseStock { order: p.order.clone(), warehouse: "porto".into() }),
        )
        .step(
            step("capture payment", |p: &Purchase| CapturePayment { order: p.order.clone(), authorisation: None })
                .pivot(),
        )
}

/// What the participants say, for as long as there is something to say.
fn go_on(machines: &[Box<dyn Machine>], it: &mut Stored, sends: &mut Vec<malote_core::saga::Send>, most: usize) {
    for _ in 0..most {
        let Some(send) = sends.pop() else { return };
        let answer = answers().done(&send);
        let operation = send.address.operation;
        let input = Input::Reply(Reply { operation, kind: answer.kind, payload: answer.payload, envelope: None });
        for machine in machines {
            let before = it.clone();
            let decision = machine.advance_stored(it, input.clone()).unwrap();
            match machine.outline().version == it.version {
                true => sends.extend(decision.sends),
                false => assert_eq!((decision.verdict, &before), (Verdict::Ignored(Idle::NotOurs), &*it)),
            }
        }
    }
}

#[test]
fn ac_063_an_instance_ends_under_the_version_under_which_it_began() {
    let old: Vec<Box<dyn Machine>> = vec![Box::new(buy())];
    let both: Vec<Box<dyn Machine>> = vec![Box::new(buy_newer()), Box::new(buy())];
    both.iter().for_each(|machine| machine.check().unwrap());
    for n in 0..1_000 {
        let state = serde_json::to_string(&if n % 2 == 0 { purchase() } else { gift() }).unwrap();
        let mut it = old[0].begin_stored(Uuid::from_u128(n), state).unwrap();
        let mut sends = old[0].advance_stored(&mut it, Input::Started).unwrap().sends;
        go_on(&old, &mut it, &mut sends, (n % 8) as usize);
        assert!(both[0].can_take(&it).is_err(), "what to ask before a deploy");
        assert_eq!(both[1].can_take(&it), Ok(()));
        go_on(&both, &mut it, &mut sends, usize::MAX);
        assert_eq!((it.status, it.version), (Status::Completed, 1));
    }
    let address = Address {
        definition: "purchase".into(),
        version: 1,
        operation: OperationId {
            saga: Uuid::from_u128(1),
            leg: LegId::of("capture payment"),
            direction: Direction::Do,
            attempt: 1,
        },
        undoes: None,
    };
    assert_eq!(address.receive(&[2], Row::Present), Reception::Lacking, "a process without the version waits");
    assert_eq!(address.receive(&[1, 2], Row::Absent), Reception::Early);
    assert_eq!(address.receive(&[1, 2], Row::Present), Reception::Advance);
    assert_eq!(address.receive(&[1, 2], Row::Ended), Reception::Ended);
    assert_eq!(address.receive(&[], Row::Absent), Reception::NotMine);
}

#[test]
fn a_definition_that_is_changed_without_a_new_version_is_found_out() {
    let (kept, same) = (buy().outline(), buy().outline());
    assert_eq!(kept.differences(&same), Vec::<String>::new());
    assert_eq!(kept.differences(&buy_as(2).outline()), Vec::<String>::new());
    let mut changed = buy_newer().outline();
    changed.version = 1;
    let found = kept.differences(&changed);
    assert!(found.contains(&"the step \"reserve stock\" is gone".to_owned()), "{found:#?}");
    assert!(found.contains(&"the step \"check address\" is new".to_owned()), "{found:#?}");
}
