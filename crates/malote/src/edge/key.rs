//! The key that a client chose, read from its headers.
//!
//! Two headers are known: `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header, a quoted
//! string of RFC 9651) and the older `x-idempotency-key`. Both may be quoted or not; `"a"` and `a`
//! are the same key. Whatever cannot be read without a doubt is refused: two readings of one key
//! would be two payments.

use super::Problem;
use http::{HeaderMap, HeaderValue, StatusCode};

/// The headers that carry a key.
pub(super) const HEADERS: [&str; 2] = ["idempotency-key", "x-idempotency-key"];

/// The longest key, in bytes, quotes apart.
pub(super) const MAX_KEY_BYTES: usize = 255;

/// The key of a request.
pub(super) fn of(headers: &HeaderMap) -> Result<String, Problem> {
    let mut found: Option<String> = None;
    for value in HEADERS.iter().flat_map(|name| headers.get_all(*name)) {
        let key = parse(value)?;
        if found.as_ref().is_some_and(|other| *other != key) {
            return Err(refused("The request carries two different keys. Send one, in one header."));
        }
        found = Some(key);
    }
    found.ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "This request needs a key, so that it takes effect once however often it is sent: add the header \
             Idempotency-Key with a value of your own, such as a new UUID, and repeat it with every retry.",
        )
        .kind("urn:malote:problem:key-missing")
        .title("Idempotency key missing")
    })
}

fn refused(detail: &'static str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
        .kind("urn:malote:problem:key-malformed")
        .title("Idempotency key malformed")
}

fn parse(value: &HeaderValue) -> Result<String, Problem> {
    let text = value.to_str().map_err(|_| {
        refused("The idempotency key holds characters other than printable ASCII. Use letters, digits and - _ . only.")
    })?;
    let text = text.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => quoted(rest)?,
        None => bare(text)?,
    };
    if key.trim().is_empty() {
        return Err(refused("The idempotency key is empty. Send a value of your own, such as a new UUID."));
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(refused("The idempotency key is longer than 255 bytes. Send a shorter one, such as a new UUID."));
    }
    Ok(key)
}

/// The inside of a structured-field string; `text` begins behind its first quote.
fn quoted(text: &str) -> Result<String, Problem> {
    let broken =
        || refused("The quotes around the idempotency key do not match. Write \"key\", or key without quotes.");
    let mut key = String::with_capacity(text.len());
    let mut rest = text.chars();
    loop {
        match rest.next().ok_or_else(broken)? {
            '"' => break,
            '\\' => match rest.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err(broken()),
            },
            '\t' => return Err(refused("The idempotency key holds a control character. Leave it out.")),
            plain => key.push(plain),
        }
    }
    if rest.as_str().is_empty() { Ok(key) } else { Err(broken()) }
}

/// A key without quotes. A comma or a space means that something joined two values.
fn bare(text: &str) -> Result<String, Problem> {
    if text.bytes().any(|b| !b.is_ascii_graphic() || matches!(b, b'"' | b',')) {
        return Err(refused(
            "The idempotency key holds a space, a comma or a quote. Leave it out, or put the whole key in double quotes.",
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &[u8])]) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value).expect("a header"));
        }
        of(&headers).map_err(|problem| {
            assert_eq!(problem.status(), 400);
            problem.detail().to_owned()
        })
    }

    #[test]
    fn the_same_key_in_any_of_its_forms() {
        for form in [&b"k-1"[..], b"\"k-1\"", b"  k-1  "] {
            for name in HEADERS {
                assert_eq!(read(&[(name, form)]).as_deref(), Ok("k-1"));
            }
        }
        assert_eq!(read(&[(HEADERS[0], b"\"k-1\""), (HEADERS[1], b"k-1")]).as_deref(), Ok("k-1"));
        assert_eq!(read(&[(HEADERS[0], br#""a \"b\" \\, c""#)]).as_deref(), Ok(r#"a "b" \, c"#));
        assert_eq!(read(&[(HEADERS[0], &[b'k'; 255])]).as_deref().map(str::len), Ok(255));
    }

    #[test]
    fn anything_doubtful_is_refused() {
        for (form, hint) in [
            (&b""[..], "empty"),
            (b"\"\"", "empty"),
            (b"\"  \"", "empty"),
            (&[b'k'; 256], "longer than 255"),
            (b"a b", "space"),
            (b"a,b", "comma"),
            (b"a\tb", "space"),
            (b"\"a\tb\"", "control"),
            (b"a\"b", "quote"),
            (b"\"a", "quotes"),
            (b"\"a\"b", "quotes"),
            (b"\"a\";p=1", "quotes"),
            (b"\"a\\", "quotes"),
            (b"\"a\\n\"", "quotes"),
            ("schlüssel".as_bytes(), "ASCII"),
            (b"\xff", "ASCII"),
        ] {
            let refusal = read(&[(HEADERS[0], form)]).expect_err("refused");
            assert!(refusal.contains(hint), "{form:?}: {refusal}");
        }
        assert!(read(&[]).expect_err("refused").contains("needs a key"));
        assert!(read(&[(HEADERS[0], b"a"), (HEADERS[1], b"b")]).expect_err("refused").contains("two different"));
        assert!(read(&[(HEADERS[0], b"a"), (HEADERS[0], b"b")]).expect_err("refused").contains("two different"));
    }
}
