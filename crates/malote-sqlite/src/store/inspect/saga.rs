//! Sagas, for people. What they ask to be done is written down here, and done by a coordinator of the service.

use super::super::{
    Sqlite, failed,
    saga::{stored, word},
};
use super::list::time;
use malote_core::{
    Class, StoreError,
    inspect::Act,
    saga::{
        Deed, DeedOutcome, Entry, LegId, LogRow, OpenDeed, Outline, SagaCount, SagaFilter, SagaRow, SagaVersion,
        Status, Stored,
    },
};
use serde_json::json;
use sqlx::{Row, SqliteConnection, query, sqlite::SqliteRow};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Sagas under way are counted up to here.
const COUNTED: i64 = 100_000;
/// Final ones, which nobody waits for, up to here.
const COUNTED_ENDED: i64 = 10_000;

pub(super) async fn sagas(store: &Sqlite, filter: &SagaFilter, most: u32) -> Result<Vec<SagaRow>, StoreError> {
    let doing = "listing sagas";
    let rows = query(include_str!("../../../sql/list_sagas.sql"))
        .bind(&filter.definition)
        .bind(filter.version)
        .bind(names(filter.wanted()))
        .bind(filter.older_than.map(super::super::relay::millis))
        .bind(&filter.step)
        .bind(most)
        .fetch_all(&store.0.readers)
        .await
        .map_err(failed(doing))?;
    rows.iter().map(saga_row).collect::<Result<_, _>>().map_err(failed(doing))
}

fn saga_row(row: &SqliteRow) -> Result<SagaRow, sqlx::Error> {
    Ok(SagaRow {
        id: id(row, "id")?.unwrap_or_default(),
        definition: row.try_get("definition")?,
        version: row.try_get("version")?,
        status: word(row, "status")?,
        reason: row.try_get("reason")?,
        steps: serde_json::from_str(row.try_get("steps")?).map_err(|error| sqlx::Error::Decode(error.into()))?,
        started_at: time(row, "started_at")?,
        changed_at: time(row, "changed_at")?,
    })
}

fn id(row: &SqliteRow, column: &str) -> Result<Option<Uuid>, sqlx::Error> {
    let id: Option<String> = row.try_get(column)?;
    id.map(|id| id.parse()).transpose().map_err(|error: uuid::Error| sqlx::Error::Decode(error.into()))
}

fn names(statuses: impl IntoIterator<Item = Status>) -> String {
    json!(statuses.into_iter().map(Status::as_str).collect::<Vec<_>>()).to_string()
}

pub(super) async fn ids(store: &Sqlite, first: Uuid, last: Uuid, most: u32) -> Result<Vec<Uuid>, StoreError> {
    let doing = "finding sagas";
    let rows = query(include_str!("../../../sql/find_sagas.sql")).bind(first.to_string()).bind(last.to_string());
    let rows = rows.bind(most).fetch_all(&store.0.readers).await.map_err(failed(doing))?;
    let each = rows.iter().map(|row| Ok(id(row, "id")?.unwrap_or_default()));
    each.collect::<Result<_, _>>().map_err(failed(doing))
}

pub(super) async fn saga(store: &Sqlite, id: Uuid) -> Result<Option<Stored>, StoreError> {
    stored(&mut *store.reader("reading a saga").await?, id).await
}

pub(super) async fn log(store: &Sqlite, id: Uuid) -> Result<Vec<LogRow>, StoreError> {
    let doing = "reading the history of a saga";
    let rows = query(include_str!("../../../sql/list_saga_log.sql")).bind(id.to_string());
    let rows = rows.fetch_all(&store.0.readers).await.map_err(failed(doing))?;
    rows.iter().map(log_row).collect::<Result<_, _>>().map_err(failed(doing))
}

fn log_row(row: &SqliteRow) -> Result<LogRow, sqlx::Error> {
    let direction: Option<String> = row.try_get("direction")?;
    Ok(LogRow {
        at: time(row, "at")?,
        trace: row.try_get("trace")?,
        entry: Entry {
            n: row.try_get::<i64, _>("n")?.cast_unsigned(),
            what: word(row, "what")?,
            leg: row.try_get::<Option<String>, _>("leg")?.map(LegId::from),
            direction: direction.map(|_| word(row, "direction")).transpose()?,
            attempt: row.try_get("attempt")?,
            envelope: id(row, "envelope")?,
            reason: row.try_get("reason")?,
            actor: row.try_get("actor")?,
        },
    })
}

pub(super) async fn definitions(store: &Sqlite) -> Result<Vec<Outline>, StoreError> {
    let doing = "listing definitions of sagas";
    let outlines = sqlx::query_scalar(include_str!("../../../sql/list_saga_definitions.sql"));
    let outlines: Vec<String> = outlines.fetch_all(&store.0.readers).await.map_err(failed(doing))?;
    let read = |text: &String| serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()));
    outlines.iter().map(read).collect::<Result<_, _>>().map_err(failed(doing))
}

pub(super) async fn ask(store: &Sqlite, act: &Act, saga: Uuid, deed: &Deed) -> Result<i64, StoreError> {
    let doing = || format!("asking to {} saga {saga}", deed.as_str());
    act.check(&doing())?;
    let text = serde_json::to_string(deed).map_err(|error| sqlx::Error::Encode(error.into()));
    let mut tx = store.lock().await?;
    let asked: Option<i64> = sqlx::query_scalar(include_str!("../../../sql/ask_deed.sql"))
        .bind(saga.to_string())
        .bind(text.map_err(failed(doing()))?)
        .bind(&act.actor)
        .bind(malote_core::cut_reason(&act.reason))
        .fetch_optional(&mut *tx)
        .await
        .map_err(failed(doing()))?;
    let Some(number) = asked else {
        let source = "there is no such saga; one that ended long ago is removed".into();
        return Err(StoreError { doing: doing(), class: Class::Final, source });
    };
    tx.commit(&doing(), || ()).await?;
    Ok(number)
}

pub(super) async fn open_deeds(store: &Sqlite, saga: Uuid) -> Result<Vec<OpenDeed>, StoreError> {
    let doing = "listing acts on a saga";
    let rows = query(include_str!("../../../sql/list_open_acts.sql")).bind(saga.to_string());
    let rows = rows.fetch_all(&store.0.readers).await.map_err(failed(doing))?;
    let open = |row: &SqliteRow| {
        let deed: String = row.try_get("deed")?;
        Ok(OpenDeed {
            number: row.try_get("id")?,
            asked_at: time(row, "asked_at")?,
            act: Act { actor: row.try_get("actor")?, reason: row.try_get("reason")? },
            deed: serde_json::from_str(&deed).map_err(|error| sqlx::Error::Decode(error.into()))?,
        })
    };
    rows.iter().map(open).collect::<Result<_, _>>().map_err(failed(doing))
}

pub(super) async fn outcome(store: &Sqlite, number: i64) -> Result<Option<DeedOutcome>, StoreError> {
    let doing = "asking what came of an act";
    let row = query(include_str!("../../../sql/deed_outcome.sql")).bind(number);
    let row = row.fetch_optional(&store.0.readers).await.map_err(failed(doing))?;
    let outcome = |row: SqliteRow| Ok(DeedOutcome { denied: row.try_get("denied")?, says: row.try_get("outcome")? });
    row.map(outcome).transpose().map_err(failed(doing))
}

/// How many are how far, by definition, version and status.
pub(super) async fn counts(reader: &mut SqliteConnection) -> Result<Vec<SagaCount>, sqlx::Error> {
    let mut all = counted(reader, false, COUNTED).await?;
    all.extend(counted(reader, true, COUNTED_ENDED).await?);
    all.sort_by(|a, b| (&a.definition, a.version, a.status).cmp(&(&b.definition, b.version, b.status)));
    Ok(all)
}

/// When a process last said that it has code for a version.
pub(super) async fn versions(reader: &mut SqliteConnection) -> Result<Vec<SagaVersion>, sqlx::Error> {
    let rows = query(include_str!("../../../sql/list_saga_versions.sql")).fetch_all(reader).await?;
    let one = |row: &SqliteRow| {
        let seen_seconds = super::status::seconds(row.try_get("age")?);
        Ok(SagaVersion { definition: row.try_get("definition")?, version: row.try_get("version")?, seen_seconds })
    };
    rows.iter().map(one).collect()
}

async fn counted(reader: &mut SqliteConnection, ended: bool, most: i64) -> Result<Vec<SagaCount>, sqlx::Error> {
    let statuses = Status::ALL.into_iter().filter(|status| status.is_final() == ended);
    let counts = query(include_str!("../../../sql/status_sagas.sql")).bind(names(statuses)).bind(most);
    let count = |row: &SqliteRow| {
        Ok(SagaCount {
            definition: row.try_get("definition")?,
            version: row.try_get("version")?,
            status: word(row, "status")?,
            count: row.try_get::<i64, _>("count")?.unsigned_abs(),
            oldest_seconds: super::status::seconds(row.try_get("age")?),
        })
    };
    counts.fetch_all(reader).await?.iter().map(count).collect()
}

/// Definitions and versions of what has not ended.
pub(in super::super) async fn sagas_under_way(store: &Sqlite) -> Result<Vec<(String, u32, u64)>, StoreError> {
    let doing = "asking which sagas are under way";
    let counts = counted(&mut *store.reader(doing).await?, false, i64::MAX).await.map_err(failed(doing))?;
    let mut all = BTreeMap::new();
    for of in counts {
        *all.entry((of.definition, of.version)).or_insert(0) += of.count;
    }
    Ok(all.into_iter().map(|((definition, version), count)| (definition, version, count)).collect())
}
