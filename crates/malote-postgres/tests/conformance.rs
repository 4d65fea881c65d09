//! The promises that every store makes.
#![allow(missing_docs)]

use malote_postgres::Postgres;

async fn open() -> Option<Postgres> {
    let url = malote_testkit::servers::fresh_database("store")?;
    let store = Postgres::builder(url).connections(20).connect().await.unwrap();
    store.migrate().await.unwrap();
    Some(store)
}

malote_testkit::store_conformance!(open);
malote_testkit::inspect_conformance!(open);
