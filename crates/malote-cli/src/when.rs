//! Times and ages as people write them.

use chrono::{DateTime, Utc};
use malote::{Clock as _, SystemClock};
use std::time::Duration;

/// A length of time such as `15m`, `2h`, `3d`.
pub fn age(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(format!("an age such as 30s, 15m, 2h, 3d or 2w is expected, not {text:?}")),
    };
    let number = text[..text.len() - unit.len()].parse::<u64>().ok();
    let seconds = number.and_then(|number| number.checked_mul(seconds)).filter(|age| *age <= 100 * 366 * 86_400);
    seconds.map(Duration::from_secs).ok_or_else(|| format!("an age of at most 100 years is expected, not {text:?}"))
}

/// A time by RFC 3339, a day, or how long ago it was (by the clock of this machine).
pub fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let now = SystemClock.now();
    if let Ok(age) = age(text) {
        return Ok(now - age);
    }
    let day = format!("{text}T00:00:00Z");
    let read = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc3339(&day));
    read.map(|time| time.to_utc()).map_err(|_| {
        format!("a time such as 2026-11-30T08:00:00Z, a day such as 2026-11-30, or an age such as 2h is expected, not {text:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("2h", 7_200), ("3d", 259_200), ("1w", 604_800)] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "m", "-1h", "1.5h", "1 h", "1y", "99999999999999999999d", "18446744073709551615d", "٣d"]
        {
            assert!(age(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read() {
        let read = |text| time(text).map(|time| time.timestamp());
        assert_eq!(read("1970-01-02T01:00:00+01:00"), Ok(86_400));
        assert_eq!(read("1970-01-02"), Ok(86_400));
        let hour = SystemClock.now().timestamp() - time("1h").expect("an age").timestamp();
        assert!((3_599..=3_601).contains(&hour), "{hour}");
        for text in ["", "yesterday", "2026-13-01", "2026-11-30T08:00:00", "-3d"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
