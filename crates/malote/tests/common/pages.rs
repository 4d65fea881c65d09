//! Programs that pages show: what stands in a test between `// <<< NAME` and `// >>>` stands in its page as it is.
//! `MALOTE_WRITE_DOCS=1` writes the pages anew.

use std::{env, fs, path::Path};

/// What stands in a test under a name.
pub fn part<'t>(test: &'t str, name: &str) -> &'t str {
    let begins = format!("// <<< {name}\n");
    test.split_once(&*begins).and_then(|(_, rest)| rest.split_once("// >>>")).expect("the marks").0
}

/// The blocks of Rust in a page are these parts of a test.
pub fn show(page: &str, test: &str, parts: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(&path).expect("readable");
    let (mut fresh, mut rest, mut parts) = (String::new(), &*text, parts.iter());
    while let Some((before, after)) = rest.split_once("```rust\n") {
        let (_, behind) = after.split_once("```").expect("an end");
        fresh += &format!("{before}```rust\n{}```", part(test, parts.next().expect("as many blocks as parts")));
        rest = behind;
    }
    fresh += rest;
    assert!(parts.next().is_none(), "{page} lacks a block");
    if env::var("MALOTE_WRITE_DOCS").is_ok_and(|write| write == "1") {
        fs::write(&path, fresh).expect("written");
    } else {
        assert!(text == fresh, "{page} is not as its test: run this test with MALOTE_WRITE_DOCS=1");
    }
}
