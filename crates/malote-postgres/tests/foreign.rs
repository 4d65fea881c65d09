//! Rows that others write: into malote's table, or in a table of their own.
#![allow(missing_docs)]

mod common;

use common::{changed, open, sealer};
use malote_core::{
    ClaimSource, ClaimedRow, Read, Store,
    relay::{Ranges, Window},
};
use malote_postgres::{Adopted, Layout, Mark, Postgres, Topic};
use sqlx::Executor;
use uuid::Uuid;

async fn read(store: &Postgres) -> Read {
    store.read(&Window { high: 0, gaps: Ranges::new(), limit: 100 }).await.unwrap()
}

/// Anybody may write to the outbox; what cannot be read stops nothing behind it.
#[tokio::test]
async fn rows_of_other_programs_are_read() {
    let Some(store) = open().await else { return };
    let insert = r#"
        INSERT INTO malote.outbox (type, key, payload) VALUES ('a.v1', 'k', '{}');
        INSERT INTO malote.outbox (type, topic, aggregate_id, headers, payload)
            VALUES ('b.v1', 'bs', 'agg', '{"source":"php","time":"2026-01-02T03:04:05Z","x":"y"}', '{}');
        INSERT INTO malote.outbox (type, headers, payload) VALUES ('c.v1', '{"source":1}', '{}');
        INSERT INTO malote.outbox (type, headers, payload) VALUES ('d.v1', '[]', '{}');
        INSERT INTO malote.outbox (type, headers, payload) VALUES ('e.v1', '{"time":"yesterday"}', '{}');
        INSERT INTO malote.outbox (type, topic, payload) VALUES ('f.v1', 'not a topic', '{}');
        INSERT INTO malote.outbox (type, payload) VALUES ('g.v1', convert_to(repeat('x', 1000001), 'UTF8'))"#;
    store.pool().execute(insert).await.unwrap();
    let mut tx = store.begin(sealer()).await.unwrap();
    tx.publish(changed("behind", 1)).await.unwrap();
    tx.commit().await.unwrap();

    let rows = read(&store).await.rows;
    let envelope = |n: usize| rows[n].envelope.as_ref().unwrap();
    let database: String = sqlx::query_scalar("SELECT current_database()").fetch_one(store.pool()).await.unwrap();
    assert_eq!((envelope(0).topic.as_str(), envelope(0).key.as_str(), &envelope(0).source), ("a.v1", "k", &database));
    assert_eq!(
        (envelope(1).topic.as_str(), envelope(1).key.as_str(), envelope(1).source.as_str()),
        ("bs", "agg", "php")
    );
    assert_eq!(envelope(1).time.to_rfc3339(), "2026-01-02T03:04:05+00:00");
    assert_eq!(envelope(1).headers, [("x".to_owned(), "y".to_owned())]);
    assert!(rows[2..7].iter().all(|bad| bad.envelope.as_ref().is_err_and(|why| !why.is_empty())));
    assert_eq!(envelope(7).key, "behind");
}

/// Who holds a gap open is told by process, or by the name of a prepared transaction.
#[tokio::test]
async fn holders_of_gaps_are_named() {
    let Some(store) = open().await else { return };
    let mut holder = store.begin(sealer()).await.unwrap();
    holder.publish(changed("a", 1)).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *holder).await.unwrap();
    let insert = "BEGIN; INSERT INTO malote.outbox (type, payload) VALUES ('a.v1', '{}')";
    let mut connection = store.pool().acquire().await.unwrap();
    connection.execute(insert).await.unwrap();
    connection.execute("PREPARE TRANSACTION 'payment 7'").await.unwrap();

    let holders = store.gap_holders().await.unwrap();
    assert_eq!(holders.len(), 2, "{holders:?}");
    assert!(holders.iter().any(|h| h.contains(&format!("process {pid} "))), "{holders:?}");
    assert!(holders.iter().any(|h| h.contains("prepared transaction 'payment 7'")), "{holders:?}");
    holder.rollback().await.unwrap();
    connection.execute("ROLLBACK PREPARED 'payment 7'").await.unwrap();
    assert_eq!(store.gap_holders().await.unwrap(), [""; 0]);
}

/// The plan of the reading statement: walks along the key, whatever the statistics say.
#[tokio::test]
async fn reading_walks_along_the_key() {
    let Some(store) = open().await else { return };
    let fill =
        "INSERT INTO malote.outbox (type, key, payload) SELECT 't.v1', n::text, '{}' FROM generate_series(1, 100000) n";
    store.pool().execute(fill).await.unwrap();
    let statement: String =
        include_str!("../sql/read.sql").lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    let mut connection = store.pool().acquire().await.unwrap();
    connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off").await.unwrap();
    let prepare = format!("PREPARE reading (int8, int8[], int8[], int8) AS {statement}");
    connection.execute(sqlx::AssertSqlSafe(prepare)).await.unwrap();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        for analysed in [false, true] {
            if analysed {
                connection.execute("ANALYZE malote.outbox").await.unwrap();
            }
            let set = format!("SET plan_cache_mode = {mode}");
            connection.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
            let explain =
                "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE reading (50000, '{1,7,40000}', '{3,7,40001}', 1000)";
            let plan: Vec<(String,)> = sqlx::query_as(sqlx::AssertSqlSafe(explain))
                .persistent(false)
                .fetch_all(&mut *connection)
                .await
                .unwrap();
            let plan: Vec<&str> = plan.iter().map(|line| line.0.as_str()).collect();
            let text = plan.join("\n");
            let walks = |line: &&&str| line.contains("Seq Scan") && !line.contains("never executed");
            assert_eq!(plan.iter().filter(walks).count(), 0, "{text}");
            let longest_sort = plan
                .iter()
                .filter(|line| line.contains("->  Sort"))
                .filter_map(|line| line.split("rows=").nth(1)?.split(' ').next()?.parse::<f64>().ok());
            assert!(longest_sort.fold(0.0, f64::max) <= 6.0, "only rows found in gaps are sorted: {text}");
        }
    }
}

async fn adopted(store: &Postgres, payload: &str) -> Adopted {
    let create = format!(
        "CREATE TABLE outbox (id UUID PRIMARY KEY, aggregate_type TEXT NOT NULL, aggregate_id UUID NOT NULL, event_type TEXT NOT NULL, \
         payload {payload} NOT NULL, created_at TIMESTAMPTZ NOT NULL DEFAULT now(), published_at TIMESTAMPTZ); \
         CREATE INDEX idx_outbox_unpublished ON outbox (created_at) WHERE published_at IS NULL"
    );
    store.pool().execute(sqlx::AssertSqlSafe(create)).await.unwrap();
    Adopted::open(store, Layout::published_at("outbox")).await.unwrap()
}

async fn insert(store: &Postgres, rows: i64) {
    let insert = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, created_at) \
                  SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'payment', gen_random_uuid(), 'payment.received.v1', \
                  '{\"n\": 9007199254740993}', now() + n * interval '1 microsecond' FROM generate_series(1, $1) n";
    sqlx::query(insert).bind(rows).execute(store.pool()).await.unwrap();
}

/// Claimed by two at once without a row in common, marked, and not claimed again.
#[tokio::test]
async fn a_table_that_exists_already_is_served() {
    let Some(store) = open().await else { return };
    let source = adopted(&store, "JSONB").await;
    insert(&store, 10).await;
    let (first, mine) = source.claim(4, &[]).await.unwrap();
    let (second, theirs) = source.claim(100, &[]).await.unwrap();
    let ids = |rows: &[ClaimedRow]| rows.iter().map(|(_, e)| e.id.as_u128() & 0xff).collect::<Vec<_>>();
    assert_eq!((ids(&mine), ids(&theirs)), (vec![1, 2, 3, 4], vec![5, 6, 7, 8, 9, 0x10]));
    let (id, envelope) = &mine[0];
    assert_eq!(*id, envelope.id.to_string());
    assert_eq!((envelope.topic.as_str(), envelope.kind.as_str()), ("payment.received.v1", "payment.received.v1"));
    assert!(envelope.key.parse::<Uuid>().is_ok());
    assert_eq!(envelope.payload, r#"{"n": 9007199254740993}"#);
    // the second of four was not published; all six of the others were given up
    source.mark(first, &[0, 2, 3]).await.unwrap();
    drop(second);
    let mut left = Vec::new();
    common::until("given up rows are free", async || {
        let (rest, envelopes) = source.claim(100, &[]).await.unwrap();
        source.mark(rest, &[]).await.unwrap();
        left = ids(&envelopes);
        left.len() == 7
    })
    .await;
    assert_eq!(left, [2, 5, 6, 7, 8, 9, 0x10]);
    let (rest, envelopes) = source.claim(3, &[mine[1].0.clone(), theirs[1].0.clone()]).await.unwrap();
    source.mark(rest, &[]).await.unwrap();
    assert_eq!(ids(&envelopes), [5, 7, 8], "not those that are to wait");
    let (rest, envelopes) = source.claim(100, &[]).await.unwrap();
    source.mark(rest, &(0..envelopes.len()).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(source.claim(100, &[]).await.unwrap().1.len(), 0);
}

/// Whatever the payload's type, it comes out as bytes; and Debezium's columns are known.
#[tokio::test]
async fn payloads_of_all_types_come_out_as_bytes() {
    for (kind, payload) in [
        ("json", r#"{"b":1, "a":1e3}"#),
        ("text", "not json"),
        ("varchar(100)", "x"),
        ("bytea", "\\x00ff"),
        ("jsonb", "{}"),
    ] {
        let Some(store) = open().await else { return };
        let create = format!(
            "CREATE TABLE \"Outbox\" (id varchar PRIMARY KEY, aggregatetype varchar, aggregateid varchar, type varchar, payload {kind})"
        );
        store.pool().execute(sqlx::AssertSqlSafe(create)).await.unwrap();
        let insert = format!("INSERT INTO \"Outbox\" VALUES ('17', 'order', 'o1', 'order.placed', '{payload}')");
        store.pool().execute(sqlx::AssertSqlSafe(insert)).await.unwrap();
        let source = Adopted::open(&store, Layout::debezium("Outbox")).await.unwrap();
        let (claimed, envelopes) = source.claim(10, &[]).await.unwrap();
        let expected: &[u8] = if kind == "bytea" { b"\0\xff" } else { payload.as_bytes() };
        let (id, envelope) = &envelopes[0];
        assert_eq!((id.as_str(), &envelope.payload[..]), ("17", expected), "{kind}");
        assert_eq!((envelope.topic.as_str(), envelope.key.as_str()), ("outbox.event.order", "o1"));
        source.mark(claimed, &[0]).await.unwrap();
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM \"Outbox\"").fetch_one(store.pool()).await.unwrap();
        assert_eq!(left, 0);
    }
}

/// A setting that does not fit is told at the start, and a name is never SQL.
#[tokio::test]
async fn ac_079_a_layout_that_does_not_fit_is_refused() {
    let Some(store) = open().await else { return };
    drop(adopted(&store, "jsonb").await);
    let layouts = [
        // the payload cannot be a time
        Layout { payload: "created_at".into(), ..Layout::published_at("outbox") },
        Layout { table: "outbox; DROP TABLE canary".into(), ..Layout::published_at("x") },
        Layout { key: "a\" FROM canary; --".into(), ..Layout::published_at("outbox") },
        Layout { mark: Mark::Time("published_at = now()".into()), ..Layout::published_at("outbox") },
        Layout { topic: Topic::Column("no_such_column".into()), ..Layout::published_at("outbox") },
        Layout::published_at("no_such_table"),
    ];
    for layout in layouts {
        assert!(Adopted::open(&store, layout.clone()).await.is_err(), "{layout:?}");
    }
}
