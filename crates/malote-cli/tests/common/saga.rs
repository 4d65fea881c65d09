//! A purchase in one service that coordinates it and obeys itself, and can be told how to behave.

use super::{Running, start};
use malote::{
    Event, FullStore, Outbox, Outcome, Runtime, Service, Transaction, Transport,
    retry::Policy,
    saga::{Answer, Command, Never, Saga, Sagas, Status, compensation, step},
    with,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use uuid::Uuid;

macro_rules! messages {
    ($($name:ident = $kind:literal on $topic:literal),+ $(,)?) => { $(
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub struct $name { pub order: Uuid, #[serde(default)] pub note: String }
        impl Event for $name {
            const TYPE: &'static str = $kind;
            fn topic() -> &'static str { $topic }
            fn key(&self) -> String { self.order.to_string() }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.note) }
        }
    )+ };
}

messages!(
    Reserve = "stock.reserve.v1" on "stock.commands",
    Reserved = "stock.reserved.v1" on "order.replies",
    NoStock = "stock.refused.v1" on "order.replies",
    Release = "stock.release.v1" on "stock.commands",
    Released = "stock.released.v1" on "order.replies",
    NotReleased = "stock.not-released.v1" on "order.replies",
    Charge = "card.charge.v1" on "card.commands",
    Charged = "card.charged.v1" on "order.replies",
    Declined = "card.declined.v1" on "order.replies",
    Send = "parcel.send.v1" on "parcel.commands",
    Sent = "parcel.sent.v1" on "order.replies",
    Look = "fraud.look.v1" on "fraud.commands",
    Looked = "fraud.looked.v1" on "order.replies",
);

macro_rules! commands {
    ($($name:ident -> $done:ident | $refused:ident),+ $(,)?) => { $(
        impl Command for $name { type Done = $done; type Refused = $refused; }
    )+ };
}

commands!(
    Reserve -> Reserved | NoStock,
    Release -> Released | NotReleased,
    Charge -> Charged | Declined,
    Send -> Sent | Never,
    Look -> Looked | Never,
);

/// What the saga knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: Uuid,
    pub card: String,
}

macro_rules! ask {
    ($name:ident) => {
        |order: &Order| $name { order: order.id, note: String::new() }
    };
}

/// The first version; the second one begins with a look that nobody here takes.
pub fn purchase(version: u32) -> Saga<Order> {
    let hour = Duration::from_secs(3600);
    let once = Policy::default().attempts(1);
    let saga = Saga::named("purchase", version);
    let saga = match version {
        1 => saga,
        _ => saga.step(step("look for fraud", ask!(Look)).within(hour).nothing_to_undo()),
    };
    saga.step(step("reserve stock", ask!(Reserve)).within(hour).undone_by(compensation(ask!(Release)).retry(once)))
        .step(step("charge card", ask!(Charge)).within(hour).pivot())
        .step(step("send parcel", ask!(Send)).within(hour))
}

/// The orders that are treated badly.
#[derive(Clone, Default)]
pub struct Bad(Arc<Mutex<BTreeSet<(&'static str, Uuid)>>>);

impl Bad {
    /// From now on a command for this order is refused.
    pub fn refuse(&self, kind: &'static str, order: Uuid) -> &Self {
        self.0.lock().expect("whole").insert((kind, order));
        self
    }
    pub fn accept(&self, kind: &'static str, order: Uuid) {
        self.0.lock().expect("whole").remove(&(kind, order));
    }
    fn answer<D, R>(&self, kind: &'static str, order: Uuid, done: D, refused: R) -> Outcome<Result<D, R>> {
        let refuses = self.0.lock().expect("whole").contains(&(kind, order));
        Ok(if refuses { Err(refused) } else { Ok(done) })
    }
}

macro_rules! obeys {
    ($handler:ident: $command:ident, $done:ident, $refused:ident, $why:literal) => {
        async fn $handler<T: Transaction>(asked: $command, _: &mut T, bad: &Bad) -> Outcome<Answer<$command>> {
            let order = asked.order;
            let done = $done { order, note: String::new() };
            bad.answer($command::TYPE, order, done, $refused { order, note: $why.into() })
        }
    };
}

obeys!(reserve: Reserve, Reserved, NoStock, "none left");
obeys!(release: Release, Released, NotReleased, "the warehouse is closed");
obeys!(charge: Charge, Charged, Declined, "the card was declined");

async fn send<T: Transaction>(asked: Send, _: &mut T) -> Outcome<Answer<Send>> {
    Ok(Ok(Sent { order: asked.order, note: String::new() }))
}

pub fn sagas<S: FullStore>(store: &S, version: u32) -> Sagas<S> {
    Sagas::new("order", store.clone()).define(purchase(version))
}

/// The service, with code for these sagas.
pub async fn order<S: FullStore>(store: &S, log: &Arc<dyn Transport>, bad: &Bad, sagas: &Sagas<S>) -> Running {
    let service = Service::new("order", store.clone(), log.clone())
        .sagas(sagas.clone())
        .command(with(bad.clone(), reserve::<S::Tx>))
        .command(with(bad.clone(), release::<S::Tx>))
        .command(with(bad.clone(), charge::<S::Tx>))
        .command(send::<S::Tx>);
    start(Runtime::new().with(service)).await
}

pub async fn buy<S: FullStore>(store: &S, sagas: &Sagas<S>, id: Uuid) {
    let mut tx = Outbox::new("order", store.clone()).begin().await.expect("begun");
    let order = Order { id, card: "card-canary".into() };
    assert!(sagas.start(&mut tx, "purchase", id, &order).await.expect("started"));
    tx.commit().await.expect("committed");
}

/// Waits until a saga is so.
pub async fn until<S: FullStore>(sagas: &Sagas<S>, id: Uuid, status: Status) {
    let end = Instant::now() + super::LONG;
    loop {
        let found = sagas.find(id).await.expect("read");
        if found.as_ref().is_some_and(|saga| saga.status == status) {
            return;
        }
        assert!(Instant::now() < end, "did not come to be {}: {found:#?}", status.as_str());
        tokio::time::sleep(Duration::from_millis(10)).await; // between two looks
    }
}
