//! What every store has to do.
//!
//! Each function is one promise of [`malote_core::Store`]; it takes a fresh, migrated store. An
//! adapter runs them all as tests of their own by [`store_conformance!`](crate::store_conformance).

pub use super::custody::*;
pub use super::kept::*;
pub use super::parking::*;
pub use super::parking_budget::*;
pub use super::saga::*;
pub use super::store_idempotency::*;
pub use super::store_inbox::*;
pub use super::store_outbox::*;
pub use super::store_relay::*;
pub use super::timer::*;

use chrono::{DateTime, Utc};
use malote_core::{Clock, Envelope, Message, Sealer, Store, Transaction};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// Makes a test of each promise. `$open` is an `async fn() -> Option<impl FullStore + IdempotencyStore>` that
/// gives a fresh, migrated store, or `None` where its server cannot be had.
#[macro_export]
macro_rules! store_conformance {
    ($open:path) => {
        $crate::store_conformance! { @each $open:
            what_is_appended_is_read_in_order
            an_envelope_survives_byte_for_byte
            what_is_not_committed_leaves_nothing
            a_window_is_gaps_and_tail_by_position
            ac_018_nul_is_refused_alone_or_carried
            ac_025_a_large_event_commits_and_wakes
            commit_wakes_the_relay
            ac_001_a_lease_has_one_holder_and_fences_the_last
            ac_006_the_same_name_is_another_incarnation
            a_lease_that_is_given_back_is_free_at_once
            a_cursor_survives
            a_bound_is_reached_when_everyone_before_has_ended
            upkeep_removes_nothing_that_is_needed
            each_event_is_admitted_once_per_consumer
            what_is_rolled_back_was_not_admitted
            batches_in_any_order_do_not_deadlock
            what_is_admitted_is_seen
            whatever_is_set_aside_is_kept
            ac_070_one_of_many_claims_wins
            ac_071_a_late_owner_changes_nothing
            ac_068_names_do_not_cross
            a_claim_checks_in_order
            answers_are_kept_as_long_as_asked
            a_parked_key_is_busy_and_no_other
            a_lane_keeps_its_order
            what_is_parked_survives_byte_for_byte
            a_park_that_is_rolled_back_leaves_nothing
            two_of_one_key_that_come_again_are_known
            an_attempt_is_counted_before_it_is_made
            a_claimed_lane_is_left_out
            a_claim_that_is_over_changes_nothing
            a_settling_that_is_rolled_back_leaves_the_head
            a_head_is_put_off
            after_a_dead_letter_the_key_goes_on
            a_key_may_stay_held
            a_key_with_a_letter_that_was_set_aside_is_passing
            what_goes_behind_a_running_head_is_not_lost
            the_longest_overdue_comes_first
            the_budget_is_shared
            what_only_waited_takes_nothing_of_the_budget
            custody_tells_of_a_death
            runs_are_counted_until_they_end
            what_is_due_moves_to_the_outbox
            nothing_fires_early
            schedule_and_cancel_belong_to_the_transaction
            late_ones_fire_once_and_in_order
            old_inbox_rows_go_when_they_are_done
            what_waited_is_kept_from_its_end_on
            old_dead_letters_go
            old_answers_go
            old_acts_go
            acts_under_way_stay
            an_instance_survives_as_it_was
            a_saga_that_is_rolled_back_is_not_there
            ac_053_of_all_that_read_a_revision_one_writes
            those_who_change_a_saga_take_turns
            ac_056_a_late_start_meets_the_tombstone
            old_sagas_go
            sagas_are_found
            sagas_are_counted
            definitions_are_known
            an_act_is_dealt_with_once
            an_act_that_cannot_be_is_refused
            an_answer_is_remembered
            what_is_called_off_is_not_done
            an_operation_is_done_once
            an_operation_is_done_or_called_off
            old_operations_go
        }
    };
    (@each $open:path: $($name:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if let Some(store) = $open().await {
                $crate::conformance::store::$name(store).await;
            }
        })+
    };
}

/// Longer than anything here takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> DateTime<Utc> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        DateTime::from_timestamp(since.as_secs().cast_signed(), since.subsec_nanos()).unwrap_or_default()
    }
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// A sealer for a service called `conformance`.
pub fn sealer() -> Sealer {
    Sealer::new("conformance", Arc::new(WallClock))
}

/// A message that is told apart by its key.
pub fn message(key: &str) -> Message {
    Message {
        kind: "thing.happened.v1".into(),
        topic: "things".into(),
        key: key.into(),
        content_type: "application/json".into(),
        payload: format!("{{\"key\":{key:?}}}").into(),
    }
}

/// Seals messages and appends them; returns their ids. Class and words of the error are the store's.
pub(super) async fn append<T: Transaction>(tx: &mut T, messages: Vec<Message>) -> Result<Vec<Uuid>, String> {
    let sealed: Result<Vec<Envelope>, _> = messages.into_iter().map(|message| tx.sealer().seal(message)).collect();
    let envelopes = sealed.map_err(|unfit| unfit.to_string())?;
    let ids = envelopes.iter().map(|envelope| envelope.id).collect();
    tx.append(envelopes).await.map_err(|error| error.to_string())?;
    Ok(ids)
}

/// Commits messages with these keys in one transaction.
pub(super) async fn commit<S: Store>(store: &S, keys: &[&str]) {
    let mut tx = store.begin(sealer()).await.unwrap();
    append(&mut tx, keys.iter().map(|key| message(key)).collect()).await.unwrap();
    tx.commit().await.unwrap();
}
