//! What is printed, so that nothing that a message holds can disturb it.
//!
//! Keys and errors come from outside. On a terminal a control character could move the cursor, hide a
//! line or paint a false one, so none is printed as it is, in tables and in JSON alike.

use crate::Unusable;
use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{ContentArrangement, presets};
use malote::planted;
use serde::Serialize;
use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
};

pub use comfy_table::{Cell, Color};

/// The longest text in a cell of a listing, in characters.
const CELL: usize = 80;

/// A row of a listing.
pub trait Listed: Serialize {
    /// The heads of its columns.
    const HEAD: &'static [&'static str];
    /// What is said where there is none.
    const NONE: &'static str;
    /// One for each head.
    fn cells(&self) -> Vec<Cell>;
}

/// A row with the service that it is of.
#[derive(Serialize)]
pub struct Of<T> {
    /// The service's name.
    pub service: String,
    /// The row.
    #[serde(flatten)]
    pub row: T,
}

/// Prints rows, with the service of each where there are `several` services.
pub fn list<T: Listed>(rows: &[Of<T>], several: bool, as_json: bool) -> Result<(), Unusable> {
    if as_json {
        return json(&rows);
    }
    match rows.is_empty() {
        true => print(&format!("{}\n", T::NONE)),
        false => print(&table_of(rows, several)),
    }
}

/// A table of rows, with the service of each where there are `several`.
pub fn table_of<T: Listed>(rows: &[Of<T>], several: bool) -> String {
    let service = several.then_some("service");
    let head: Vec<_> = service.into_iter().chain(T::HEAD.iter().copied()).collect();
    let cells = rows.iter().map(|of| {
        let service = several.then(|| text(&of.service));
        service.into_iter().chain(of.row.cells()).collect()
    });
    table(&head, cells)
}

/// A table for people: no frame, columns apart by spaces; coloured and cut to its width on a terminal only.
pub fn table(head: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING);
    if io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.force_no_tty();
    }
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A cell of text, cut.
pub fn text(text: &str) -> Cell {
    Cell::new(short(text))
}

/// A cell of text that there need not be.
pub fn maybe(value: Option<impl AsRef<str>>) -> Cell {
    value.map_or_else(|| Cell::new("-"), |value| text(value.as_ref()))
}

/// A number that should be nought.
pub fn bad(count: u64) -> Cell {
    let cell = Cell::new(count);
    if count == 0 { cell } else { cell.fg(Color::Red) }
}

/// Text without control characters, at most as long as a cell.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(CELL) {
        None => plain(text),
        Some((end, _)) => plain(&text[..end]) + "…",
    }
}

/// Text in which characters that are not seen, or that change how others are seen, are written out.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match unseen(c) && !planted::is("cli-unescaped") {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Control characters, and those that change the direction of writing or have no width.
fn unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A time to the second, in UTC.
pub fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A length of time in its two largest units.
pub fn age(seconds: f64) -> String {
    // a cast from a float saturates, and what is not a number is nought
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    let two = |large: u64, of: &str, small: u64, than: &str| match small {
        0 => format!("{large}{of}"),
        small => format!("{large}{of} {small}{than}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, _) => two(minutes, "m", whole % 60, "s"),
        (0, ..) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

/// `1 row`, `2 rows`.
pub fn count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Prints a document. What a terminal might take for a command is escaped, which changes no value.
pub fn json(document: &impl Serialize) -> Result<(), Unusable> {
    let text = serde_json::to_string_pretty(document).map_err(|error| Unusable::new("the output", error))?;
    print(&(escaped(&text) + "\n"))
}

/// serde_json leaves them as they are, and they can stand in strings only.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c != '\n' && unseen(c) && !planted::is("cli-unescaped") {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(text, "\\u{unit:04x}");
            }),
            false => text.push(c),
        }
    }
    text
}

/// Prints to standard output. A reader that has left has seen enough; anything else that keeps the output from being
/// written counts.
pub fn print(text: &str) -> Result<(), Unusable> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Unusable::new("standard output", error)),
        _ => Ok(()),
    }
}

/// Tells people something, on standard error; nobody need listen. Passwords of URLs are taken out, wherever the text
/// comes from.
pub fn say(text: &str) {
    let lines: Vec<_> = redacted(text).lines().map(plain).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}

/// Takes who logs in, and as what, out of every URL in a text.
pub fn redacted(text: &str) -> String {
    if planted::is("cli-password-shown") {
        return text.to_owned();
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let end = after.find(|c: char| c.is_whitespace() || c == '"' || c == '`').unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        clean.push_str(before);
        let host = match url.rfind('@') {
            None => url,
            // the words of a help text, and no secret
            Some(at) if &url[..at] == "user:password" => url,
            Some(at) => {
                clean.push('…');
                &url[at..]
            }
        };
        match host.split_once("password=") {
            None => clean.push_str(host),
            Some((shown, _)) => clean.extend([shown, "password=…"]),
        }
        rest = behind;
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_reaches_the_terminal_as_a_command() {
        assert_eq!(plain("a\u{1b}[2Jb\r\n\t\u{9b}c\u{202e}d"), "a\\u{1b}[2Jb\\r\\n\\t\\u{9b}c\\u{202e}d");
        assert_eq!(plain("ação 🦀"), "ação 🦀");
        let value = serde_json::json!({"key": "\u{9b}2J\u{1b}\u{7f}\u{202e}\n"});
        let text = escaped(&serde_json::to_string_pretty(&value).expect("written"));
        assert!(!text.chars().any(|c| c != '\n' && unseen(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("read"), value);
        let table = table(&["key"], [vec![super::text("x\ny\u{1b}[1m")]].into_iter());
        assert_eq!(table, "KEY\nx\\ny\\u{1b}[1m\n");
        assert_eq!(short(&"é".repeat(200)), "é".repeat(CELL) + "…");
    }

    #[test]
    fn passwords_are_taken_out() {
        for (text, shown) in [
            ("no URL: a@b", "no URL: a@b"),
            ("at postgres://u:canary@h:1/d?x=y, and", "at postgres://…@h:1/d?x=y, and"),
            ("postgres://u:ca/na@ry@h postgres://h/d", "postgres://…@h postgres://h/d"),
            ("\"postgres://h/d?password=canary&a=b\"", "\"postgres://h/d?password=…\""),
            ("postgres://user:password@host", "postgres://user:password@host"),
            ("://", "://"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn ages_have_two_units() {
        for (seconds, shown) in [
            (f64::NAN, "0s"),
            (-3.0, "0s"),
            (59.9, "59s"),
            (61.0, "1m 1s"),
            (7_260.0, "2h 1m"),
            (200_000.0, "2d 7h"),
            (86_400.0, "1d"),
        ] {
            assert_eq!(age(seconds), shown);
        }
        assert_eq!([count(0, "row"), count(1, "row")], ["0 rows", "1 row"]);
    }
}
