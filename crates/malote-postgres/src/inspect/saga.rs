//! Sagas, for people. What they ask to be done is written down here, and done by a coordinator of the service.

use crate::{
    Problem,
    record::text,
    saga::{loaded, unreadable, unwritable, word},
    store::{Inner, micros},
};
use malote_core::{
    StoreError, cut_reason,
    inspect::Act,
    saga::{
        Deed, DeedOutcome, Entry, LegId, Loaded, LogRow, OpenDeed, Outline, SagaCount, SagaFilter, SagaRow,
        SagaVersion, Status, Stored,
    },
};
use sqlx::{PgConnection, Row, postgres::PgRow};
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

/// Sagas under way are counted up to here.
const COUNTED: i64 = 100_000;
/// Final ones, which nobody waits for, up to here.
const COUNTED_ENDED: i64 = 10_000;

impl Inner {
    pub(super) async fn list_sagas(&self, filter: &SagaFilter, most: u32) -> Result<Vec<SagaRow>, sqlx::Error> {
        let statuses: Vec<&str> = filter.wanted().into_iter().map(Status::as_str).collect();
        let mut session = self.look_around().await?;
        let query = self.sql.list_sagas.query().bind(filter.definition.as_deref().map(text));
        let query = query.bind(filter.version.map(i64::from)).bind(statuses);
        let query = query.bind(micros(filter.older_than.unwrap_or(Duration::ZERO)));
        let query = query.bind(filter.step.as_deref().map(text)).bind(i64::from(most));
        let rows = query.fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(saga_row).collect()
    }

    pub(super) async fn find_sagas(&self, first: Uuid, last: Uuid, most: u32) -> Result<Vec<Uuid>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let query = self.sql.find_sagas.query().bind(first).bind(last).bind(i64::from(most));
        let rows = query.fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(|row| row.try_get("id")).collect()
    }

    pub(super) async fn show_saga(&self, id: Uuid) -> Result<Option<Stored>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let row = self.sql.show_saga.query().bind(id).fetch_optional(&mut *session).await?;
        session.done().await?;
        match row.map(|row| loaded(&row)).transpose()? {
            Some(Loaded::Present(instance)) => Ok(Some(*instance)),
            _ => Ok(None),
        }
    }

    pub(super) async fn list_saga_log(&self, id: Uuid) -> Result<Vec<LogRow>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = self.sql.list_saga_log.query().bind(id).fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(log_row).collect()
    }

    pub(super) async fn list_saga_definitions(&self) -> Result<Vec<Outline>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = self.sql.list_saga_definitions.query().fetch_all(&mut *session).await?;
        session.done().await?;
        rows.iter().map(|row| serde_json::from_str(row.try_get("outline")?).map_err(unreadable)).collect()
    }

    pub(super) async fn ask_deed(&self, act: &Act, saga: Uuid, deed: &Deed) -> Result<i64, StoreError> {
        let doing = || format!("asking to {} saga {saga}", deed.as_str());
        let refused = |why: &'static str| Problem::Refused(why).while_doing(doing());
        act.check(&doing())?;
        let ask = async {
            let deed = serde_json::to_string(deed).map_err(unwritable)?;
            let mut session = self.session().await?;
            let query = self.sql.ask_deed.query().bind(saga).bind(deed);
            let query = query.bind(text(&act.actor)).bind(cut_reason(&act.reason));
            let row = query.fetch_optional(&mut *session).await?;
            session.done().await?;
            row.map(|row| row.try_get("id")).transpose()
        };
        let number = ask.await.map_err(|error| self.failed(doing(), error))?;
        number.ok_or_else(|| refused("there is no such saga; one that ended long ago is removed"))
    }

    pub(super) async fn list_open_acts(&self, saga: Uuid) -> Result<Vec<OpenDeed>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let rows = self.sql.list_open_acts.query().bind(saga).fetch_all(&mut *session).await?;
        session.done().await?;
        let open = |row: &PgRow| {
            Ok(OpenDeed {
                number: row.try_get("id")?,
                asked_at: row.try_get("asked_at")?,
                act: Act { actor: row.try_get("actor")?, reason: row.try_get("reason")? },
                deed: serde_json::from_str(row.try_get("deed")?).map_err(unreadable)?,
            })
        };
        rows.iter().map(open).collect()
    }

    pub(super) async fn deed_outcome(&self, id: i64) -> Result<Option<DeedOutcome>, sqlx::Error> {
        let mut session = self.session().await?;
        let row = self.sql.deed_outcome.query().bind(id).fetch_optional(&mut *session).await?;
        session.done().await?;
        row.map(|row| Ok(DeedOutcome { denied: row.try_get("denied")?, says: row.try_get("outcome")? })).transpose()
    }

    /// How many are how far, by definition, version and status.
    pub(super) async fn saga_counts(&self, connection: &mut PgConnection) -> Result<Vec<SagaCount>, sqlx::Error> {
        let mut all = self.counted_sagas(connection, false, COUNTED).await?;
        all.extend(self.counted_sagas(connection, true, COUNTED_ENDED).await?);
        all.sort_by(|a, b| (&a.definition, a.version, a.status).cmp(&(&b.definition, b.version, b.status)));
        Ok(all)
    }

    /// When a process last said that it has code for a version.
    pub(super) async fn saga_versions(&self, connection: &mut PgConnection) -> Result<Vec<SagaVersion>, sqlx::Error> {
        let rows = self.sql.list_saga_versions.query().fetch_all(connection).await?;
        let one = |row: &PgRow| {
            let seen_seconds = row.try_get::<f64, _>("age")?.max(0.0);
            Ok(SagaVersion { definition: row.try_get("definition")?, version: version(row)?, seen_seconds })
        };
        rows.iter().map(one).collect()
    }

    async fn counted_sagas(
        &self,
        connection: &mut PgConnection,
        ended: bool,
        most: i64,
    ) -> Result<Vec<SagaCount>, sqlx::Error> {
        let statuses = Status::ALL.into_iter().filter(|status| status.is_final() == ended);
        let statuses: Vec<&str> = statuses.map(Status::as_str).collect();
        let rows = self.sql.status_sagas.query().bind(statuses).bind(most).fetch_all(connection).await?;
        rows.iter().map(saga_count).collect()
    }

    /// Definitions and versions of what has not ended.
    pub(crate) async fn sagas_under_way(&self) -> Result<Vec<(String, u32, u64)>, sqlx::Error> {
        let mut session = self.look_around().await?;
        let counts = self.counted_sagas(&mut session, false, i64::MAX).await?;
        session.done().await?;
        let mut all = BTreeMap::new();
        for of in counts {
            *all.entry((of.definition, of.version)).or_insert(0) += of.count;
        }
        Ok(all.into_iter().map(|((definition, version), count)| (definition, version, count)).collect())
    }
}

fn version(row: &PgRow) -> Result<u32, sqlx::Error> {
    u32::try_from(row.try_get::<i64, _>("version")?).map_err(unreadable)
}

fn saga_row(row: &PgRow) -> Result<SagaRow, sqlx::Error> {
    Ok(SagaRow {
        id: row.try_get("id")?,
        definition: row.try_get("definition")?,
        version: version(row)?,
        status: word(row, "status")?,
        reason: row.try_get("reason")?,
        steps: serde_json::from_str(row.try_get("steps")?).map_err(unreadable)?,
        started_at: row.try_get("started_at")?,
        changed_at: row.try_get("changed_at")?,
    })
}

fn log_row(row: &PgRow) -> Result<LogRow, sqlx::Error> {
    let direction: Option<String> = row.try_get("direction")?;
    let attempt: Option<i64> = row.try_get("attempt")?;
    Ok(LogRow {
        at: row.try_get("at")?,
        trace: row.try_get("trace")?,
        entry: Entry {
            n: row.try_get::<i64, _>("n")?.cast_unsigned(),
            what: word(row, "what")?,
            leg: row.try_get::<Option<String>, _>("leg")?.map(LegId::from),
            direction: direction.map(|_| word(row, "direction")).transpose()?,
            attempt: attempt.map(u32::try_from).transpose().map_err(unreadable)?,
            envelope: row.try_get("envelope")?,
            reason: row.try_get("reason")?,
            actor: row.try_get("actor")?,
        },
    })
}

fn saga_count(row: &PgRow) -> Result<SagaCount, sqlx::Error> {
    Ok(SagaCount {
        definition: row.try_get("definition")?,
        version: version(row)?,
        status: word(row, "status")?,
        count: super::status::number(row, "count")?,
        oldest_seconds: row.try_get::<f64, _>("age")?.max(0.0),
    })
}
