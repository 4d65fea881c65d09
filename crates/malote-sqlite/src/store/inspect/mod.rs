//! What people may ask and do. Looking reads, and blocks nobody; acting takes the write lock like
//! everybody, in steps that keep nobody waiting for long.

mod acts;
mod doctor;
mod list;
mod redrive;
mod replay;
mod saga;
mod status;

pub(super) use acts::write_down;
pub(super) use saga::sagas_under_way;

use super::{Sqlite, dead, failed, migrate};
use malote_core::{
    Dead,
    inspect::{
        Act, Acted, Asked, AuditRow, DeadRow, Filter, Finding, Inspect, OutboxRow, ParkedRow, Redrive, Replay,
        ScheduledRow, Status,
    },
    saga::{Deed, DeedOutcome, LogRow, OpenDeed, Outline, SagaFilter, SagaRow, Stored},
};
use uuid::Uuid;

impl Inspect for Sqlite {
    fn tables(&self) -> Asked<'_, (i64, i64)> {
        Box::pin(async move {
            let doing = "looking for malote's tables";
            let mut reader = self.reader(doing).await?;
            Ok((status::version(&mut reader).await.map_err(failed(doing))?, migrate::KNOWN))
        })
    }
    fn status(&self) -> Asked<'_, Status> {
        Box::pin(status::status(self))
    }
    fn outbox<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<OutboxRow>> {
        Box::pin(
            async move { Ok(list::outbox(self, filter, 0, most).await?.into_iter().map(|(row, _)| row).collect()) },
        )
    }
    fn parked<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<ParkedRow>> {
        Box::pin(list::parked(self, filter, most))
    }
    fn dead<'a>(&'a self, filter: &'a Filter, most: u32) -> Asked<'a, Vec<DeadRow>> {
        Box::pin(list::dead(self, filter, 0, most))
    }
    fn dead_letter(&self, id: i64) -> Asked<'_, Option<(DeadRow, Dead)>> {
        Box::pin(async move {
            let only = Filter { ids: Some(vec![id]), ..Filter::default() };
            let Some(row) = list::dead(self, &only, 0, 1).await?.pop() else { return Ok(None) };
            let mut reader = self.reader("reading a dead letter").await?;
            Ok(dead::letter(&mut reader, id).await?.map(|letter| (row, letter.dead)))
        })
    }
    fn scheduled(&self, most: u32) -> Asked<'_, Vec<ScheduledRow>> {
        Box::pin(list::scheduled(self, most))
    }
    fn scheduled_of<'a>(&'a self, ids: &'a [Uuid]) -> Asked<'a, Vec<ScheduledRow>> {
        Box::pin(list::scheduled_of(self, ids))
    }
    fn audit(&self, most: u32) -> Asked<'_, Vec<AuditRow>> {
        Box::pin(list::audit(self, most))
    }
    fn sagas<'a>(&'a self, filter: &'a SagaFilter, most: u32) -> Asked<'a, Vec<SagaRow>> {
        Box::pin(saga::sagas(self, filter, most))
    }
    fn saga_ids(&self, first: Uuid, last: Uuid, most: u32) -> Asked<'_, Vec<Uuid>> {
        Box::pin(saga::ids(self, first, last, most))
    }
    fn saga(&self, id: Uuid) -> Asked<'_, Option<Stored>> {
        Box::pin(saga::saga(self, id))
    }
    fn saga_log(&self, id: Uuid) -> Asked<'_, Vec<LogRow>> {
        Box::pin(saga::log(self, id))
    }
    fn saga_definitions(&self) -> Asked<'_, Vec<Outline>> {
        Box::pin(saga::definitions(self))
    }
    fn ask_deed<'a>(&'a self, act: &'a Act, saga: Uuid, deed: &'a Deed) -> Asked<'a, i64> {
        Box::pin(saga::ask(self, act, saga, deed))
    }
    fn open_deeds(&self, saga: Uuid) -> Asked<'_, Vec<OpenDeed>> {
        Box::pin(saga::open_deeds(self, saga))
    }
    fn deed_outcome(&self, id: i64) -> Asked<'_, Option<DeedOutcome>> {
        Box::pin(saga::outcome(self, id))
    }
    fn doctor(&self) -> Asked<'_, Vec<Finding>> {
        Box::pin(doctor::doctor(self))
    }
    fn redrive<'a>(&'a self, act: &'a Act, filter: &'a Filter, how: Redrive) -> Asked<'a, Acted> {
        Box::pin(redrive::redrive(self, act, filter, how))
    }
    fn discard<'a>(&'a self, act: &'a Act, filter: &'a Filter, dry: bool) -> Asked<'a, Acted> {
        Box::pin(acts::discard(self, act, filter, dry))
    }
    fn retry_now<'a>(&'a self, act: &'a Act, filter: &'a Filter, dry: bool) -> Asked<'a, Acted> {
        Box::pin(acts::retry_now(self, act, filter, dry))
    }
    fn replay<'a>(&'a self, act: &'a Act, filter: &'a Filter, how: Replay) -> Asked<'a, Acted> {
        Box::pin(replay::replay(self, act, filter, how))
    }
    fn erase<'a>(&'a self, act: &'a Act, key: &'a str, dry: bool) -> Asked<'a, Acted> {
        Box::pin(acts::erase(self, act, key, dry))
    }
    fn note<'a>(&'a self, act: &'a Act, name: &'a str, target: &'a str, outcome: &'a str) -> Asked<'a, ()> {
        Box::pin(acts::note(self, act, name, target, outcome))
    }
}
