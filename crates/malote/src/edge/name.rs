//! What names a request, and what tells it from another of the same name.
//!
//! Every name is made here, once per request, and then only passed on: a claim is released under
//! the very value under which it was taken.

use axum::extract::OriginalUri;
use http::request::Parts;
use malote_core::{IdempotencyKey, RequestKey, planted};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The longest caller or path that is stored as it is; longer ones are stored as their hash, so
/// that no client can make an index entry that the database refuses.
const MAX_PLAIN_BYTES: usize = 255;

/// Marks a stored hash. What begins like one is hashed too, so nobody can pose as somebody's hash.
const HASHED: &str = "sha256:";

/// The request's name: who asks, for what, under which key.
pub(super) fn request(parts: &Parts, caller: &str, key: String) -> RequestKey {
    let scope = format!("{} {}", parts.method, uri(parts).path());
    let scope = if planted::is("edge-scope") { String::new() } else { scope };
    let caller = if planted::is("edge-caller") { "anonymous" } else { caller };
    RequestKey { caller: storable(caller), scope: storable(&scope), key }
}

/// SHA-256 over method, path with query, and the body's bytes, each behind its length.
pub(super) fn fingerprint(parts: &Parts, body: &[u8]) -> [u8; 32] {
    let target = uri(parts).path_and_query().map_or("/", |target| target.as_str());
    let body = if planted::is("edge-fingerprint") { &[] } else { body };
    digest([parts.method.as_str().as_bytes(), target.as_bytes(), body])
}

/// What a provider outside is given, so that it too recognises a repeat of this request.
pub(super) fn operation(service: &str, request: &RequestKey) -> IdempotencyKey {
    IdempotencyKey(hex(&whole(service, request)))
}

/// The name of a request's copy in Redis, which other services may share.
#[cfg(feature = "redis")]
pub(super) fn copy(service: &str, request: &RequestKey) -> String {
    format!("malote:edge:{}", hex(&whole(service, request)))
}

fn whole(service: &str, request: &RequestKey) -> [u8; 32] {
    digest([service, &request.caller, &request.scope, &request.key].map(str::as_bytes))
}

/// The path as the client wrote it, also inside a nested router.
fn uri(parts: &Parts) -> &http::Uri {
    parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

/// A hash of several fields; their lengths keep one from running into the next.
fn digest<const N: usize>(fields: [&[u8]; N]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}

fn storable(text: &str) -> String {
    let plain = text.len() <= MAX_PLAIN_BYTES && !text.contains(char::is_control) && !text.starts_with(HASHED);
    if plain { text.to_owned() } else { format!("{HASHED}{}", hex(&digest([text.as_bytes()]))) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn parts(method: &str, uri: &str) -> Parts {
        http::Request::builder().method(method).uri(uri).body(()).expect("a request").into_parts().0
    }

    #[test]
    fn fields_cannot_run_into_each_other() {
        let texts = ["", "a", "b", "ab", "a:b", ":", "POST /a", "a\0b", "sha256:", "a\u{1f}b"];
        let mut names = HashSet::new();
        let mut stored = HashSet::new();
        for caller in texts {
            for key in texts {
                let name = request(&parts("POST", "/a"), caller, key.into());
                assert!(names.insert(whole("s", &name)) && stored.insert(name));
            }
        }
    }

    #[test]
    fn a_long_name_is_hashed_and_nobody_can_pose_as_a_hash() {
        let long = "x".repeat(300);
        let stored = storable(&long);
        assert!(stored.starts_with(HASHED) && stored.len() < MAX_PLAIN_BYTES);
        assert_ne!(storable(&stored), stored);
        assert!(!storable("a\0b").contains('\0'));
    }

    #[test]
    fn the_fingerprint_covers_method_path_query_and_every_byte_of_the_body() {
        let all =
            [("POST", "/a", ""), ("PATCH", "/a", ""), ("POST", "/b", ""), ("POST", "/a?x", ""), ("POST", "/a", " ")];
        let prints: HashSet<_> = all.iter().map(|(m, u, b)| fingerprint(&parts(m, u), b.as_bytes())).collect();
        assert_eq!(prints.len(), all.len());
    }
}
