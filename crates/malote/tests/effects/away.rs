//! The store is away when a call ends, and the process stops before one does.

use super::{common::*, provider::*};
use malote::{Runtime, State, postgres::Postgres, retry::Backoff, retry::Policy, sqlite::Sqlite};
use malote_testkit::servers;
use std::time::Duration;

crate::on_each_store!(an_outcome_outlasts_a_store_that_is_away, a_stop_hands_back_what_it_cuts_off,);

/// A store that takes no writes for a while.
pub trait Away: TestStore {
    async fn go_away(&self);
    async fn come_back(&self);
}

impl Away for Sqlite {
    /// What it is to take is refused.
    async fn go_away(&self) {
        self.execute("create trigger away before insert on malote.inbox begin select raise(abort, 'away'); end").await;
    }
    async fn come_back(&self) {
        self.execute("drop trigger away").await;
    }
}

impl Away for Postgres {
    /// It can be read only.
    async fn go_away(&self) {
        read_only(self, "on").await;
    }
    async fn come_back(&self) {
        read_only(self, "off").await;
    }
}

/// All connections that are there end; new ones are so.
async fn read_only(store: &Postgres, is: &str) {
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(store.pool()).await.unwrap();
    let admin = servers::postgres().expect("it is there");
    let sql = format!(
        "set default_transaction_read_only = off; alter database \"{name}\" set default_transaction_read_only = {is};
         select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and pid <> pg_backend_pid()"
    );
    tokio::task::spawn_blocking(move || admin.psql("postgres", &sql)).await.unwrap().unwrap();
}

async fn an_outcome_outlasts_a_store_that_is_away<S: Away>() {
    let (Some(a), Some(c)) = (S::fresh("asker").await, S::fresh("caller").await) else { return };
    let (heard, log, provider) = (Log::default(), log().await, Provider::holding(0..3));
    let caller = caller(&c, &log, &provider, &Log::default())
        .backoff(Backoff { first: Duration::from_millis(10), most: Duration::from_millis(50) });
    let runtime = Runtime::new().with(asker(&a, &log, &heard)).with(caller);
    let health = runtime.health();
    let running = start(runtime).await;
    ask(&a, (0..3).map(|n| ping(&format!("k{n}"), n))).await;
    for n in 0..3 {
        provider.until_begun(n).await;
    }
    c.go_away().await;
    provider.let_all_go();
    let fails = || matches!(health.parts().get("caller consumer"), Some(State::Failing(_)));
    eventually("the consumer says so", fails).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // the outage
    c.come_back().await;
    heard.until(|all| all.len() == 3).await;
    running.stop().await;
    let mut begun = provider.begun.all();
    begun.sort_unstable();
    assert_eq!(begun, [0, 1, 2], "each was called once");
}

async fn a_stop_hands_back_what_it_cuts_off<S: TestStore>() {
    let (Some(a), Some(c)) = (S::fresh("asker").await, S::fresh("caller").await) else { return };
    let (heard, log, provider) = (Log::default(), log().await, Provider::holding([0]));
    let runtime = || {
        let caller = caller(&c, &log, &provider, &Log::default()).retry(Policy::default().deadline(NEVER));
        Runtime::new().with(asker(&a, &log, &heard)).with(caller).grace(Duration::from_secs(2))
    };
    ask(&a, [ping("k", 0)]).await;
    for times in 1..=2 {
        let running = start(runtime()).await;
        provider.until_begun_times(0, times).await;
        running.stop().await;
        assert_eq!(c.count("select count(*) from malote.custody").await, 0, "given back");
    }
    let running = start(runtime()).await;
    provider.let_all_go();
    c.until_count("select count(*) from malote.inbox where state = 'done'", 1).await;
    heard.until(|all| all.len() == 1).await;
    running.stop().await;
    assert_eq!(c.count("select count(*) from malote.dead").await, 0, "no process has died");
}
