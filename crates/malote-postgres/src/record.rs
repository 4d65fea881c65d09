//! Records as the tables keep them: bytes as they came, text freed of what PostgreSQL cannot hold.

use bytes::Bytes;
use malote_core::RawRecord;
use sqlx::{Row, postgres::PgRow};

/// PostgreSQL's text cannot hold a NUL; what has one is kept all the same.
pub(crate) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The names of a record's headers, as columns hold them.
pub(crate) fn names(record: &RawRecord) -> impl Iterator<Item = String> {
    record.headers.iter().map(|(name, _)| text(name))
}

/// The values of a record's headers.
pub(crate) fn values(record: &RawRecord) -> impl Iterator<Item = &[u8]> {
    record.headers.iter().map(|(_, value)| value.as_ref())
}

/// The record of a row of `parked` or `dead`.
pub(crate) fn read(row: &PgRow) -> Result<RawRecord, sqlx::Error> {
    let bytes = |name: &str| Ok::<_, sqlx::Error>(row.try_get::<Option<&[u8]>, _>(name)?.map(Bytes::copy_from_slice));
    let names: Vec<String> = row.try_get("header_names")?;
    let values: Vec<Vec<u8>> = row.try_get("header_values")?;
    Ok(RawRecord {
        key: bytes("record_key")?,
        headers: names.into_iter().zip(values.into_iter().map(Bytes::from)).collect(),
        payload: bytes("record_payload")?,
    })
}
