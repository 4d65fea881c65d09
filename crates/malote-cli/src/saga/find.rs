//! Which saga is meant, by the beginning of its id.

use crate::{
    Unusable,
    out::plain,
    place::{Place, Service},
};
use malote::{
    chain, planted,
    saga::{Outline, Stored},
};
use std::fmt;
use uuid::Uuid;

/// Fewer digits say nothing.
const LEAST: usize = 4;
/// So many digits has an id.
const DIGITS: usize = 32;
/// So many of those that begin alike are named.
const NAMED: u32 = 3;

/// An id, or the beginning of one.
#[derive(Clone)]
pub struct Beginning {
    text: String,
    first: Uuid,
    last: Uuid,
}

impl fmt::Display for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads it; hyphens do not count.
pub fn beginning(text: &str) -> Result<Beginning, String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let expected = || format!("a saga's id is expected, or at least its first {LEAST} digits (0-9, a-f)");
    if !(LEAST..=DIGITS).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(expected());
    }
    let filled = |with: &str| {
        let text = digits.clone() + &with.repeat(DIGITS - digits.len());
        Uuid::try_parse(&text).map_err(|_| expected())
    };
    Ok(Beginning { text: text.to_owned(), first: filled("0")?, last: filled("f")? })
}

/// A saga with its service.
pub struct Found {
    /// Whose it is.
    pub service: Service,
    /// As it is stored.
    pub saga: Stored,
    /// Its definition, where a process has told it.
    pub outline: Option<Outline>,
}

impl Beginning {
    /// The one saga that is meant, in all services together.
    pub async fn find(&self, place: &Place) -> Result<Found, Unusable> {
        let mut found: Vec<(Service, Uuid)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for service in place.open().await? {
            let ids = service.store.inspect().saga_ids(self.first, self.last, NAMED).await;
            let ids = ids.map_err(|error| Unusable::new(&service.name, chain(&error)))?;
            names.extend(ids.iter().map(|id| format!("{id} of {}", plain(&service.name))));
            match ids.first() {
                Some(id) => found.push((service, *id)),
                None => service.store.close().await,
            }
        }
        if names.len() > 1 && !planted::is("cli-saga-first") {
            let why = format!("several begin so: {}; give more of it, or --service", names.join(", "));
            return Err(Unusable::new(self, why));
        }
        let Some((service, id)) = found.into_iter().next() else { return Err(self.missing()) };
        let (saga, outlines) = async {
            let inspect = service.store.inspect();
            Ok((inspect.saga(id).await?, inspect.saga_definitions().await?))
        }
        .await
        .map_err(|error: malote::StoreError| Unusable::new(&service.name, chain(&error)))?;
        let saga = saga.ok_or_else(|| self.missing())?;
        let outline = outlines.into_iter().find(|of| of.saga == saga.definition && of.version == saga.version);
        Ok(Found { service, saga, outline })
    }

    fn missing(&self) -> Unusable {
        let why =
            "there is no such saga; one that ended long ago is removed, and `malote saga list` shows what is there";
        Unusable::new(self, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_is_a_range() {
        let read = |text| beginning(text).map(|b| (b.first.to_string(), b.last.to_string()));
        let (first, last) = read("0193-ab").expect("a beginning");
        assert_eq!(first, "0193ab00-0000-0000-0000-000000000000");
        assert_eq!(last, "0193abff-ffff-ffff-ffff-ffffffffffff");
        let whole = "0193ab00-0000-7000-8000-00000000000a";
        assert_eq!(read(whole), Ok((whole.to_owned(), whole.to_owned())));
        for text in ["", "----", "019", "019g", "0193ab00-0000-7000-8000-00000000000aa", "0193\u{1b}", "٣٣٣٣"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
