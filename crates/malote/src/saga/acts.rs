//! What people ask for, and what this process has code for.
//!
//! Whoever asks (the command line, an admin API) need not have the definitions: the act is written down,
//! and a process that has them deals with it, in one transaction with the instance and the audit.

use super::coordinator::Coordinator;
use crate::{State, supervise::Beat};
use malote_core::{
    Class, FullStore, Outcome, Store, StoreError, Transaction,
    inspect::Act,
    saga::{Deed, DeedOutcome, Input, Loaded, Stored, Verdict},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Between two looks for acts.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the versions under way.
const VERSIONS: Duration = Duration::from_secs(5);
/// Between two times of saying which versions there is code for; shorter where tests are run that have to fail.
const SAID: Duration = Duration::from_secs(if cfg!(feature = "planted") { 1 } else { 60 });
/// So often an act that met another transaction is begun anew at once.
const CONFLICTS: u32 = 5;
/// Most acts of one look.
const MOST: u32 = 256;

impl<S: FullStore> Coordinator<S> {
    pub(super) async fn act(&self, act: &Act, saga: Uuid, deed: &Deed) -> Result<DeedOutcome, StoreError> {
        let store = self.outbox.store();
        let id = store.ask_deed(act, saga, deed).await?;
        if let Some(outcome) = self.deal_with(id).await? {
            return Ok(outcome);
        }
        // somebody else is at it or was faster, or it has to wait for a process that has code for it
        let says = "it was written down; a process that has code for its version deals with it".to_owned();
        Ok(store.deed_outcome(id).await?.unwrap_or(DeedOutcome { denied: false, says }))
    }

    /// Deals with an act; none where it is dealt with, somebody is at it, or this process lacks its version.
    async fn deal_with(&self, id: i64) -> Result<Option<DeedOutcome>, StoreError> {
        for _ in 0..CONFLICTS {
            match self.try_to_deal_with(id).await {
                Err(failure) if self.class(&failure) == Class::Conflict => {}
                done => return done.map_err(|failure| self.error(format!("dealing with act {id} on a saga"), failure)),
            }
        }
        // others are at the instance: it has its turn at the next look
        Ok(None)
    }

    async fn try_to_deal_with(&self, id: i64) -> Outcome<Option<DeedOutcome>> {
        let store = self.outbox.store();
        let mut tx = self.outbox.begin().await?;
        let Some(asked) = store.take_act(&mut tx, id).await? else {
            tx.rollback().await?;
            return Ok(None);
        };
        let denied = |says: &str| DeedOutcome { denied: true, says: says.to_owned() };
        let outcome = match store.load_saga(&mut tx, asked.saga).await? {
            Loaded::Absent => denied("there is no saga of this id in this store"),
            Loaded::Tombstone(status) => {
                denied(&format!("the saga has ended and was removed: it was {}", status.as_str()))
            }
            Loaded::Present(mut instance) => {
                let Some(machine) = self.machine(&instance.definition, instance.version) else {
                    tx.rollback().await?;
                    return Ok(None);
                };
                let input = Input::Act(asked.act.clone(), asked.deed.clone());
                tx.set_savepoint().await?;
                let done = self.carry_out(&mut tx, machine, &mut instance, input).await;
                if done.as_ref().is_err_and(|failure| self.class(failure) == Class::Conflict) {
                    done?;
                    return Ok(None);
                }
                if done.is_err() {
                    tx.undo_to_savepoint().await?;
                }
                match done {
                    // whoever asked hears of it, and the next act has its turn
                    Err(failure) => denied(&format!("it could not be done: {failure}")),
                    Ok((Verdict::Denied(why), _)) => denied(&why),
                    Ok((_, turn)) => {
                        self.save(&mut tx, &instance, &turn.log).await?;
                        tx.append(turn.out).await?;
                        DeedOutcome { denied: false, says: stands(&instance) }
                    }
                }
            }
        };
        store.answer_act(&mut tx, &asked, &outcome).await?;
        tx.commit().await?;
        tracing::info!(service = %self.service, saga = %asked.saga, act = asked.deed.as_str(), denied = outcome.denied, "{}", outcome.says);
        Ok(Some(outcome))
    }

    /// Which versions are under way without code for them here: one that is behind what this process has
    /// was taken away too early; one that is ahead is the next release's.
    async fn lacking(&self) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let (mut behind, mut ahead) = (Vec::new(), Vec::new());
        for (definition, version, count) in self.outbox.store().sagas_under_way().await? {
            let Some(newest) = self.newest(&definition) else { continue };
            if self.machine(&definition, version).is_none() {
                let says = format!("{count} of {definition} version {version}");
                if version < newest {
                    behind.push(says)
                } else {
                    ahead.push(says)
                };
            }
        }
        Ok((behind, ahead))
    }
}

/// How an instance stands, in a line.
fn stands(instance: &Stored) -> String {
    let mut says = instance.status.as_str().to_owned();
    let waits: Vec<String> = instance.waiting().iter().map(ToString::to_string).collect();
    if !waits.is_empty() {
        says = format!("{says}: {}", waits.join(", "));
    }
    says
}

/// Deals with acts in one process, and tells which versions it has.
pub(crate) struct Desk<S: Store> {
    coordinator: Arc<Coordinator<S>>,
    beat: Beat,
}

impl<S: FullStore> Desk<S> {
    pub(crate) fn new(coordinator: Arc<Coordinator<S>>, beat: Beat) -> Self {
        Self { coordinator, beat }
    }

    /// Runs until stopped; an error of the store ends it, and its supervisor starts it again.
    pub(crate) async fn run(&self) -> Result<(), StoreError> {
        let Self { coordinator, beat } = self;
        let store = coordinator.outbox.store();
        let part = format!("{} saga versions", coordinator.service);
        let (mut looked, mut said): (Option<Instant>, Option<Instant>) = (None, None);
        let mut seen = 0;
        let every = if malote_core::planted::is("saga-versions-said-once") { Duration::MAX } else { SAID };
        while !beat.stop().is_cancelled() {
            beat.working();
            if said.is_none_or(|at| at.elapsed() >= every) {
                said = Some(Instant::now());
                // whoever looks at the store learns which versions nobody has code for any more
                store.define_sagas(&coordinator.outlines()).await?;
            }
            // one that cannot be dealt with stays open, where people see it, and keeps no other waiting: each look
            // goes on behind the last one's, and begins again after the newest
            let acts = store.open_acts(seen, MOST).await?;
            let more = acts.len() == MOST as usize && !malote_core::planted::is("saga-acts-oldest-only");
            seen = if more { acts[acts.len() - 1] } else { 0 };
            for id in acts {
                if let Err(error) = coordinator.deal_with(id).await {
                    tracing::error!(service = %coordinator.service, act = id, "{}", malote_core::chain(&error));
                }
                beat.advanced();
            }
            if looked.is_none_or(|at| at.elapsed() > VERSIONS) {
                looked = Some(Instant::now());
                let (behind, ahead) = coordinator.lacking().await?;
                if !ahead.is_empty() {
                    tracing::info!(service = %coordinator.service, "left to processes that have code for them: {}", ahead.join(", "));
                }
                let state = match behind.is_empty() || malote_core::planted::is("saga-versions-unseen") {
                    true => State::Working,
                    false => State::Failing(format!(
                        "no code for sagas that are under way: {}; keep the old definition until its last instance has ended",
                        behind.join(", ")
                    )),
                };
                beat.health().set(&part, state);
            }
            beat.stop().run_until_cancelled(tokio::time::sleep(EVERY)).await;
        }
        Ok(())
    }
}
