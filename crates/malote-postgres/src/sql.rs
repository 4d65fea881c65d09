//! The statements, each from its own file, for one schema.

use crate::name::Name;
use sqlx::{AssertSqlSafe, Postgres, postgres::PgArguments, query::Query};
use std::sync::Arc;

/// A statement that is ready to run.
#[derive(Clone)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    /// The files say `malote.outbox`; a service may have put the tables into another schema.
    /// The schema's name is checked and quoted, so the text stays safe.
    pub(crate) fn new(text: &str, schema: &Name) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let body = lines.collect::<Vec<&str>>().join("\n");
        #[cfg(feature = "planted")]
        let body = crate::planted::text(body);
        Self(body.replace("malote.", &format!("{}.", schema.quoted())).into())
    }

    /// A statement on a table of somebody else's: names, checked and quoted, stand where braces are.
    pub(crate) fn of(text: &str, words: &[(&str, String)]) -> Self {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
        let fill = |text: String, (word, by): &(&str, String)| text.replace(&format!("{{{word}}}"), by);
        Self(words.iter().fold(lines.join("\n"), fill).into())
    }

    /// With words put in: of our own making, numbers and names of tables that were read from the catalogue.
    pub(crate) fn with(&self, words: &[(&str, &str)]) -> Self {
        let text = words.iter().fold(self.0.to_string(), |text, (word, by)| text.replace(word, by));
        Self(text.into())
    }

    /// For a statement without arguments, or several in one message.
    pub(crate) fn text(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    pub(crate) fn query(&self) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(self.0.clone()))
    }
}

macro_rules! statements {
    ($($name:ident),+ $(,)?) => {
        /// All statements of the store, by the name of their file.
        #[derive(Clone)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement),+
        }
        impl Statements {
            pub(crate) fn new(schema: &Name) -> Self {
                Self { $($name: Statement::new(include_str!(concat!("../sql/", stringify!($name), ".sql")), schema)),+ }
            }
        }
    };
}

statements!(
    admit,
    answer_act,
    append,
    ask_deed,
    audit,
    call_off,
    cancel,
    claim,
    claim_budget,
    claim_due,
    claim_heads,
    count_dead,
    days_ahead,
    dead_letter,
    deed_outcome,
    define_sagas,
    discard_end,
    discard_lane,
    doctor_rest,
    doctor_server,
    doctor_slots,
    doctor_tables,
    doctor_version,
    drop_partitions,
    due,
    empty_partition,
    end_empty,
    erase_dead,
    erase_end,
    erase_lanes,
    erase_parked,
    find_sagas,
    finish,
    fire,
    fire_lock,
    forget,
    gap_holders,
    give_back,
    insert_saga,
    keeper_limits,
    keeper_lock,
    lanes,
    last_position,
    list_audit,
    list_dead,
    list_open_acts,
    list_outbox,
    list_parked,
    list_saga_definitions,
    list_saga_log,
    list_saga_versions,
    list_sagas,
    list_scheduled,
    load_saga,
    lock_dead,
    lock_empty,
    lock_lane,
    lock_lanes,
    look,
    make_inbox_partition,
    make_lane,
    make_outbox_partition,
    make_relay,
    mark_inbox,
    newest_row,
    next_scheduled,
    oldest_transaction,
    open_acts,
    park,
    park_head,
    park_lane,
    partitions,
    pass,
    prune_audit,
    prune_count,
    prune_cutoff,
    prune_dead,
    prune_inbox_count,
    prune_inbox_day,
    prune_inbox_look,
    prune_inbox_rows,
    prune_lanes,
    prune_operations,
    prune_sagas,
    prune_tombstones,
    put_off_empty,
    read,
    recall,
    recall_lock,
    redrive,
    redrive_inbox,
    redrive_lane,
    release,
    release_lease,
    remember,
    remove_dead,
    remove_published,
    replay,
    retry_now,
    runs,
    runs_begin,
    runs_ended,
    save,
    save_saga,
    schedule,
    scheduled_of,
    seen,
    set_aside,
    settle_again,
    settle_gone,
    settle_hold,
    settle_lock,
    settle_next,
    show_saga,
    status_consumers,
    status_outbox,
    status_relays,
    status_rest,
    status_sagas,
    take_act,
    take_custody,
    take_lease,
    take_over,
    tell_saga,
);
