//! A record's headers as bytes: per header the length of its name, the name, the length of its value,
//! the value; lengths are 32 bits, little-endian. A value need not be text.

use bytes::{Buf, BufMut, Bytes};
use malote_core::{RawRecord, planted, wire};
use rusqlite::{Row, types::ValueRef};

pub(super) fn write(headers: &[(String, Bytes)]) -> Vec<u8> {
    let size = headers.iter().map(|(name, value)| 8 + name.len() + value.len()).sum();
    let mut out = Vec::with_capacity(size);
    for (name, value) in headers {
        for part in [name.as_bytes(), value] {
            // nothing longer than a record gets here, and a record is checked to be far shorter
            out.put_u32_le(u32::try_from(part.len()).unwrap_or(u32::MAX));
            out.put_slice(part);
        }
    }
    out
}

/// None when these are not headers.
pub(super) fn read(mut rest: Bytes) -> Option<Vec<(String, Bytes)>> {
    let mut part = move || -> Option<Option<Bytes>> {
        if rest.is_empty() {
            return Some(None);
        }
        let length = rest.try_get_u32_le().ok()? as usize;
        (length <= rest.len()).then(|| Some(rest.split_to(length)))
    };
    let mut headers = Vec::new();
    while let Some(name) = part()? {
        headers.push((String::from_utf8(name.to_vec()).ok()?, part()??));
    }
    Some(headers)
}

/// A row `at, key, headers, payload` as a record. A damaged one is delivered all the same, marked so that
/// nobody takes it for an event: its consumer sets it aside, and what lies behind it goes on.
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<RawRecord> {
    // outer none: something that we would not have written
    let part = |column| -> rusqlite::Result<Option<Option<Bytes>>> {
        Ok(match row.get_ref(column)? {
            ValueRef::Null => Some(None),
            ValueRef::Blob(bytes) => Some(Some(Bytes::copy_from_slice(bytes))),
            ValueRef::Text(_) | ValueRef::Integer(_) | ValueRef::Real(_) => None,
        })
    };
    let (key, written, payload) = (part(1)?, part(2)?.flatten(), part(3)?);
    let headers = written.clone().and_then(read);
    if headers.is_none() && planted::is("log-damage-blocks") {
        return Err(rusqlite::Error::InvalidQuery);
    }
    Ok(match (key, headers, payload) {
        (Some(key), Some(headers), Some(payload)) => RawRecord { key, headers, payload },
        (key, _, payload) => {
            let headers = vec![(wire::DAMAGED.to_owned(), written.unwrap_or_default())];
            RawRecord { key: key.flatten(), headers, payload: payload.flatten() }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        let headers = vec![
            ("ce_id".to_owned(), Bytes::from_static(b"7")),
            ("naïve".to_owned(), Bytes::from_static(b"\xff\x00")),
            (String::new(), Bytes::new()),
        ];
        let bytes = write(&headers);
        assert_eq!(read(bytes.clone().into()), Some(headers));
        assert_eq!(read(Bytes::new()), Some(Vec::new()));
        for cut in [1, 3, 5, bytes.len() - 1] {
            assert_eq!(read(bytes[..cut].to_vec().into()), None, "{cut}");
        }
    }
}
