//! Serving an outbox table that exists already: claim, publish, mark.
//!
//! Rows are locked with `FOR UPDATE SKIP LOCKED`, published, and marked in the same transaction, so
//! any number of replicas share the work without knowing of each other. It is there to bring an
//! existing service along; malote's own outbox is better in every other way. What this mode cannot do:
//!
//! * **Order.** With more than one replica, two batches of one key are published at the same time, in
//!   any order. With one replica the order is that of the time column, which is the order in which
//!   transactions began or wrote, not that in which they committed.
//! * **Throughput.** Each row is written again when it is marked, and its old version stays for
//!   vacuum; a long snapshot anywhere in the database makes that pile up.
//! * **Short transactions.** The rows stay locked, and the transaction open, while they are published.
//! * **Attributes.** Such a table has no place for trace or cause; the source is the database's name.
//!
//! At least once holds as ever: a crash between publishing and marking publishes again, under the same id.

use crate::{Postgres, Problem, name::Name, sql::Statement, store::Inner};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use malote_core::{ClaimSource, ClaimedRow, Envelope, StoreError};
use sqlx::{PgConnection, Postgres as Db, Row, postgres::PgRow};
use std::sync::Arc;
use uuid::Uuid;

/// Where things are in a table of somebody else's. All names are identifiers of `[A-Za-z0-9_]`, and are quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The table's schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// Column with the event's id; unique. An id that is not a UUID is turned into one by hashing.
    pub id: String,
    /// Column with the event's type.
    pub kind: String,
    /// Where events are published.
    pub topic: Topic,
    /// Column with the ordering key.
    pub key: String,
    /// Column with the payload: `json`, `jsonb`, text or `bytea`. PostgreSQL has re-written a `jsonb`
    /// already; what it holds is published as it says it.
    pub payload: String,
    /// Column by which rows are ordered, a time as a rule; where there is none, the order in which
    /// they lie in the table.
    pub order: Option<String>,
    /// What is done to a published row.
    pub mark: Mark,
}

/// Where the events of an adopted table are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The column holds the topic.
    Column(String),
    /// A text before what the column holds.
    Prefixed(String, String),
}

/// What is done to a published row of an adopted table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The column holds the time at which it was published, and NULL before.
    Time(String),
    /// It is deleted.
    Delete,
}

impl Layout {
    /// A table with the columns `id, aggregate_type, aggregate_id, event_type, payload, created_at,
    /// published_at`; the topic is the event's type, the key the aggregate's id.
    pub fn published_at(table: &str) -> Self {
        Self {
            schema: "public".into(),
            table: table.into(),
            id: "id".into(),
            kind: "event_type".into(),
            topic: Topic::Column("event_type".into()),
            key: "aggregate_id".into(),
            payload: "payload".into(),
            order: Some("created_at".into()),
            mark: Mark::Time("published_at".into()),
        }
    }

    /// The columns that Debezium's outbox router reads, `id, aggregatetype, aggregateid, type,
    /// payload`; the topic is `outbox.event.<aggregatetype>`, and published rows are deleted.
    pub fn debezium(table: &str) -> Self {
        Self {
            schema: "public".into(),
            table: table.into(),
            id: "id".into(),
            kind: "type".into(),
            topic: Topic::Prefixed("outbox.event.".into(), "aggregatetype".into()),
            key: "aggregateid".into(),
            payload: "payload".into(),
            order: None,
            mark: Mark::Delete,
        }
    }
}

/// An outbox table that exists already, as a source of rows to claim.
#[derive(Clone)]
pub struct Adopted {
    inner: Arc<Inner>,
    claim: Statement,
    mark: Statement,
    prefix: String,
}

/// Rows that are locked until they are marked.
pub struct Claimed {
    tx: sqlx::Transaction<'static, Db>,
    ids: Vec<String>,
}

impl Adopted {
    /// Looks at the table and gets ready.
    ///
    /// # Errors
    /// When a name is not valid, the table or a column is not there, or the payload is of another type.
    pub async fn open(store: &Postgres, layout: Layout) -> Result<Self, StoreError> {
        let inner = store.inner.clone();
        let doing = format!("adopting the table {:.60}", layout.table);
        let names = Names::of(&layout).map_err(|e| e.while_doing(doing.clone()))?;
        let shape = names.look(&inner).await.map_err(|error| inner.failed(doing.clone(), error))?;
        let (id_type, payload_type) =
            shape.ok_or_else(|| Problem::Table(layout.table.clone()).while_doing(doing.clone()))?;
        let payload =
            names.payload_as_bytes(&payload_type).ok_or_else(|| Problem::Payload(payload_type).while_doing(doing))?;
        let prefix = if let Topic::Prefixed(prefix, _) = layout.topic { prefix } else { String::new() };
        Ok(Self { inner, claim: names.claim(&id_type, &payload), mark: names.mark(&id_type), prefix })
    }

    fn envelope(&self, row: &PgRow) -> Result<Envelope, sqlx::Error> {
        let id: String = row.try_get("id")?;
        let source: String = row.try_get("source")?;
        Ok(Envelope {
            id: id.parse().unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{source}/{id}").as_bytes())),
            kind: row.try_get("kind")?,
            topic: self.prefix.clone() + row.try_get("topic")?,
            key: row.try_get("key")?,
            source,
            time: row.try_get::<DateTime<Utc>, _>("time")?,
            content_type: "application/json".into(),
            correlation_id: None,
            causation_id: None,
            trace: None,
            hop: None,
            sequence: None,
            headers: Vec::new(),
            payload: Bytes::copy_from_slice(row.try_get::<Option<&[u8]>, _>("payload")?.unwrap_or_default()),
        })
    }

    async fn lock(&self, most: u32, except: &[String]) -> Result<(Claimed, Vec<ClaimedRow>), sqlx::Error> {
        let mut tx = self.inner.begin().await?;
        let rows = self.claim.query().bind(i64::from(most)).bind(except).fetch_all(&mut *tx).await?;
        let named = |row: &PgRow| Ok((row.try_get("id")?, self.envelope(row)?));
        let rows = rows.iter().map(named).collect::<Result<Vec<ClaimedRow>, sqlx::Error>>()?;
        let ids = rows.iter().map(|(id, _)| id.clone()).collect();
        Ok((Claimed { tx, ids }, rows))
    }
}

impl ClaimSource for Adopted {
    type Claimed = Claimed;

    async fn claim(&self, most: u32, except: &[String]) -> Result<(Claimed, Vec<ClaimedRow>), StoreError> {
        self.lock(most, except).await.map_err(|error| self.inner.failed("claiming rows of an adopted table", error))
    }

    async fn mark(&self, mut claimed: Claimed, published: &[usize]) -> Result<(), StoreError> {
        let ids: Vec<String> = published.iter().filter_map(|at| claimed.ids.get(*at).cloned()).collect();
        let mark = async {
            if !ids.is_empty() {
                self.mark.query().bind(ids).execute(&mut *claimed.tx).await?;
            }
            claimed.tx.commit().await
        };
        mark.await.map_err(|error| self.inner.failed("marking rows of an adopted table", error))
    }

    /// Whoever writes to the table does not say so: polling has to do.
    async fn woken(&self) {
        std::future::pending().await
    }
}

/// The names of a layout, checked, and quoted for a statement.
struct Names {
    schema: Name,
    table: Name,
    id: Name,
    kind: Name,
    topic: Name,
    key: Name,
    payload: Name,
    order: Option<Name>,
    mark: Option<Name>,
}

impl Names {
    fn of(layout: &Layout) -> Result<Self, Problem> {
        let column = |name: &str| Name::new("the column", name);
        let (Topic::Column(topic) | Topic::Prefixed(_, topic)) = &layout.topic;
        Ok(Self {
            schema: Name::new("the schema", &layout.schema)?,
            table: Name::new("the table", &layout.table)?,
            id: column(&layout.id)?,
            kind: column(&layout.kind)?,
            topic: column(topic)?,
            key: column(&layout.key)?,
            payload: column(&layout.payload)?,
            order: layout.order.as_deref().map(column).transpose()?,
            mark: if let Mark::Time(name) = &layout.mark { Some(column(name)?) } else { None },
        })
    }

    fn from(&self) -> String {
        format!("{}.{}", self.schema.quoted(), self.table.quoted())
    }

    /// The types of id and payload; `None` where something is missing.
    async fn look(&self, inner: &Inner) -> Result<Option<(String, String)>, sqlx::Error> {
        let mut session = inner.session().await?;
        let columns = self.columns(&mut session).await?;
        session.done().await?;
        let kind =
            |name: &Name| columns.iter().find(|(column, _)| column == name.as_str()).map(|(_, kind)| kind.clone());
        let all = [&self.id, &self.kind, &self.topic, &self.key, &self.payload].into_iter();
        let complete = all.chain(&self.order).chain(&self.mark).all(|name| kind(name).is_some());
        Ok(if complete { kind(&self.id).zip(kind(&self.payload)) } else { None })
    }

    async fn columns(&self, connection: &mut PgConnection) -> Result<Vec<(String, String)>, sqlx::Error> {
        let query = sqlx::query_as(include_str!("../sql/columns.sql")).bind(self.schema.as_str());
        query.bind(self.table.as_str()).fetch_all(connection).await
    }

    /// An expression for the payload's bytes.
    fn payload_as_bytes(&self, kind: &str) -> Option<String> {
        let column = self.payload.quoted();
        match kind {
            "bytea" => Some(column),
            "json" | "jsonb" | "text" | "character varying" => Some(format!("convert_to({column}::text, 'UTF8')")),
            _ => None,
        }
    }

    fn claim(&self, id_type: &str, payload: &str) -> Statement {
        let (id, time) = (self.id.quoted(), self.order.as_ref().map(Name::quoted));
        let waiting = self.mark.as_ref().map_or(String::new(), |mark| format!("AND {} IS NULL", mark.quoted()));
        let order = time.clone().unwrap_or_else(|| "ctid".into());
        let now = "clock_timestamp()".to_owned();
        let words = [
            ("ID", id),
            ("TYPE", id_type.to_owned()),
            ("KIND", self.kind.quoted()),
            ("TOPIC", self.topic.quoted()),
            ("KEY", self.key.quoted()),
            ("BYTES", payload.to_owned()),
            ("TIME", time.unwrap_or(now)),
            ("TABLE", self.from()),
            ("WAITING", waiting),
            ("ORDER", order),
        ];
        Statement::of(include_str!("../sql/claim_rows.sql"), &words)
    }

    fn mark(&self, id_type: &str) -> Statement {
        let words = [("TABLE", self.from()), ("ID", self.id.quoted()), ("TYPE", id_type.to_owned())];
        let Some(mark) = &self.mark else { return Statement::of(include_str!("../sql/delete_rows.sql"), &words) };
        let words = words.into_iter().chain([("MARK", mark.quoted())]).collect::<Vec<_>>();
        Statement::of(include_str!("../sql/mark_rows.sql"), &words)
    }
}
