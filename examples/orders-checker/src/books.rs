//! What the databases hold.

use crate::{
    Lines, Outline,
    db::{Db, number},
    path::Entry,
};
use std::collections::BTreeMap;

/// The services, by the names of their databases.
const SERVICES: [&str; 4] = ["order", "inventory", "billing", "shipping"];

/// Where the databases are.
#[derive(Clone, Debug)]
pub struct Places {
    /// Each service's: a path or a URL in which `{service}` stands for the service's name.
    pub services: String,
    /// The provider's: a path.
    pub provider: String,
}

impl Places {
    fn of(&self, service: &str) -> String {
        self.services.replace("{service}", service)
    }
}

/// Everything that is judged.
#[derive(Debug, Default)]
pub struct Books {
    pub(crate) outline: Outline,
    pub(crate) orders: BTreeMap<String, Order>,
    pub(crate) sagas: BTreeMap<String, Saga>,
    pub(crate) histories: BTreeMap<String, Vec<Entry>>,
    pub(crate) notices: BTreeMap<String, Vec<String>>,
    /// Each item's total, available, reserved, sold.
    pub(crate) items: BTreeMap<String, [i64; 4]>,
    /// Each order's status and lines.
    pub(crate) reservations: BTreeMap<String, (String, Lines)>,
    pub(crate) shipments: BTreeMap<String, (String, Lines)>,
    pub(crate) payments: BTreeMap<String, Payment>,
    /// Authorisation, amount and key of what was taken for an order.
    pub(crate) captures: BTreeMap<String, [String; 3]>,
    /// Amount and key of what was given back.
    pub(crate) refunds: BTreeMap<String, [String; 2]>,
    pub(crate) provider: Provider,
    /// Ids in the outboxes.
    pub(crate) outbox: Vec<String>,
    /// What was given up or still waits, with its key (the order), in words.
    pub(crate) left: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct Order {
    pub status: String,
    pub amount: i64,
    pub lines: Lines,
}

#[derive(Debug)]
pub(crate) struct Saga {
    pub status: String,
    pub reason: String,
    pub entries: usize,
    /// JSON: the steps that keep it from going on.
    pub steps: String,
}

#[derive(Debug)]
pub(crate) struct Payment {
    pub status: String,
    pub amount: i64,
    pub authorisation: String,
}

/// The provider's own book.
#[derive(Debug, Default)]
pub(crate) struct Provider {
    /// By reference: the order.
    pub authorisations: BTreeMap<String, Vec<Authorisation>>,
    /// How many effects there were.
    pub effects: usize,
    /// How many requests, all repeats included.
    pub requests: i64,
}

#[derive(Debug)]
pub(crate) struct Authorisation {
    pub id: String,
    pub amount: i64,
    pub status: String,
    /// What was done to it: kind, amount and key, in order.
    pub effects: Vec<[String; 3]>,
}

impl Books {
    /// Reads them all.
    pub async fn read(places: &Places) -> Result<Self, sqlx::Error> {
        let mut books = Self::default();
        books.read_order(&mut Db::open(&places.of("order")).await?).await?;
        books.read_inventory(&mut Db::open(&places.of("inventory")).await?).await?;
        books.read_billing(&mut Db::open(&places.of("billing")).await?).await?;
        let mut shipping = Db::open(&places.of("shipping")).await?;
        books.shipments = with_lines(&mut shipping, "shipments", "shipment_lines").await?;
        for service in SERVICES {
            books.read_malote(service, &mut Db::open(&places.of(service)).await?).await?;
        }
        books.read_provider(&mut Db::open(&places.provider).await?).await?;
        Ok(books)
    }

    /// How many sagas neither have ended nor stand still, by the service that is waited for.
    pub async fn under_way(places: &Places) -> Result<BTreeMap<String, usize>, sqlx::Error> {
        let mut db = Db::open(&places.of("order")).await?;
        let outline = outline(&mut db).await?;
        let open = "malote.saga WHERE status IN ('running', 'compensating')";
        let mut services = BTreeMap::new();
        for [steps] in db.rows(["steps"], open).await? {
            let steps: Vec<String> = serde_json::from_str(&steps).map_err(decode)?;
            let step = steps.first().map(String::as_str).unwrap_or_default();
            *services.entry(outline.service(step).to_owned()).or_default() += 1;
        }
        Ok(services)
    }

    /// What still moves, or has not been told yet, in words; nothing when all is quiet.
    pub async fn restless(places: &Places) -> Result<Vec<String>, sqlx::Error> {
        let mut moving = Vec::new();
        // in the order in which one leads to the other: what has moved on meanwhile is met further down
        let acts = count(&mut Db::open(&places.of("order")).await?, "malote.saga_act WHERE done_at IS NULL").await?;
        moving.extend((acts > 0).then(|| format!("{acts} acts are open")));
        for (service, sagas) in Self::under_way(places).await? {
            moving.push(format!("{sagas} sagas wait for {service}"));
        }
        for service in SERVICES {
            let mut db = Db::open(&places.of(service)).await?;
            for (what, from) in [
                ("messages wait", "malote.parked"),
                ("messages are scheduled", "malote.scheduled"),
                ("events are unpublished", "malote.outbox_status WHERE NOT published"),
            ] {
                let count = count(&mut db, from).await?;
                moving.extend((count > 0).then(|| format!("{count} {what} in {service}")));
            }
        }
        let mut db = Db::open(&places.of("order")).await?;
        let ended = count(&mut db, "orders WHERE status <> 'PENDING'").await?;
        let withdrawn = count(&mut db, "orders WHERE status = 'WITHDRAWN'").await?;
        let told = count(&mut db, "notices").await?;
        moving.extend((told < ended + withdrawn).then(|| format!("{} customers are told", ended + withdrawn - told)));
        Ok(moving)
    }

    /// In a line: how the sagas ended, and what the provider did.
    pub fn summary(&self) -> String {
        let mut ends: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (id, saga) in &self.sagas {
            let order = self.orders.get(id).map_or("no order", |order| order.status.as_str());
            *ends.entry((&saga.status, order)).or_default() += 1;
        }
        let ends: Vec<_> = ends.iter().map(|((saga, order), n)| format!("{n} {saga} {order}")).collect();
        let Provider { effects, requests, .. } = self.provider;
        let told = |what: &str| self.histories.values().flatten().filter(|entry| entry.what == what).count();
        let (silent, ignored) = (told("silent"), told("ignored"));
        format!(
            "{}; {silent} times silence, {ignored} answers too late; {effects} effects of {requests} requests",
            ends.join(", ")
        )
    }

    async fn read_order(&mut self, db: &mut Db) -> Result<(), sqlx::Error> {
        self.outline = outline(db).await?;
        let mut lines = lines(db, "order_lines").await?;
        for [id, status, amount] in db.rows(["id", "status", "amount"], "orders").await? {
            let lines = lines.remove(&id).unwrap_or_default();
            self.orders.insert(id, Order { status, amount: number(&amount)?, lines });
        }
        let columns = ["id", "status", "reason", "entries", "steps"];
        for [id, status, reason, entries, steps] in db.rows(columns, "malote.saga").await? {
            let entries = usize::try_from(number(&entries)?).unwrap_or_default();
            self.sagas.insert(id, Saga { status, reason, entries, steps });
        }
        let columns = ["saga", "n", "what", "leg", "direction", "attempt", "envelope", "reason", "actor"];
        for [saga, n, what, leg, direction, attempt, envelope, reason, actor] in
            db.rows(columns, "malote.saga_log ORDER BY saga, n").await?
        {
            let entry = Entry { n: number(&n)?, what, leg, direction, attempt, envelope, reason, actor };
            self.histories.entry(saga).or_default().push(entry);
        }
        for [order, about] in db.rows(["order_id", "about"], "notices ORDER BY told_at, about").await? {
            self.notices.entry(order).or_default().push(about);
        }
        Ok(())
    }

    async fn read_inventory(&mut self, db: &mut Db) -> Result<(), sqlx::Error> {
        for [sku, total, available, reserved, sold] in
            db.rows(["sku", "total", "available", "reserved", "sold"], "items").await?
        {
            let row = [number(&total)?, number(&available)?, number(&reserved)?, number(&sold)?];
            self.items.insert(sku, row);
        }
        self.reservations = with_lines(db, "reservations", "reservation_lines").await?;
        Ok(())
    }

    async fn read_billing(&mut self, db: &mut Db) -> Result<(), sqlx::Error> {
        for [order, status, amount, authorisation] in
            db.rows(["order_id", "status", "amount", "authorisation"], "payments").await?
        {
            self.payments.insert(order, Payment { status, amount: number(&amount)?, authorisation });
        }
        for [order, authorisation, amount, key] in
            db.rows(["order_id", "authorisation", "amount", "key"], "captures").await?
        {
            self.captures.insert(order, [authorisation, amount, key]);
        }
        for [order, amount, key] in db.rows(["order_id", "amount", "key"], "refunds").await? {
            self.refunds.insert(order, [amount, key]);
        }
        Ok(())
    }

    async fn read_malote(&mut self, service: &str, db: &mut Db) -> Result<(), sqlx::Error> {
        for [id] in db.rows(["id"], "malote.outbox").await? {
            self.outbox.push(id);
        }
        for [key, by, kind, reason] in db.rows(["key", "\"by\"", "type", "reason"], "malote.dead").await? {
            self.left.push((key, format!("{by} of {service} gave up {kind}: {reason}")));
        }
        for [key, consumer, kind, error] in db.rows(["key", "consumer", "type", "error"], "malote.parked").await? {
            self.left.push((key, format!("{consumer} of {service} still waits with {kind}: {error}")));
        }
        for [key, kind] in db.rows(["key", "type"], "malote.scheduled").await? {
            self.left.push((key, format!("{service} still has {kind} scheduled")));
        }
        Ok(())
    }

    async fn read_provider(&mut self, db: &mut Db) -> Result<(), sqlx::Error> {
        let mut effects: BTreeMap<String, Vec<[String; 3]>> = BTreeMap::new();
        for [authorisation, kind, amount, key] in
            db.rows(["authorisation", "kind", "amount", "key"], "effects ORDER BY n").await?
        {
            effects.entry(authorisation).or_default().push([kind, amount, key]);
            self.provider.effects += 1;
        }
        for [id, reference, amount, status] in
            db.rows(["id", "reference", "amount", "status"], "authorisations").await?
        {
            let effects = effects.remove(&id).unwrap_or_default();
            let authorisation = Authorisation { id, amount: number(&amount)?, status, effects };
            self.provider.authorisations.entry(reference).or_default().push(authorisation);
        }
        for [requests] in db.rows(["sum(times)"], "asked").await? {
            self.provider.requests = number(&requests).unwrap_or_default();
        }
        Ok(())
    }
}

fn decode(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

async fn count(db: &mut Db, from: &str) -> Result<i64, sqlx::Error> {
    let rows = db.rows(["count(*)"], from).await?;
    number(rows.first().map_or("0", |[count]| count))
}

async fn outline(db: &mut Db) -> Result<Outline, sqlx::Error> {
    let rows = db.rows(["outline"], "malote.saga_definition ORDER BY version DESC").await?;
    let [json] = rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)?;
    Outline::read(&json).map_err(decode)
}

async fn lines(db: &mut Db, table: &str) -> Result<BTreeMap<String, Lines>, sqlx::Error> {
    let mut orders: BTreeMap<String, Lines> = BTreeMap::new();
    for [order, sku, quantity] in db.rows(["order_id", "sku", "quantity"], table).await? {
        orders.entry(order).or_default().insert(sku, number(&quantity)?);
    }
    Ok(orders)
}

async fn with_lines(db: &mut Db, table: &str, of: &str) -> Result<BTreeMap<String, (String, Lines)>, sqlx::Error> {
    let mut lines = lines(db, of).await?;
    let rows = db.rows(["order_id", "status"], table).await?;
    Ok(rows
        .into_iter()
        .map(|[order, status]| {
            let lines = lines.remove(&order).unwrap_or_default();
            (order, (status, lines))
        })
        .collect())
}
