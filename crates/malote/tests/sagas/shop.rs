//! A small purchase over three services, each of which can be told how to behave.
#![allow(missing_docs)]

use crate::common::*;
use malote::{
    Event, Failure, IdempotencyKey, Outbox, Outcome, Runtime, Service, Transaction, Transport,
    retry::Policy,
    saga::{Addressed, Answer, Command, Instance, Never, Saga, Sagas, Status, Stored, step},
    with,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use uuid::Uuid;

/// A message about an order; `note` says what it has to say.
macro_rules! messages {
    ($($name:ident = $kind:literal on $topic:literal),+ $(,)?) => { $(
        #[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
        pub struct $name { pub order: Uuid, #[serde(default)] pub note: String }
        impl Event for $name {
            const TYPE: &'static str = $kind;
            fn topic() -> &'static str { $topic }
            fn key(&self) -> String { self.order.to_string() }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.note) }
        }
        impl From<Uuid> for $name {
            fn from(order: Uuid) -> Self { Self { order, note: String::new() } }
        }
    )+ };
}

messages!(
    Open = "order.open.v1" on "shop.local",
    Opened = "order.opened.v1" on "shop.local",
    Cancel = "order.cancel.v1" on "shop.local",
    Cancelled = "order.cancelled.v1" on "shop.local",
    Reserve = "stock.reserve.v1" on "stock.commands",
    Reserved = "stock.reserved.v1" on "shop.replies",
    NoStock = "stock.refused.v1" on "shop.replies",
    Release = "stock.release.v1" on "stock.commands",
    Released = "stock.released.v1" on "shop.replies",
    NotReleased = "stock.not-released.v1" on "shop.replies",
    Charge = "card.charge.v1" on "card.commands",
    Charged = "card.charged.v1" on "shop.replies",
    Declined = "card.declined.v1" on "shop.replies",
);

macro_rules! commands {
    ($($name:ident -> $done:ident | $refused:ident),+ $(,)?) => { $(
        impl Command for $name { type Done = $done; type Refused = $refused; }
    )+ };
}

commands!(
    Open -> Opened | Never,
    Cancel -> Cancelled | Never,
    Reserve -> Reserved | NoStock,
    Release -> Released | NotReleased,
    Charge -> Charged | Declined,
);

/// What the saga knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Order {
    pub id: Uuid,
    #[serde(default)]
    pub charged: bool,
}

/// How patient the saga is.
#[derive(Clone, Copy)]
pub struct Patience {
    pub reserve: Duration,
    pub charge: Policy,
    pub undo: Policy,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            reserve: LONG,
            charge: Policy::default().deadline(LONG),
            undo: Policy::default()
                .attempts(3)
                .backoff(Duration::from_millis(5), Duration::from_millis(20))
                .deadline(LONG),
        }
    }
}

pub fn purchase(version: u32, patience: Patience) -> Saga<Order> {
    let saga = Saga::named("purchase", version)
        .step(
            step("open order", |o: &Order| Open::from(o.id))
                .local()
                .undone_by(malote::saga::compensation(|o: &Order| Cancel::from(o.id)).local()),
        )
        .step(
            step("reserve stock", |o: &Order| Reserve::from(o.id)).within(patience.reserve).undone_by(
                malote::saga::compensation(|o: &Order| Release::from(o.id))
                    .retry(patience.undo)
                    .within(patience.undo.deadline),
            ),
        );
    match version {
        1 => saga,
        // the second version has one step more
        _ => saga
            .step(step("look again", |o: &Order| Open { order: o.id, note: "again".into() }).local().nothing_to_undo()),
    }
    .step(
        step("charge card", |o: &Order| Charge::from(o.id))
            .retry(patience.charge)
            .within(patience.charge.deadline)
            .done(|o, _| o.charged = true)
            .pivot(),
    )
}

/// How a participant answers; each is used once, then it says yes.
#[derive(Clone, Debug)]
pub enum How {
    No,
    /// It fails, is tried again, and in the end given up.
    Final,
    /// It says yes when it is let go.
    Held(Arc<tokio::sync::Semaphore>),
}

/// What the participants do, and what they did.
#[derive(Clone, Default)]
pub struct Shop {
    how: Arc<Mutex<BTreeMap<&'static str, VecDeque<How>>>>,
    /// Every time a handler ran: the command's type and the order.
    pub ran: Log<(&'static str, Uuid)>,
    /// The keys of calls to the outside.
    pub calls: Log<String>,
}

impl Shop {
    pub fn will(&self, kind: &'static str, how: How) -> &Self {
        self.how.lock().unwrap().entry(kind).or_default().push_back(how);
        self
    }
    pub fn times(&self, kind: &str, order: Uuid) -> usize {
        self.ran.all().iter().filter(|(k, o)| *k == kind && *o == order).count()
    }
    async fn behave(&self, kind: &'static str, order: Uuid) -> Outcome<bool> {
        let how = self.how.lock().unwrap().get_mut(kind).and_then(VecDeque::pop_front);
        let answer = match how {
            None => Ok(true),
            Some(How::No) => Ok(false),
            Some(How::Final) => Err(Failure::reject("it cannot be done here")),
            Some(How::Held(gate)) => {
                gate.acquire().await?.forget();
                Ok(true)
            }
        };
        self.ran.add((kind, order));
        answer
    }
}

async fn open<T: Transaction>(command: Open, _: &mut T, shop: &Shop) -> Outcome<Answer<Open>> {
    shop.behave(Open::TYPE, command.order).await?;
    Ok(Ok(command.order.into()))
}

async fn cancel<T: Transaction>(command: Cancel, _: &mut T, shop: &Shop) -> Outcome<Answer<Cancel>> {
    shop.behave(Cancel::TYPE, command.order).await?;
    Ok(Ok(command.order.into()))
}

async fn reserve<T: Transaction>(command: Reserve, _: &mut T, shop: &Shop) -> Outcome<Answer<Reserve>> {
    Ok(match shop.behave(Reserve::TYPE, command.order).await? {
        true => Ok(command.order.into()),
        false => Err(NoStock { order: command.order, note: "none left".into() }),
    })
}

async fn release<T: Transaction>(asked: Addressed<Release>, _: &mut T, shop: &Shop) -> Outcome<Answer<Release>> {
    let order = asked.command.order;
    let undoes = asked.address.and_then(|address| address.undoes);
    assert!(undoes.is_some_and(|operation| operation.saga == order), "a compensation knows what it undoes");
    Ok(match shop.behave(Release::TYPE, order).await? {
        true => Ok(order.into()),
        false => Err(NotReleased { order, note: "the door is shut".into() }),
    })
}

async fn charge(command: Charge, key: IdempotencyKey, shop: &Shop) -> Outcome<(Uuid, bool)> {
    shop.calls.add(key.0);
    Ok((command.order, shop.behave(Charge::TYPE, command.order).await?))
}

async fn charged<T: Transaction>((order, yes): (Uuid, bool), _: &mut T) -> Outcome<Answer<Charge>> {
    Ok(if yes { Ok(order.into()) } else { Err(Declined { order, note: "no money".into() }) })
}

/// The shop's databases and what they run on.
pub struct Place<S: TestStore> {
    pub order: S,
    pub stock: S,
    pub card: S,
    pub log: Arc<dyn Transport>,
    pub shop: Shop,
}

/// How participants try again: soon, and not often.
fn quick() -> Policy {
    Policy::default().attempts(2).backoff(Duration::from_millis(5), Duration::from_millis(20)).deadline(2 * LONG)
}

impl<S: TestStore> Place<S> {
    pub async fn fresh() -> Option<Self> {
        let (order, stock, card) = (S::fresh("order").await?, S::fresh("stock").await?, S::fresh("card").await?);
        Some(Self { order, stock, card, log: log().await, shop: Shop::default() })
    }

    pub fn sagas(&self, definitions: impl IntoIterator<Item = Saga<Order>>) -> Sagas<S> {
        let sagas = Sagas::new("order", self.order.clone())
            .local(with(self.shop.clone(), open::<S::Tx>))
            .local(with(self.shop.clone(), cancel::<S::Tx>));
        definitions.into_iter().fold(sagas, Sagas::define)
    }

    pub fn coordinator(&self, sagas: &Sagas<S>) -> Service<S> {
        Service::new("order", self.order.clone(), self.log.clone()).sagas(sagas.clone())
    }

    pub fn participants(&self) -> Runtime {
        let stock = Service::new("stock", self.stock.clone(), self.log.clone())
            .command(with(self.shop.clone(), reserve::<S::Tx>))
            .command(with(self.shop.clone(), release::<S::Tx>))
            .retry(quick());
        let card = Service::new("card", self.card.clone(), self.log.clone())
            .command_effect(with(self.shop.clone(), charge), charged::<S::Tx>)
            .retry(quick());
        Runtime::new().with(stock).with(card)
    }

    /// All of it in one process.
    pub async fn open(&self, patience: Patience) -> (Running, Sagas<S>) {
        let sagas = self.sagas([purchase(1, patience)]);
        (start(self.participants().with(self.coordinator(&sagas))).await, sagas)
    }

    pub async fn buy(&self, sagas: &Sagas<S>) -> Uuid {
        let id = Uuid::now_v7();
        assert!(self.begin(sagas, id).await);
        id
    }

    pub async fn begin(&self, sagas: &Sagas<S>, id: Uuid) -> bool {
        let outbox = Outbox::new("order", self.order.clone());
        let mut tx = outbox.begin().await.unwrap();
        let new = sagas.start(&mut tx, "purchase", id, &Order { id, charged: false }).await.unwrap();
        tx.commit().await.unwrap();
        new
    }
}

/// Waits until a saga is so.
pub async fn until<S: TestStore>(sagas: &Sagas<S>, id: Uuid, what: impl Fn(&Stored) -> bool) -> Instance<Order> {
    let end = std::time::Instant::now() + LONG;
    loop {
        let found = sagas.find(id).await.unwrap();
        if let Some(saga) = found.as_ref().filter(|saga| what(saga)) {
            return saga.clone().into_typed().unwrap();
        }
        assert!(std::time::Instant::now() < end, "did not come to it: {found:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
    }
}

pub async fn ended<S: TestStore>(sagas: &Sagas<S>, id: Uuid, status: Status) -> Instance<Order> {
    let saga = until(sagas, id, |saga| saga.status.is_final() || saga.status == Status::Stuck).await;
    assert_eq!(saga.status, status, "{saga:#?}");
    saga
}

pub fn step_of<'i>(saga: &'i Instance<Order>, name: &str) -> &'i str {
    saga.legs.iter().find(|leg| leg.id.to_string() == name).map_or("waiting", |leg| leg.state.as_str())
}
