//! What a definition shows of itself, and which ones are refused.
#![allow(missing_docs)]

mod purchase;

use malote_core::saga::{
    Address, Command, CommandType, Mistake, OperationId, Outline, Saga, Status, compensation, each, step,
};
use malote_core::topology::{Flow, Reaction, Route, ServiceFlow};
use malote_core::{Event, EventType};
use malote_testkit::saga::given;
use purchase::*;
use serde::{Deserialize, Serialize};
use std::time::Duration;

fn reserve(name: &str) -> malote_core::saga::Step<Purchase, CreateOrder> {
    step(name, |p: &Purchase| CreateOrder { order: p.order.clone() })
}

fn undo() -> malote_core::saga::Compensation<Purchase, CancelOrder> {
    compensation(|p: &Purchase| CancelOrder { order: p.order.clone() })
}

/// Answered alike whether it is done or not.
#[derive(Serialize, Deserialize)]
struct Ask;
#[derive(Serialize, Deserialize)]
struct Answered;

impl Event for Ask {
    const TYPE: &'static str = "ask.v1";
    fn key(&self) -> String {
        String::new()
    }
}
impl Event for Answered {
    const TYPE: &'static str = "answer.v1";
    fn key(&self) -> String {
        String::new()
    }
}
impl std::fmt::Display for Answered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no")
    }
}
impl Command for Ask {
    type Done = Answered;
    type Refused = Answered;
}

fn mistakes(saga: Saga<Purchase>) -> Vec<Mistake> {
    saga.check().map_or_else(|bad| bad.mistakes, |()| vec![])
}

#[test]
fn a_definition_that_cannot_be_meant_is_refused_with_a_text_that_helps() {
    let saga = || Saga::named("s", 1);
    let text = |name: &str| name.to_owned();
    assert_eq!(mistakes(buy()), []);
    assert_eq!(mistakes(saga()), [Mistake::Empty]);
    assert_eq!(mistakes(saga().step(reserve("a"))), [Mistake::NoCompensation(text("a"))]);
    assert_eq!(mistakes(saga().step(reserve("a").nothing_to_undo())), []);
    assert_eq!(mistakes(saga().step(reserve("a#1").pivot())), [Mistake::Name(text("a#1"))]);
    assert_eq!(
        mistakes(saga().step(reserve("a").pivot()).step(reserve("b").pivot())),
        [Mistake::TwoPivots(text("a"), text("b"))]
    );
    assert_eq!(
        mistakes(saga().step(reserve("a").pivot()).step(reserve("b").undone_by(undo()))),
        [Mistake::CompensationAfterPivot(text("b"))]
    );
    assert_eq!(mistakes(saga().step(reserve("a").pivot()).step(reserve("a"))), [Mistake::TwoSteps(text("a"))]);
    assert_eq!(
        mistakes(saga().step(reserve("a").undone_by(undo().on_request())).step(reserve("b").pivot())),
        [Mistake::OnRequestOnly(text("a"))]
    );
    assert_eq!(
        mistakes(saga().step(reserve("a").undone_by(undo().when(|p| p.dispatched)))),
        [Mistake::NoOtherwise(text("a"))]
    );
    assert_eq!(
        mistakes(saga().step(reserve("a").undone_by(undo()).nothing_to_undo())),
        [Mistake::Contradiction(text("a"))]
    );
    assert_eq!(
        mistakes(saga().step(step("a", |_: &Purchase| Ask).nothing_to_undo())),
        [Mistake::OneAnswer(text("a"), text("answer.v1"))]
    );
    assert_eq!(
        mistakes(saga().step(reserve("a").undone_by(undo()).undone_by(undo()))),
        [Mistake::TwoUndos(text("a"), text("order.cancel.v1"))]
    );
    assert_eq!(mistakes(saga().step(reserve("a").pivot().within(Duration::ZERO))), [Mistake::NoTime(text("a"))]);
    assert!(matches!(mistakes(saga().step(reserve("a").pivot().when(|_| true)))[..], [Mistake::PivotNotOne(..)]));
    let parts = each("a", |_: &Purchase| vec![], |p, _| CreateOrder { order: p.order.clone() });
    assert!(matches!(mistakes(saga().step(parts.pivot()))[..], [Mistake::PivotNotOne(..)]));
    let shown = saga().step(reserve("a")).check().unwrap_err().to_string();
    assert!(shown.contains("add .compensate(…), or say .nothing_to_undo()"), "{shown}");
}

#[test]
fn the_step_table_says_of_each_step_what_ends_it_and_what_happens_when_it_cannot_go_on() {
    let table = buy().outline().table();
    for row in [
        "| create order | compensatable | `order.create.v1` | `order.created.v1` | – | `order.cancel.v1` | local |",
        "| reserve stock (for each) | compensatable | `stock.reserve.v1` | `stock.reserved.v1` | `stock.refused.v1` \
         | `stock.release.v1` | 30s: undo it and what came before |",
        "| wrap gift (unless left out) | compensatable | `gift.wrap.v1` | `gift.wrapped.v1` | `gift.refused.v1` \
         | – | 30s: undo it and what came before |",
        "| capture payment | pivot | `payment.capture.v1` | `payment.captured.v1` | `payment.capture-refused.v1` \
         | `payment.refund.v1` on request | 60s, asked up to 20 times: stuck |",
        "| request delivery | retriable | `shipment.request.v1` | `shipment.requested.v1` | `shipment.refused.v1` \
         | `shipment.cancel.v1` on request where it applies, else `shipment.return.v1` on request \
         | 30s, asked up to 20 times: stuck |",
    ] {
        assert!(table.contains(row), "{row}\nis not in\n{table}");
    }
    let outline: Outline = serde_json::from_str(&serde_json::to_string(&buy().outline()).unwrap()).unwrap();
    assert_eq!(outline, buy().outline());
}

#[test]
fn a_run_is_drawn_with_the_steps_to_come() {
    let saga = buy();
    let mut story = given(&saga, gift());
    story.when::<CreateOrder>(Ok(OrderCreated { order: "o1".into() }));
    story.when_part::<ReserveStock>("porto", Ok(StockReserved { order: "o1".into(), reservation: "r".into() }));
    let text = saga.outline().text_of(story.instance());
    let expected = "\
  ✓ create order         done
  … reserve stock#braga  asked
  ✓ reserve stock#porto  done
  … wrap gift            asked
  · authorise payment    waiting
  · capture payment      waiting
  · confirm order        waiting
  · request delivery     waiting
";
    assert!(text.ends_with(expected), "{text}");
    let picture = saga.outline().mermaid_of(story.instance());
    for line in ["s1[\"reserve stock<br/>stock.reserve.v1<br/>asked<br/>done\"]", "s0 --> s1", "class s1 pending"] {
        assert!(picture.contains(line), "{line}\nis not in\n{picture}");
    }
    assert!(saga.outline().mermaid().contains("s4 -.->|\"on request\"| s4u0[\"payment.refund.v1\"]"));
    assert_eq!(story.instance().status, Status::Running);
}

/// A service that obeys commands.
fn participant(name: &str, commands: Vec<CommandType>) -> ServiceFlow {
    let route = |types: CommandType| Route {
        emits: types.answers().cloned().collect(),
        consumes: types.command,
        by: Reaction::Handler,
    };
    ServiceFlow { name: name.into(), routes: commands.into_iter().map(route).collect(), ..ServiceFlow::default() }
}

fn of<C: Command>() -> CommandType {
    CommandType::of::<C>()
}

#[test]
fn a_saga_is_on_the_map_and_a_command_that_nobody_handles_is_found() {
    let saga = buy();
    let order =
        ServiceFlow { name: "order".into(), routes: saga.routes(), emits: saga.first(), ..ServiceFlow::default() };
    let names = |types: &[EventType]| types.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&saga.first()), ["stock.reserve.v1", "gift.wrap.v1", "payment.authorise.v1"]);
    let whole = |shipping: Vec<CommandType>| Flow {
        services: vec![
            order.clone(),
            participant("inventory", vec![of::<ReserveStock>(), of::<ReleaseStock>(), of::<WrapGift>()]),
            participant(
                "billing",
                vec![
                    of::<AuthorisePayment>(),
                    of::<VoidAuthorisation>(),
                    of::<CapturePayment>(),
                    of::<RefundPayment>(),
                ],
            ),
            participant("shipping", shipping),
        ],
    };
    let flow = whole(vec![of::<RequestShipment>(), of::<CancelShipment>(), of::<RequestReturn>()]);
    assert_eq!(flow.check(), [], "{}", flow.text());
    let lacking = whole(vec![of::<RequestShipment>(), of::<CancelShipment>()]);
    let found: Vec<_> = lacking.check().iter().map(ToString::to_string).collect();
    assert!(found[0].starts_with("order emits shipment.return.v1, and nobody consumes it"), "{found:#?}");
}

#[test]
fn an_address_travels_in_the_attributes_of_an_envelope() {
    use malote_core::{Clock, Sealer};
    struct Still;
    impl Clock for Still {
        fn now(&self) -> chrono::DateTime<chrono::Utc> {
            chrono::DateTime::UNIX_EPOCH
        }
        fn new_id(&self) -> uuid::Uuid {
            uuid::Uuid::nil()
        }
    }
    let operation: OperationId = format!("{}:undo:2:reserve stock#porto", uuid::Uuid::from_u128(9)).parse().unwrap();
    let undoes = Some(OperationId { direction: malote_core::saga::Direction::Do, ..operation.clone() });
    let address = Address { definition: "purchase".into(), version: 3, operation, undoes };
    let message = malote_core::Message::of(&ReleaseStock { order: "o1".into(), warehouse: "porto".into() }).unwrap();
    let mut envelope = Sealer::new("order", std::sync::Arc::new(Still)).seal(message).unwrap();
    assert_eq!(Address::of(&envelope), Ok(None));
    envelope.headers = address.headers();
    assert_eq!(Address::of(&envelope), Ok(Some(address)));
    for n in 0..4 {
        let mut broken = envelope.clone();
        broken.headers[n].1 = "?".into();
        assert_eq!(Address::of(&broken).is_err(), n > 0, "{:?}", broken.headers[n]);
    }
}
